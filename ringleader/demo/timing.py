"""Durations of the demo's Leases and waits that fit the control plane and the machine. Pure.

A renewal queues at the API server like every other request, and for a core. Where both are scarce, replicas lose
leases of 3 s (safely) again and again, and a demo would show nothing else.
"""

from __future__ import annotations

EMBEDDED_LEASE_S = 3
REAL_LEASE_S = 6
"""The real servers take most of a small machine for themselves."""
_BUSY_PER_CORE = 4.0
_SWAMPED_PER_CORE = 10.0


def fitting_lease_s(*, is_real: bool, load_per_core: float) -> int:
    """Seconds. *load_per_core*: runnable processes per core."""
    lease_s = REAL_LEASE_S if is_real else EMBEDDED_LEASE_S
    if load_per_core < _BUSY_PER_CORE:
        return lease_s
    return 2 * lease_s if load_per_core < _SWAMPED_PER_CORE else 3 * lease_s


def patience_s(lease_s: int) -> float:
    """Time without a change before a wait fails: a take-over lasts more than two leases, and the next sharder may
    need one to lead."""
    return 60.0 + 20.0 * lease_s
