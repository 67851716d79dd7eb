"""Who is on the ring and who is gone, from Leases: a pure state machine, with its reads and writes (protocol 4)."""
