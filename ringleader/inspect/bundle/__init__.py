"""`ringleader bundle`: one tar.gz to attach to an issue, of JSON files that grep and jq can read.

`collect` reads the parts, `workloads` those of the processes. `command` packs them.
"""
