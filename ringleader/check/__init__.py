"""`ringleader check`: what is wrong with the rings of a cluster, where, and what to do about it.

`collect` and `environment` read, `evidence` is what was read, the other modules judge it (pure), `checks` lists every
check, `command` prints. Nothing is written to the cluster; the questions about rights create nothing.
"""
