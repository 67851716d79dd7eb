"""`ringleader doctor`: what is wrong with the rings of a cluster, where, and what to do about it.

`gathering` reads, `seen` is what was read, the other modules judge it (pure), `rounds` runs every check, `command`
prints. Nothing is written to the cluster; the questions about rights create nothing.
"""
