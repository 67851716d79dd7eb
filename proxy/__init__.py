"""Shards controllers that were not written for it: stands between a controller and the API server."""
