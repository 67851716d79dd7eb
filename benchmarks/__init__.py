"""Benchmarks: `make bench-*`. Scripts that measure this project beside its peers and its limits; not in the wheel."""
