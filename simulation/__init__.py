"""Deterministic simulation: the real sharder and the real replicas on virtual time, over a simulated API server.

One seed gives one run, event for event. `python -m simulation --help` has the command; docs/testing.md explains judges
and faults.
"""
