"""How the suite is dealt out to workers."""

from __future__ import annotations

import pytest

from tests.distribution import group_of, longest_first


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
