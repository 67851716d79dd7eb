"""Proxy that runs an unmodified controller behind the selector of one shard (docs/adr/0052)."""
