"""Pictures for reports, by matplotlib: the ring, shares against the bound, what moves, a rebalance over time.

Each picture has a module of its name that makes a Figure of plain data; `canvas` owns paper, type and files, `palette`
the colours, `recording` the file that a timeline is drawn from, `command` the commands.
"""
