"""The live page: the moves on the rings of one cluster, in a browser, read-only.

Served by the sharder from its memory (`page_ring`), an option; and by `ringleader dashboard` from a cluster.
`board` holds the facts, `live` sends them, `page.html` draws them. Imported only where it is served.
"""
