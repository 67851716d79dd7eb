"""`ringleader dashboard`: rings, members and moves in a browser, as the sharder that leads publishes them. Read-only.

`command` composes, `service` serves, `relay` passes the sharder's stream on over the one `connection`; `leader` and
`port_forward` are the ways to it, `endpoint` reads there. `questions` are answered from the cluster (`find`, `whatif`).
"""
