"""The only code that talks to an API server.

Owns connections, credentials, lists and watches, caches, queues, Leases and leadership; decides nothing about rings.
Imports nothing of ours.
"""
