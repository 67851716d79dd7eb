"""Evidence puts journals, write log and processes together: what the demo and every fleet test rely on."""

from __future__ import annotations

import itertools
import math

import pytest

from devcluster.plane import Write
from kubeio.protocol import RingKeys
from ringleader.demo.document import Document, Event, document, faults
from ringleader.testing.availability import Demand, Span
from ringleader.testing.commands import FleetSpec
from ringleader.testing.evidence import Evidence
from ringleader.testing.journal import Begin, End, Life, Record
from ringleader.testing.ownership_checks import LEASES, TooFewReconcilesError

SPEC = FleetSpec(controller="none.py:none")
KEYS = RingKeys("websites")
SITES = "websites.example.com"


def lease(t: float, name: str, member: str) -> Write:
    return Write(
        seq=0,
        t=t,
        user=member,
        verb="create",
        resource=LEASES,
        name=name,
        code=201,
        labels_after={KEYS.ring_label: "websites"},
        object={"spec": {"holderIdentity": name}, "annotations": {KEYS.member: member}},
    )


def label(
    t: float, name: str, *, user: str = "sharder-1", before: str | None = None, code: int = 200
) -> Write:
    return Write(
        seq=0,
        t=t,
        user=user,
        verb="patch",
        resource=SITES,
        namespace="sites",
        name="blog",
        uid="u1",
        code=code,
        labels_before=None if before is None else {KEYS.shard: before},
        labels_after={KEYS.shard: name},
    )


def evidence(
    records: list[Record],
    writes: list[Write],
    processes: dict[int, list[list[Span]]],
    *,
    demands: tuple[Demand, ...] = (),
    until: float = 20.0,
) -> Evidence:
    return Evidence(
        spec=SPEC,
        records=records,
        writes=writes,
        processes=processes,
        replicas=frozenset({"a", "b"}),
        demands=demands,
        since=0.0,
        settled_since=0.0,
        until=until,
    )


def test_a_life_taken_over_by_the_next_process_works_in_both_and_not_between() -> None:
    records: list[Record] = [Life(1, "a-1", "a", 71), Life(8, "a-1", "a", 72)]
    found = evidence(
        records, [lease(0.5, "a-1", "a"), label(1, "a-1")], {71: [[(0.0, 5.0)]], 72: [[(7.0, math.inf)]]}
    )
    assert found.working == {"a-1": [(1, 5.0), (8, math.inf)]}
    longest = found.longest_unattended
    assert longest is not None
    assert (longest.begin, longest.end) == (5.0, 8)


def test_each_of_two_processes_that_had_one_pid_works_in_its_own_time() -> None:
    records: list[Record] = [
        Life(1, "a-1", "a", 71),
        Begin(4, "a-1", SITES, "sites/blog", "u1", "1", 1),
        Life(8, "b-1", "b", 71),
        Begin(9, "b-1", SITES, "sites/blog", "u1", "2", 1),
    ]
    for ran in itertools.permutations([[(0.0, 5.0)], [(7.0, 15.0)]]):
        found = evidence(records, [], {71: list(ran)})
        assert found.working == {"a-1": [(1, 5.0)], "b-1": [(8, 15.0)]}
        assert [interval.end for interval in found.intervals] == [5.0, 15.0]
        assert found.overlaps == []


def test_an_update_that_waits_longer_than_any_object_stood_alone_is_the_longest() -> None:
    records: list[Record] = [
        Life(1, "a-1", "a", 71),
        Begin(9, "a-1", SITES, "sites/blog", "u1", "1", 2),
        End(9.5, "a-1", SITES, "sites/blog", "u1", "done"),
    ]
    demands = (Demand("u1", "sites/blog", 2, 3.0),)
    found = evidence(
        records, [lease(0.5, "a-1", "a"), label(1, "a-1")], {71: [[(0.0, math.inf)]]}, demands=demands
    )
    longest = found.longest_unattended
    assert longest is not None
    assert longest.length_s == pytest.approx(6.5)


def test_the_document_counts_the_findings_of_both_checks() -> None:
    writes = [
        lease(0.5, "a-1", "a"),
        lease(0.6, "b-1", "b"),
        label(1, "a-1"),
        label(2, "b-1", user="a", before="b-1", code=422),
        label(3, "b-1", user="a", before="b-1"),
    ]
    records: list[Record] = [
        Life(1, "a-1", "a", 71),
        Begin(4, "a-1", SITES, "sites/blog", "u1"),
        Begin(5, "b-1", SITES, "sites/blog", "u1"),
        End(6, "a-1", SITES, "sites/blog", "u1", "done"),
        End(7, "b-1", SITES, "sites/blog", "u1", "done"),
    ]
    shown = document(
        evidence(records, writes, {71: [[(0.0, math.inf)]]}),
        owners={"blog": "b-1", "shop": "", "wiki": "gone-1"},
        live={"a-1": "a", "b-1": "b"},
        stale=["shop"],
        updates=3,
        events=[Event("kill", 1.0, 0, 0, 1)],
    )
    assert (shown.objects, shown.owners, shown.unowned, shown.stale) == (3, {"b-1": 1}, 2, 1)
    assert (shown.overlaps, shown.foreign_writes, shown.refused_writes, shown.reconciles) == (1, 1, 1, 2)
    assert len(faults(shown)) == 4


def test_a_clean_document_needs_a_refused_write() -> None:
    clean = Document(1, 1, {"a": 1}, 0, 0, 0, 0, 1, 0.5, 10, [])
    assert faults(clean) == []
    untried = Document(1, 1, {"a": 1}, 0, 0, 0, 0, 0, 0.5, 10, [])
    assert faults(untried) == ["no write was refused, so the fence was not tested"]


def test_too_little_evidence_is_refused() -> None:
    with pytest.raises(TooFewReconcilesError):
        evidence([], [], {}).require_reconciles(1)
