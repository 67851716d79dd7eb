"""`make bench-sharder`: one sharder at 100,000 objects beside what the API server can take, row by row.

`__main__` reads the command line, `run` goes through the rows, `throughput`, `latency`, `resting` and `failures`
measure them, `report` prints and draws. Nothing else imports this package.
"""
