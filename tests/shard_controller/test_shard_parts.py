"""Smaller parts of the runtime: cache, trees, evidence, acknowledgements, Lease, unanswered requests, journal."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubeio.clock import ManualClock
from kubeio.decoding import object_from
from kubeio.errors import NotFound, ServerFailure, Unreachable
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import Lease, LeaseSpec, Meta, ObjectKey
from kubeio.resource import ApiResource
from kubeio.shard.handoff import Directed, KeepOwner, Plain, acknowledgement, is_held
from kubeio.shard.lease_validity import LeaseValidity, Phase
from kubeio.watches.store import Change
from shard_controller.declare.request import Request
from shard_controller.objects.caches import Caches, ResourceCache
from shard_controller.observe.journal import FileJournal
from shard_controller.shard.ownership import ShardOwnership
from shard_controller.shard.writer import Unanswered
from tests.kubeio.virtual import LoopClock
from tests.shard_controller.objects import KEYS, reference

TREES = ApiResource("example.com", "v1", "trees", "Tree", namespaced=False)
BRANCHES = ApiResource("example.com", "v1", "branches", "Branch")
LEAVES = ApiResource("", "v1", "leaves", "Leaf")


def caches() -> Caches:
    return Caches(
        ResourceCache(TREES),
        [ResourceCache(BRANCHES), ResourceCache(LEAVES)],
    )


def put(
    kind: ResourceCache, name: str, *, version: int = 1, parent: tuple[ApiResource, str] | None = None
) -> Meta:
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "namespace": "ns" if kind.resource.namespaced else "",
        "ownerReferences": [reference(parent[1], of=parent[0])] if parent else [],
    }
    found = object_from(json.dumps({"metadata": metadata}).encode())
    kind.store.learn(found)
    return found.meta


def test_a_tree_is_given_up_from_its_leaves_to_its_root() -> None:
    known = caches()
    tree, branches, leaves = known
    root = put(tree, "oak")
    put(branches, "low", parent=(TREES, "oak"))
    leaf = put(leaves, "green", parent=(BRANCHES, "low"))
    put(leaves, "stray", parent=(BRANCHES, "elsewhere"))
    assert [meta.name for _, meta in known.tree(tree, root)] == ["green", "low"]
    assert known.root(leaves, leaf) == Request("trees.example.com", ObjectKey("", "oak")), "cluster-scoped"


def test_the_root_of_a_child_is_its_controller_even_if_that_is_not_in_the_cache() -> None:
    known = caches()
    branch = put(known.controlled[0], "low", parent=(TREES, "oak"))
    assert known.root(known.controlled[0], branch) == Request("trees.example.com", ObjectKey("", "oak"))


def test_an_object_without_a_controller_is_its_own_root() -> None:
    known = caches()
    branch = put(known.controlled[0], "low")
    assert known.root(known.controlled[0], branch) == Request("branches.example.com", ObjectKey("ns", "low"))


def test_a_cycle_of_owners_ends() -> None:
    known = caches()
    branches, leaves = known.controlled
    put(branches, "a", parent=(LEAVES, "b"))
    leaf = put(leaves, "b", parent=(BRANCHES, "a"))
    assert known.root(leaves, leaf).key.name in ("a", "b")
    assert {meta.name for _, meta in known.tree(leaves, leaf)} == {"a"}


GREEN = ObjectKey("ns", "green")
WRITTEN = object_from(b'{"metadata": {"name": "green", "namespace": "ns", "resourceVersion": "7"}}')


def version_of(kind: ResourceCache) -> str:
    found = kind.get(GREEN)
    return found.meta.resource_version if found else ""


def test_own_writes_are_read_until_the_watch_shows_them() -> None:
    kind = ResourceCache(LEAVES)
    put(kind, "green", version=5)
    kind.wrote(WRITTEN)
    assert version_of(kind) == "7"
    assert kind.meta(GREEN) == WRITTEN.meta
    known = kind.store.meta(GREEN)
    kind.shown(Change(GREEN, known, Meta(name="green", namespace="ns", resource_version="6")))
    assert version_of(kind) == "7"
    kind.shown(Change(GREEN, known, None))
    assert version_of(kind) == "5"


def test_a_removal_that_is_older_than_an_own_write_leaves_it() -> None:
    """Another deleted the object, and it was made anew before the watch showed that."""
    kind = ResourceCache(LEAVES)
    put(kind, "green", version=5)
    kind.wrote(WRITTEN, is_new=True)
    removed = kind.store.remove(GREEN, as_of="6")
    assert removed is not None
    kind.shown(Change(GREEN, removed.meta, None, "6"))
    assert version_of(kind) == "7"
    kind.shown(Change(GREEN, None, None, "8"))
    assert version_of(kind) == ""


def test_an_answer_that_comes_after_the_object_left_brings_it_not_back() -> None:
    kind = ResourceCache(LEAVES)
    put(kind, "green", version=5)
    kind.store.remove(GREEN)
    kind.wrote(WRITTEN)
    assert kind.get(GREEN) is None
    kind.wrote(WRITTEN, is_new=True)
    assert version_of(kind) == "7"


@pytest.mark.parametrize("streamed", [(0, 6, 6), (7, 6, 7)], ids=["lags", "is under way"])
def test_an_own_write_is_read_while_the_watch_has_not_passed_it_for_certain(
    streamed: tuple[int, ...],
) -> None:
    kind = ResourceCache(LEAVES)
    put(kind, "green", version=5)
    kind.wrote(WRITTEN)
    for version in streamed:
        kind.forget(version)
        assert version_of(kind) == "7"


def test_an_own_write_that_the_watch_never_shows_is_forgotten_when_it_has_passed() -> None:
    kind = ResourceCache(LEAVES)
    kind.wrote(WRITTEN, is_new=True)
    assert kind.forget(7) == []
    assert kind.forget(8) == [WRITTEN.meta]
    assert kind.get(GREEN) is None


def test_an_own_write_that_changed_nothing_is_not_gone_when_the_watch_has_passed_it() -> None:
    kind = ResourceCache(LEAVES)
    put(kind, "green", version=7)
    kind.wrote(WRITTEN)
    assert (kind.forget(7), kind.forget(8)) == ([], [])
    assert version_of(kind) == "7"


# -- acknowledgements

SEEN = {"uid": "u-1", "resourceVersion": "7"}
DRAINED = Meta(name="blog", uid="u-1", resource_version="7", labels={KEYS.shard: "a-1", KEYS.drain: "b-2"})


@pytest.mark.parametrize(
    ("handoff", "changes"),
    [
        (
            Directed("b-2"),
            {"labels": {KEYS.shard: "b-2", KEYS.drain: None}, "annotations": {KEYS.turn: "7"}},
        ),
        (Plain(), {"labels": {KEYS.shard: None, KEYS.drain: None}, "annotations": {KEYS.turn: None}}),
        (KeepOwner(), {"labels": {KEYS.drain: None}}),
    ],
)
def test_an_acknowledgement_tests_the_version_and_gives_it_to_the_next_owner_as_its_turn(
    handoff: Directed | Plain | KeepOwner, changes: dict[str, object]
) -> None:
    patch = acknowledgement(DRAINED, handoff, KEYS)
    assert json.loads(patch.encode()) == {"metadata": {**SEEN, **changes}}


@dataclass
class SlowLeases:
    """Leases whose reads take a second of virtual time; `holder` is what the next read finds."""

    holder: str | None = "b-2"
    ring: str = KEYS.ring
    failure: Exception | None = None
    reads: int = 0

    async def get(self, name: str) -> Lease:
        self.reads += 1
        found = self.holder
        await asyncio.sleep(1.0)
        if self.failure is not None:
            raise self.failure
        if found is None:
            raise NotFound("GET lease", status=404)
        labels = {KEYS.ring_label: self.ring}
        return Lease(metadata=Meta(name=name, labels=labels), spec=LeaseSpec(holder_identity=found))


async def held(leases: SlowLeases) -> bool:
    return await is_held(SharedLeaseReads(leases), "b-2", KEYS)


@pytest.mark.looptime
async def test_evidence_is_a_read_that_began_after_the_question() -> None:
    leases = SlowLeases()
    reads = SharedLeaseReads(leases)
    first = asyncio.create_task(is_held(reads, "b-2", KEYS))
    await asyncio.sleep(0.5)
    leases.holder = None  # it dies while the first read is under way
    later = [asyncio.create_task(is_held(reads, "b-2", KEYS)) for _ in range(20)]
    assert await first is True
    assert await asyncio.gather(*later) == [False] * 20
    assert leases.reads == 2


@pytest.mark.looptime
async def test_without_an_answer_there_is_no_evidence() -> None:
    with pytest.raises(ServerFailure):
        await held(SlowLeases(failure=ServerFailure("GET lease", status=500)))


@pytest.mark.looptime
async def test_a_released_lease_is_not_held() -> None:
    assert not await held(SlowLeases(holder=""))


@pytest.mark.looptime
async def test_a_lease_of_another_ring_is_no_evidence() -> None:
    assert not await held(SlowLeases(ring="another"))


# -- the right to work


@pytest.mark.looptime
async def test_work_stops_by_the_clock_and_goes_on_without_a_message() -> None:
    clock = LoopClock()
    validity = LeaseValidity(duration_s=15, sent_at=clock.now())
    ownership = ShardOwnership(KEYS, "b-2", validity=validity, clock=clock)
    await asyncio.sleep(10)
    assert not ownership.is_held()
    assert not ownership.start()
    asyncio.get_running_loop().call_later(3, lambda: validity.renewed(sent_at=clock.now()))
    before = clock.now()
    await ownership.wait_held()
    assert 3 <= clock.now() - before <= 4.6
    assert ownership.start()
    assert validity.running == 1


@pytest.mark.looptime
async def test_work_goes_on_at_once_when_the_heartbeat_says_so() -> None:
    clock = LoopClock()
    validity = LeaseValidity(duration_s=600, sent_at=clock.now() - 500)
    ownership = ShardOwnership(KEYS, "b-2", validity=validity, clock=clock)

    def held_again() -> None:
        validity.renewed(sent_at=clock.now())
        ownership.follow(Phase.HELD)

    asyncio.get_running_loop().call_later(3, held_again)
    before = clock.now()
    await ownership.wait_held()
    assert clock.now() - before == pytest.approx(3, abs=0.01)


# -- requests without answers


async def test_a_request_is_unsettled_while_it_is_under_way() -> None:
    unanswered = Unanswered(ManualClock())
    async with unanswered.request():
        assert unanswered.settled_in_s() is None
    assert unanswered.settled_in_s() == 0


@pytest.mark.parametrize(("maybe_done", "settled_in_s"), [(True, 50.0), (False, 0.0)])
async def test_a_lost_answer_is_settled_a_minute_after_it_was_sent(
    maybe_done: bool, settled_in_s: float
) -> None:
    clock = ManualClock()
    unanswered = Unanswered(clock)
    with pytest.raises(Unreachable):
        async with unanswered.request():
            raise Unreachable("PATCH", "reset", maybe_done=maybe_done)
    clock.advance(10)
    assert unanswered.settled_in_s() == pytest.approx(settled_in_s)
    clock.advance(51)
    assert unanswered.settled_in_s() == 0


async def test_a_create_that_waited_to_be_sent_is_settled_a_minute_after_its_answer_was_lost() -> None:
    clock = ManualClock()
    unanswered = Unanswered(clock)
    with suppress(Unreachable):
        async with unanswered.request(creates_for="u-1"):
            clock.advance(29)  # for a connection
            raise Unreachable("POST", "reset", maybe_done=True)
    assert unanswered.settled_in_s() == unanswered.creates_settled_in_s("u-1") == 60
    assert unanswered.creates_settled_in_s("u-2") == 0


async def test_creates_that_are_settled_take_no_memory_while_others_are_lost() -> None:
    clock = ManualClock()
    unanswered = Unanswered(clock)
    uids = [f"uid-{number}" for number in range(10_000)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for uid in uids:
            with suppress(Unreachable):
                async with unanswered.request(creates_for=uid):
                    raise Unreachable("POST", "reset", maybe_done=True)
            clock.advance(1)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert unanswered.creates_settled_in_s(uids[-1]) == 59
    assert after - before < 100_000, "and 400 KB if each uid stays"


def test_the_journal_has_a_line_per_record(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(path, shard="a-1", clock=ManualClock(5.0))
    meta = Meta(name="blog", namespace="ns", uid="u", resource_version="7", generation=2)
    blog = Request("websites.example.com", meta.key)
    journal.began(blog, meta)
    journal.ended(blog, "done", None, 0.0, 0.0)
    journal.close()
    begin, end = (json.loads(line) for line in path.read_text().splitlines())
    assert begin == {
        "e": "begin",
        "t": 5.0,
        "shard": "a-1",
        "resource": "websites.example.com",
        "key": "ns/blog",
        "uid": "u",
        "rv": "7",
        "gen": 2,
    }
    assert end == {**begin, "e": "end", "outcome": "done"}
