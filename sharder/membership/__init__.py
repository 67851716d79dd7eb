"""Members on the ring and dead shards, from Leases: a pure state machine, with its reads and writes (protocol 4)."""
