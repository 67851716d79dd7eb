"""Learn mode: runs a controller alone behind the relay, reports what it does, and whether and how it can be sharded.

Requests become observations (`requests`, `looks`, `survey`: `seen`), observations a judgement (`trees`, `classes`) and
a configuration (`configuration`). What judges knows no sockets.
"""
