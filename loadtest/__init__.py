"""Load on a fleet, and benchmarks: how fast a ring, a client, a fleet really are.

Top floor: imports everything, nobody imports it.
"""
