"""Ownership: the Lease, its heartbeat, decisions about keys, handoffs to other replicas."""
