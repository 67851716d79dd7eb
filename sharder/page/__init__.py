"""The live page: what moves on the rings of one cluster, in a browser, read-only.

Served by the sharder from what it holds in memory (`rooms`), an option; and by `ringleader page` from what it reads
of a cluster. `board` holds what is shown, `live` sends it, `page.html` draws it. Imported only where it is served.
"""
