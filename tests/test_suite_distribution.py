"""How the suite is dealt out to workers."""

from __future__ import annotations

import pytest

from tests.distribution import LONG_S, group_of, longest_first, record_of


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/ring/test_ring_arcs.py::test_a[x]", "tests/ring/test_ring_arcs.py"),
        ("tests/contract/test_contract_lists.py::test_a[real]", "tests/contract[real]"),
        ("tests/contract/test_contract_lists.py::test_a[embedded-true]", "tests/contract[embedded]"),
        ("tests/fleet/test_fleet_outages.py::test_a[real]", "tests/fleet/test_fleet_outages.py[real]"),
        ("tests/kubeio/watches/test_watch_on_planes.py::test_a[real-False]", "tests/kubeio[real]"),
        ("tests/kubeio/watches/test_watch_session.py::test_a", "tests/kubeio/watches/test_watch_session.py"),
    ],
)
def test_tests_that_share_a_control_plane_go_to_one_worker(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


def test_the_longest_begin_and_an_unknown_one_is_not_left_for_the_end() -> None:
    rank = longest_first(["quick", "slow", "new", "slow"], {"quick": 1.0, "slow": 100.0})
    assert sorted(rank, key=rank.__getitem__) == ["slow", "new", "quick"]


def test_what_is_kept_are_the_seconds_of_groups_and_the_names_of_long_tests() -> None:
    kept = record_of(
        {"tests/a.py::test_long": LONG_S, "tests/a.py::test_short": 0.5, "tests/b.py::test": 1.0}
    )
    assert kept.groups == {"tests/a.py": LONG_S + 0.5, "tests/b.py": 1.0}
    assert kept.long == ["tests/a.py::test_long"]
