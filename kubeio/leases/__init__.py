"""Leases by compare-and-swap, and leader election over one of them."""
