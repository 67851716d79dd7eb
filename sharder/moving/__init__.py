"""Objects that have an owner and belong elsewhere: passes, handoffs in flight, and the audit (protocol 6.4 to 6.8)."""
