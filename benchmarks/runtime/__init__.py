"""`make bench-runtime`: the runtime for replicas beside its peers, on one control plane in one run, row by row.

`__main__` reads the command line, `run` goes through the rows, `starting`, `rates`, `events`, `writing` and
`renewals` measure them, `report` prints and draws. `ours`, `with_kopf`, `with_kubernetes` and `peer/` (Go) are the
programs that are measured, `stub` is a server for one row. Nothing else imports this package.
"""
