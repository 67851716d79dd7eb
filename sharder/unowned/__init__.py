"""Objects that need an owner: their watches, the little that is kept of each, and their order (protocol 6.2)."""
