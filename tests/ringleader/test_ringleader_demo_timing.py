"""Durations of the demo's Leases and waits."""

from __future__ import annotations

import pytest

from ringleader.demo.timing import fitting_lease_s, patience_s


@pytest.mark.parametrize(
    ("is_real", "load_per_core", "lease_s"),
    [
        (False, 0.5, 3),
        (False, 3.9, 3),
        (False, 4, 6),
        (False, 12, 9),
        (True, 0.5, 6),
        (True, 5, 12),
        (True, 12, 18),
    ],
)
def test_leases_are_longer_on_real_servers_and_on_a_busy_machine(
    is_real: bool, load_per_core: float, lease_s: int
) -> None:
    assert fitting_lease_s(is_real=is_real, load_per_core=load_per_core) == lease_s


def test_a_wait_outlasts_a_take_over_by_the_next_leader() -> None:
    for lease_s in (2, 3, 6, 24, 60):
        assert patience_s(lease_s) > 10 * lease_s
