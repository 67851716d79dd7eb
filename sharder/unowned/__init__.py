"""What needs an owner: the watches that show it, the little that is kept of it, and its order (protocol 6.2)."""
