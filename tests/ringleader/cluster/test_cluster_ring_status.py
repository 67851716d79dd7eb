"""Status of a ring from what the sharder and the replicas report: nothing is listed, the age of the counts is shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeio.clock import micro_time
from kubeio.models import Lease, LeaseSpec, Meta
from ringleader.cluster.ring import Ring, ring_of
from ringleader.cluster.ring_status import RingStatus, reported_status
from ringleader.cluster.shards import Pod, shards_of
from ringleader.inspect.status.layout import Screen, status_lines
from tests.sharder.io.environment import KEYS

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
A, B, C = "a-00000001", "b-00000001", "c-00000001"


def ring(*, balanced: bool = True, deleted: bool = False, **status: Any) -> Ring:
    document = {
        "metadata": {"name": KEYS.ring} | ({"deletionTimestamp": "2026-11-21T11:00:00Z"} if deleted else {}),
        "spec": {
            "resources": [{"group": "example.com", "resource": "websites"}],
            "leaseNamespace": "default",
        },
        "status": {
            "conditions": [{"type": "Balanced", "status": "True" if balanced else "False"}],
            "objects": 100,
            "unassigned": 0,
            "misplaced": 0,
            "inFlight": 0,
            "members": [row(A), row(B)],
            **status,
        },
    }
    return ring_of(document)


def row(shard: str, *, share: float = 0.5, in_flight: int = 0) -> dict[str, Any]:
    name = shard.rpartition("-")[0]
    return {"name": name, "place": "filled", "shard": shard, "share": share, "inFlight": in_flight}


def lease(
    shard: str, objects: str | None, *, age_s: float = 2, holder: str | None = None, synced: bool = True
) -> Lease:
    marks = {KEYS.member: shard.rpartition("-")[0], KEYS.protocol: "v1"}
    marks |= {KEYS.synced: "true"} if synced else {}
    marks |= {KEYS.objects: objects} if objects is not None else {}
    renewed = micro_time(NOW - timedelta(seconds=age_s))
    spec = LeaseSpec(shard if holder is None else holder, 15, renewed, renewed, 0)
    return Lease(Meta(name=shard, labels={KEYS.ring_label: KEYS.ring}, annotations=marks), spec)


def shown(of: Ring, *leases: Lease) -> RingStatus:
    return reported_status(of, shards_of(of, leases, now=NOW))


def sites(number: int) -> str:
    return f"configmaps=9,websites.example.com={number}"


def test_counts_of_the_main_resources_come_from_the_leases_with_the_oldest_ones_age() -> None:
    found = shown(ring(), lease(A, sites(60), age_s=1), lease(B, sites(40), age_s=4))
    assert {each.shard: each.objects for each in found.members} == {A: 60, B: 40}
    assert (found.objects, found.unowned, found.misplaced, found.to_do) == (100, 0, 0, 0)
    assert found.reported_seconds_ago == 4.0
    lines = status_lines([found], Screen(), is_wide=False, now=NOW)
    assert "objects: as replicas counted them up to 4s ago (--count lists them)" in lines
    assert "converged: every object is at its place" in lines


def test_objects_of_a_dead_replica_are_those_that_wait_for_an_owner() -> None:
    of = ring(balanced=False, unassigned=40, objects=100, members=[row(A, share=1.0)])
    found = shown(of, lease(A, sites(60)), lease(B, sites(40), holder="sharder:b"))
    assert (found.objects, found.unowned, found.to_do) == (100, 40, 40)


def test_misplaced_objects_and_the_pace_are_the_sharders() -> None:
    of = ring(
        balanced=False, objects=300, misplaced=100, progress={"objectsPerSecond": 20.0, "secondsLeft": 5}
    )
    found = shown(of, lease(A, sites(200)), lease(B, sites(100)))
    assert (found.misplaced, found.to_do, found.rate_per_second, found.seconds_left) == (100, 100, 20.0, 5)
    lines = "".join(status_lines([found], Screen(), is_wide=False, now=NOW))
    assert "to do: about 100 objects" in lines
    assert "20/s, about 5 s left" in lines


def test_a_replica_that_reports_before_the_sharder_adds_no_object() -> None:
    """The sharder saw twenty objects without an owner; meanwhile they have one."""
    found = shown(ring(balanced=False, objects=20, unassigned=20), lease(A, sites(12)), lease(B, sites(8)))
    assert (found.objects, found.unowned, found.misplaced) == (20, 20, 0)


def test_shares_are_of_what_replicas_have_while_the_sharder_has_counted_fewer() -> None:
    found = shown(ring(objects=0), lease(A, sites(6)), lease(B, sites(2)))
    assert {each.shard: each.share for each in found.members} == {A: 0.75, B: 0.25}


def test_a_ring_that_is_given_up_shows_what_is_left_and_the_pace() -> None:
    progress = {"objectsPerSecond": 2.0, "secondsLeft": 175}
    found = shown(
        ring(deleted=True, balanced=False, released=7200, objects=350, progress=progress),
        lease(A, sites(350)),
    )
    assert (found.to_do, found.objects) == (350, 7550)
    assert (found.rate_per_second, found.seconds_left) == (2.0, 175)


def test_a_ring_that_no_sharder_has_counted_shows_what_replicas_report_and_the_remedy() -> None:
    found = shown(ring(objects=None, unassigned=None), lease(A, sites(1)), lease(B, sites(3)))
    assert (found.objects, found.unowned, found.misplaced) == (None, None, None)
    assert {each.shard: (each.objects, each.share) for each in found.members} == {A: (1, 0.25), B: (3, 0.75)}
    lines = status_lines([found], Screen(), is_wide=False, now=NOW)
    assert lines[1].split()[:3] == ["websites", "-", "-"]
    (remark,) = [line for line in lines if "--count" in line]
    assert remark.startswith("objects: the sharder has not reported them")
    assert not [line for line in lines if "converged" in line]


@pytest.mark.parametrize("objects", [None, "many", ""])
def test_a_replica_that_does_not_report_has_no_number(objects: str | None) -> None:
    """The sharder gives no total then either."""
    found = shown(ring(objects=None, unassigned=2), lease(A, sites(1)), lease(B, objects))
    assert [(each.objects, each.share) for each in found.members] == [(1, 1.0), (None, None)]
    assert (found.objects, found.unowned) == (None, 2)
    assert status_lines([found], Screen(), is_wide=False, now=NOW)[-1].split()[-3:] == ["-", "-", "50.0%"]


def test_a_replica_whose_caches_are_not_full_has_nothing_yet() -> None:
    found = shown(ring(), lease(A, sites(1)), lease(B, None, synced=False))
    assert {each.shard: each.objects for each in found.members} == {A: 1, B: 0}


@pytest.mark.parametrize(
    ("said", "pod"),
    [
        ("shop/web-7d9-x2", Pod("shop", "web-7d9-x2")),
        (None, Pod("leases", "a")),
        ("shop", Pod("leases", "a")),
        ("shop/web/extra", Pod("leases", "a")),
    ],
)
def test_a_lease_names_the_pod_else_it_is_looked_for_beside_the_lease(said: str | None, pod: Pod) -> None:
    beside = lease(A, None)
    beside.metadata.namespace = "leases"
    if said is not None:
        beside.metadata.annotations[KEYS.pod] = said
    assert [shard.pod for shard in shards_of(ring(), [beside], now=NOW)] == [pod]
