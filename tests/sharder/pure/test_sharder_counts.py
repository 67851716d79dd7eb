"""Objects by shard as the replicas count them, and those that are misplaced."""

from __future__ import annotations

import pytest

from kubeio.models import Lease, Meta
from kubeio.protocol import ring_keys
from sharder.rings.counts import count_misplaced, count_objects

KEYS = ring_keys("websites", "ringleader.dev")
MAINS = ["websites.example.com", "pages.example.com"]


def lease(name: str, **marks: str) -> Lease:
    annotations = {getattr(KEYS, key): value for key, value in marks.items()}
    return Lease(Meta(name=name, annotations=annotations))


def test_main_objects_are_summed_and_controlled_ones_are_not() -> None:
    a = lease(
        "a", protocol="v1", synced="true", objects="configmaps=9,pages.example.com=2,websites.example.com=3"
    )
    assert count_objects([a], keys=KEYS, mains=MAINS) == {"a": 5}


def test_a_replica_whose_caches_fill_has_no_objects_yet() -> None:
    assert count_objects([lease("a", protocol="v1")], keys=KEYS, mains=MAINS) == {"a": 0}


@pytest.mark.parametrize("marks", [{"protocol": "v1", "synced": "true"}, {}])
def test_a_replica_that_does_not_count_leaves_the_sum_unknown(marks: dict[str, str]) -> None:
    counting = lease("a", protocol="v1", synced="true", objects="websites.example.com=3")
    assert count_objects([counting, lease("b", **marks)], keys=KEYS, mains=MAINS) is None


def test_what_is_above_a_share_has_to_move_and_handoffs_count_at_least() -> None:
    shares = {"a": 0.5, "b": 0.5}
    assert count_misplaced({"a": 80, "b": 20}, shares, {}, unassigned=0) == 30
    assert count_misplaced({"a": 50, "b": 50}, shares, {"a": 7}, unassigned=0) == 7
    assert count_misplaced({"a": 80, "b": 0}, shares, {}, unassigned=20) == 30
    assert count_misplaced({"gone": 10, "b": 0}, {"b": 1.0}, {}, unassigned=0) == 10
    assert count_misplaced({"a": 80}, {}, {}, unassigned=0) == 0
