"""The live view of a sharder: members and moves of its rings, as `/debug/rings` publishes them. Read-only.

`ring_view` reads one ring from its components, `state` holds all rings and their last hour, `stream` sends the changes.
`ringleader dashboard` draws them.
"""
