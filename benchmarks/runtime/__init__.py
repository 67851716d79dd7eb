"""`make bench-runtime`: the runtime for replicas beside its peers, on one control plane in one run, row by row.

`ours`, `with_kopf`, `with_kubernetes` and `peer/` (Go) are the programs that are measured.
"""
