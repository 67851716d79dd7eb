"""What is given to whom, and on which evidence: the protocol's 6.3, on virtual time.

The real mover, planner and ring; a roster and a server that do what the test says, and note what they were asked.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

import msgspec
import pytest

from kubeio.errors import ServerFailure, TooManyRequests
from kubeio.models import Meta, ObjectKey, ObjectRef, OwnerReference
from kubeio.resource import ApiResource
from sharder.membership.evidence import Evidence
from sharder.membership.shards import ShardState
from sharder.membership.view import AssignmentHold, View, WaitReason
from sharder.planning.decisions import Assign
from sharder.planning.keys import ControllerName
from sharder.planning.planner import CHILDREN_FIRST_S, ControllerSeen
from sharder.ringspec.spec import Pace
from sharder.unowned.pending import AssignmentPriority, PendingObjects
from sharder.writing.assigner import Assigner
from sharder.writing.assignment_queue import (
    FIRST_RETRY_S,
    LONGEST_RETRY_S,
    SOME,
    SPARE,
    AssignmentQueue,
)
from sharder.writing.evidence_reads import APART_S, FEW_WRITES, NEXT_S, VALID_S
from sharder.writing.limiter import WriteLimiter
from sharder.writing.object_writer import WriteOutcome
from sharder.writing.ring_context import RingContext
from tests.sharder.pure.contexts import SitesContext, running
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES, child_of, make_meta, make_view, name_for

pytestmark = pytest.mark.looptime

TWO = make_view(
    {"a-1": ShardState.READY, "b-1": ShardState.READY, "c-dead": ShardState.DEAD}, {"a": "a-1", "b": "b-1"}
)
READ_S = 0.02
OF_A = name_for(TWO, "a")
OF_B = name_for(TWO, "b")


class Roster:
    """Shows *view*; evidence takes `READ_S` and shows *held* as it was when the read began."""

    def __init__(self, view: View, *held: str) -> None:
        self.view = view
        self.held = set(held)
        self.reads: list[float] = []
        self.asked: list[frozenset[str]] = []
        self.read_s = READ_S
        self.fails = 0
        self.unknown: list[str] = []

    async def evidence(self) -> Evidence:
        began = asyncio.get_running_loop().time()
        self.reads.append(began)
        held = frozenset(self.held)
        await asyncio.sleep(self.read_s)
        if self.fails:
            self.fails -= 1
            raise ServerFailure("LIST leases", status=500)
        return Evidence(held, began)

    async def evidence_of(self, names: Collection[str]) -> Evidence:
        self.asked.append(frozenset(names))
        evidence = await self.evidence()
        return Evidence(evidence.held & frozenset(names), evidence.begun_at)

    async def wait_newer(self, version: int) -> View:
        await asyncio.Event().wait()
        return self.view

    def unknown_name_seen(self, name: str) -> None:
        self.unknown.append(name)


@dataclass
class Sent:
    at: float
    name: str
    version: str
    to: str


@dataclass
class Objects:
    """The server's objects: writes are conditional on the version, reads are consistent."""

    objects: dict[str, Meta] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    takes_s: float = 0.0
    answers: dict[str, WriteOutcome] = field(default_factory=dict)

    def put(self, meta: Meta) -> Meta:
        self.objects[meta.name] = meta
        return meta

    async def write_with_slot(self, resource: ApiResource, meta: Meta, decision: object) -> WriteOutcome:
        assert isinstance(decision, Assign)
        now = asyncio.get_running_loop().time()
        self.sent.append(Sent(now, meta.name, meta.resource_version, decision.to))
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        if meta.name in self.answers:
            return self.answers[meta.name]
        current = self.objects[meta.name]
        if current.resource_version != meta.resource_version:
            return WriteOutcome.STALE
        version = str(int(meta.resource_version) + 100)
        self.put(msgspec.structs.replace(meta, labels={KEYS.shard: decision.to}, resource_version=version))
        return WriteOutcome.DONE

    async def read(self, resource: ApiResource, meta: Meta) -> Meta | None:
        return self.objects.get(meta.name)

    async def read_controller(self, controller: ControllerName) -> ControllerSeen:
        found = self.objects.get(controller.name)
        return ControllerSeen(found.labels.get(KEYS.shard)) if found else ControllerSeen(exists=False)


class Lists:
    """The lists of the unowned watches, as an assigner sees them."""

    def __init__(self) -> None:
        self.knows_controlled = True
        self.looked = 0

    def resume_lists(self) -> None:
        self.looked += 1


class Ring(SitesContext):
    """What a mover knows of its ring: the part of `sharder.writing.ring_context.Duty` that it reads."""

    def __init__(self, membership: Roster, *, pace: Pace | None = None) -> None:
        super().__init__(membership)
        self.spec = dataclasses.replace(self.spec, pace=pace)
        self.membership = membership
        self.objects = Objects()
        self.pending = PendingObjects()
        self.limiter = WriteLimiter(clock=self.clock, rng=self.rng)
        self.queue, self.lists = AssignmentQueue(cast(RingContext, self), self.pending), Lists()
        self.assigner = Assigner(cast(RingContext, self), self.pending, self.queue, self.lists, self.limiter)

    def shows(self, meta: Meta, resource: ApiResource = WEBSITES) -> None:
        """The unowned watch shows *meta*."""
        work = ObjectRef(resource.group_resource, ObjectKey(meta.namespace, meta.name))
        priority = AssignmentPriority.ORPHANED if KEYS.shard in meta.labels else AssignmentPriority.NEW
        self.pending.put(work, meta, at=self.clock.now(), priority=priority)
        self.queue.enqueue(work)

    def owner(self, name: str) -> str | None:
        return self.objects.objects[name].labels.get(KEYS.shard)


@asynccontextmanager
async def moving(membership: Roster, *, pace: Pace | None = None) -> AsyncIterator[Ring]:
    ring = Ring(membership, pace=pace)
    async with running(ring.states, ring.assigner.run()):
        yield ring


@asynccontextmanager
async def no_turns(ring: Ring) -> AsyncIterator[None]:
    """Nothing is written meanwhile."""
    turns = ring.limiter.allowed(Pace.URGENT)
    for _ in range(turns):
        await ring.limiter.enter(Pace.URGENT)
    yield
    for _ in range(turns):
        ring.limiter.leave()


async def test_nothing_is_written_for_a_name_that_evidence_does_not_show_held() -> None:
    """The view lags: what a consistent read shows counts."""
    async with moving(Roster(TWO, "b-1")) as ring:
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(5)
        assert ring.objects.sent == []
        ring.membership.held.add("a-1")
        await asyncio.sleep(2)
        assert ring.owner(OF_A) == "a-1"


async def test_without_evidence_nothing_is_written_until_there_is_some() -> None:
    membership = Roster(TWO, "a-1", "b-1")
    membership.fails = 3
    async with moving(membership) as ring:
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(5)
        assert len(membership.reads) == 4
        assert [sent.to for sent in ring.objects.sent] == ["a-1"]


async def test_evidence_begins_after_the_version_was_read_and_is_not_kept() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        for number in range(300):
            ring.shows(ring.objects.put(make_meta(f"first-{number}")))
        shown_at = ring.clock.now()
        await asyncio.sleep(0.15)
        assert len(ring.objects.sent) == 300
        assert [began >= shown_at for began in ring.membership.reads] == [True]
        ring.membership.held.clear()
        ring.shows(ring.objects.put(make_meta("second")))
        await asyncio.sleep(1)
        assert ring.owner("second") is None, "what was held before says nothing"


async def test_for_few_objects_only_their_owners_leases_are_read() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(1)
        assert ring.membership.asked == [{"a-1"}]
        assert ring.owner(OF_A) == "a-1"
        for number in range(FEW_WRITES + 1):
            ring.shows(ring.objects.put(make_meta(f"site-{number}")))
        await asyncio.sleep(1)
        assert len(ring.membership.asked) == 1, "many: all Leases in a list"
        assert len(ring.objects.sent) == FEW_WRITES + 2


async def test_where_a_controller_tells_the_owner_that_owners_lease_is_read() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.objects.put(make_meta(OF_A, shard="b-1"))
        child = ring.objects.put(msgspec.structs.replace(child_of(OF_A).meta, uid="child"))
        ring.shows(child, CONFIGMAPS)
        await asyncio.sleep(0.1)
        assert ring.membership.asked == [{"b-1"}]
        assert [(sent.name, sent.to) for sent in ring.objects.sent] == [(child.name, "b-1")]


async def test_objects_that_come_one_after_the_other_share_reads() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.membership.read_s = 0.001
        for number in range(100):
            ring.shows(ring.objects.put(make_meta(f"site-{number}")))
            await asyncio.sleep(0.004)
        assert len(ring.objects.sent) >= 90
        assert all(later - one >= APART_S - 0.002 for one, later in pairwise(ring.membership.reads))


async def busy(ring: Ring, count: int) -> list[float]:
    """Have *count* objects written by a server that takes 20 ms for each; the instants of the writes."""
    ring.objects.takes_s = 0.02
    limit = ring.limiter.allowed(Pace.URGENT)
    for number in range(count):
        ring.shows(ring.objects.put(make_meta(f"site-{number}")))
    await asyncio.sleep(count / limit * 0.02 + 1)
    assert len(ring.objects.sent) == count
    return [sent.at for sent in ring.objects.sent]


async def test_every_write_begins_within_a_quarter_of_a_second_of_a_read_that_was_answered() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        for at in await busy(ring, 800):
            ages = [at - began for began in ring.membership.reads if began + READ_S <= at]
            assert min(ages) <= READ_S + VALID_S


async def test_without_a_younger_read_the_writes_stop() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.02
        for number in range(800):
            ring.shows(ring.objects.put(make_meta(f"site-{number}")))
        began = ring.clock.now()
        await asyncio.sleep(0.1)
        ring.membership.read_s = 5.0
        await asyncio.sleep(4)
        assert 0 < len(ring.objects.sent) < 800
        assert max(sent.at for sent in ring.objects.sent) - began <= READ_S + VALID_S


@pytest.mark.parametrize("read_s", [0.5, 4.0])
async def test_a_server_slow_to_show_its_leases_delays_the_writes_and_never_stops_them(read_s: float) -> None:
    membership = Roster(TWO, "a-1", "b-1")
    membership.read_s = read_s
    async with moving(membership) as ring:
        ring.objects.takes_s = read_s
        for number in range(40):
            ring.shows(ring.objects.put(make_meta(f"site-{number}")))
        await asyncio.sleep(40 * read_s)
        assert len(ring.objects.sent) == 40


async def test_evidence_from_before_a_suspension_is_void() -> None:
    membership = Roster(TWO, "a-1", "b-1")
    membership.read_s = 3600.0
    async with moving(membership) as ring:
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(3)
        membership.held.clear()
        membership.read_s = READ_S
        await asyncio.sleep(3700)
        assert ring.objects.sent == []


async def test_the_next_read_runs_while_the_writes_of_the_last_one_go_out() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        instants = await busy(ring, 800)
        gaps = [later - earlier for earlier, later in pairwise(instants)]
        assert max(gaps) <= 0.021, "the writes never wait for evidence"
        assert len(ring.membership.reads) <= 2 + (instants[-1] - instants[0]) / NEXT_S


async def test_on_a_slow_server_reads_overlap_and_writes_do_not_pause() -> None:
    membership = Roster(TWO, "a-1", "b-1")
    membership.read_s = 0.6
    async with moving(membership) as ring:
        instants = await busy(ring, 800)
        gaps = [later - earlier for earlier, later in pairwise(instants)]
        assert max(gaps) <= 0.05, "some read is always young enough"
        assert len(ring.membership.reads) <= 10 + (instants[-1] - instants[0]) / NEXT_S


async def test_new_objects_go_before_those_of_the_dead() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.02
        async with no_turns(ring):
            for number in range(50):
                ring.shows(ring.objects.put(make_meta(f"orphan-{number}", shard="c-dead")))
            await asyncio.sleep(0.1)
            for number in range(5):
                ring.shows(ring.objects.put(make_meta(f"new-{number}")))
        await asyncio.sleep(10)
        order = [sent.name for sent in ring.objects.sent]
        assert len(order) == 55
        in_hand = ring.limiter.allowed(Pace.URGENT) + SPARE
        assert max(order.index(f"new-{number}") for number in range(5)) < in_hand + 7


async def test_an_object_made_anew_while_its_first_assignment_is_written_has_one_worker() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 1.0
        old = ring.objects.put(make_meta(OF_A))
        named = ObjectRef(WEBSITES.group_resource, old.key)
        ring.pending.put(named, old, at=ring.clock.now(), priority=AssignmentPriority.BACKLOG)
        ring.queue.enqueue(named)
        await asyncio.sleep(0.5)
        anew = ring.objects.put(msgspec.structs.replace(old, uid="anew", resource_version="9"))
        ring.pending.drop(ring.pending.name(named))
        ring.shows(anew)
        await asyncio.sleep(5)
        first, second = ring.objects.sent
        assert (first.version, second.version) == ("7", "9")
        assert second.at - first.at >= 1.0
        assert ring.owner(OF_A) == "a-1"
        assert len(ring.pending) == 0


async def test_writes_that_fail_are_tried_ever_more_rarely_and_a_success_begins_anew() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.objects.answers[OF_A] = WriteOutcome.LATER
        meta = ring.objects.put(make_meta(OF_A))
        ring.shows(meta)
        await asyncio.sleep(60)
        gaps = [later.at - one.at for one, later in pairwise(ring.objects.sent)]
        assert gaps[0] <= FIRST_RETRY_S + 0.1
        assert gaps[-1] == pytest.approx(LONGEST_RETRY_S, rel=0.25)
        del ring.objects.answers[OF_A]
        await asyncio.sleep(15)
        assert ring.owner(OF_A) == "a-1"
        ring.objects.answers[OF_A] = WriteOutcome.LATER
        ring.objects.sent.clear()
        ring.shows(ring.objects.put(at_version(500, meta)))
        await asyncio.sleep(1)
        assert ring.objects.sent[1].at - ring.objects.sent[0].at <= FIRST_RETRY_S + 0.1


async def test_a_new_object_goes_before_a_backlog() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.02
        for number in range(800):
            meta = ring.objects.put(make_meta(f"site-{number}"))
            work = ObjectRef(WEBSITES.group_resource, meta.key)
            ring.pending.put(work, meta, at=ring.clock.now(), priority=AssignmentPriority.BACKLOG)
            ring.queue.enqueue(work)
        await asyncio.sleep(0.5)
        asked_at = ring.clock.now()
        ring.shows(ring.objects.put(make_meta("new")))
        await asyncio.sleep(0.5)
        [sent] = [sent for sent in ring.objects.sent if sent.name == "new"]
        assert sent.at - asked_at <= NEXT_S + READ_S + 0.021


@pytest.mark.parametrize(
    ("priority", "asked", "pace"),
    [
        (AssignmentPriority.NEW, None, Pace.URGENT),
        (AssignmentPriority.ORPHANED, None, Pace.URGENT),
        (AssignmentPriority.BACKLOG, None, Pace.BACKGROUND),
        (AssignmentPriority.NEW, Pace.NORMAL, Pace.NORMAL),
        (AssignmentPriority.BACKLOG, Pace.URGENT, Pace.URGENT),
    ],
)
async def test_objects_without_a_worker_are_urgent_a_backlog_is_polite_unless_the_ring_says_otherwise(
    priority: AssignmentPriority, asked: Pace | None, pace: Pace
) -> None:
    async with moving(Roster(TWO, "a-1", "b-1"), pace=asked) as ring:
        ring.objects.takes_s = 0.1
        for number in range(20):
            meta = ring.objects.put(make_meta(f"site-{number}"))
            work = ObjectRef(WEBSITES.group_resource, meta.key)
            ring.pending.put(work, meta, at=ring.clock.now(), priority=priority)
            ring.queue.enqueue(work)
        await asyncio.sleep(0.1)
        assert ring.limiter.in_flight == ring.limiter.allowed(pace)
    assert ring.limiter.allowed(Pace.URGENT) > ring.limiter.allowed(Pace.NORMAL)


async def test_nothing_is_read_while_nothing_is_to_be_written() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        await asyncio.sleep(60)
        assert ring.membership.reads == []
        ring.shows(ring.objects.put(make_meta("one")))
        await asyncio.sleep(60)
        assert len(ring.membership.reads) == 1


async def test_while_the_server_wants_a_pause_nothing_is_written_and_no_evidence_gathered() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.limiter.failed(0.01, TooManyRequests("PATCH", status=429, retry_after_s=20.0))
        ring.shows(ring.objects.put(make_meta("one")))
        await asyncio.sleep(19)
        assert (ring.membership.reads, ring.objects.sent) == ([], [])
        await asyncio.sleep(4)
        assert len(ring.objects.sent) == 1


async def test_an_object_that_may_not_be_written_stays_until_it_is_asked_for_again() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.objects.answers["one"] = WriteOutcome.DENIED
        ring.shows(ring.objects.put(make_meta("one")))
        await asyncio.sleep(60)
        assert len(ring.objects.sent) == 1
        assert len(ring.pending) == 1
        del ring.objects.answers["one"]
        ring.queue.enqueue_some(WEBSITES.group_resource, "elsewhere")
        ring.queue.enqueue_some(WEBSITES.group_resource, "ns")
        await asyncio.sleep(1)
        assert [sent.name for sent in ring.objects.sent] == ["one", "one"]
        assert len(ring.pending) == 0


async def test_a_closed_resource_is_tried_with_other_objects_each_time() -> None:
    """Those that came first may be the ones that cannot be written."""
    names = [f"site-{number}" for number in range(3 * SOME)]
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.objects.answers |= dict.fromkeys(names, WriteOutcome.DENIED)
        for name in names:
            ring.shows(ring.objects.put(make_meta(name)))
        await asyncio.sleep(10)
        ring.objects.sent.clear()
        for _ in range(20):
            ring.queue.enqueue_some(WEBSITES.group_resource, "ns")
            await asyncio.sleep(1)
        assert len(ring.objects.sent) == 20 * SOME
        assert {sent.name for sent in ring.objects.sent} == set(names)


async def test_a_write_that_met_another_version_is_decided_anew_with_new_evidence() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.shows(make_meta(OF_A))
        ring.objects.put(msgspec.structs.replace(make_meta(OF_A), resource_version="9"))
        await asyncio.sleep(5)
        assert [(sent.version, sent.to) for sent in ring.objects.sent] == [("7", "a-1"), ("9", "a-1")]
        assert len(ring.membership.reads) == 2
        assert ring.membership.reads[1] >= ring.objects.sent[0].at


async def test_a_version_that_comes_while_the_leases_are_read_needs_another_read() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        meta = ring.objects.put(make_meta(OF_A))
        ring.shows(meta)
        await asyncio.sleep(READ_S / 2)
        changed_at = ring.clock.now()
        ring.shows(ring.objects.put(at_version(9, meta)))
        await asyncio.sleep(5)
        assert [sent.version for sent in ring.objects.sent] == ["9"]
        assert ring.membership.reads[-1] >= changed_at


async def test_a_version_that_comes_before_its_turn_to_write_needs_another_read() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        meta = ring.objects.put(make_meta(OF_A))
        async with no_turns(ring):
            ring.shows(meta)
            await asyncio.sleep(READ_S * 2)
            changed_at = ring.clock.now()
            ring.shows(ring.objects.put(at_version(9, meta)))
        await asyncio.sleep(5)
        assert [sent.version for sent in ring.objects.sent] == ["9"]
        assert ring.membership.reads[-1] >= changed_at


async def test_a_turn_that_comes_late_needs_a_younger_read() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        async with no_turns(ring):
            ring.shows(ring.objects.put(make_meta(OF_A)))
            await asyncio.sleep(3)
            ring.membership.held.clear()
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        assert ring.objects.sent == []


async def test_a_turn_that_comes_late_is_used_under_the_ring_of_then() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        async with no_turns(ring):
            ring.shows(ring.objects.put(make_meta(OF_A)))
            await asyncio.sleep(3)
            both_live = {"a-1": ShardState.READY, "b-1": ShardState.READY}
            ring.membership.view = replace(make_view(both_live, {"b": "b-1"}), version=TWO.version + 1)
        await asyncio.sleep(1)
        assert [sent.to for sent in ring.objects.sent] == ["b-1"]


async def test_an_object_made_anew_while_its_name_was_read_is_not_forgotten() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        anew = msgspec.structs.replace(make_meta(OF_A), uid="anew", resource_version="9")

        async def gone(*_: object) -> None:
            ring.shows(ring.objects.put(anew))  # the watch is quicker than the answer

        ring.objects.read = gone  # type: ignore[method-assign, assignment]
        ring.objects.put(at_version(8, make_meta(OF_A)))
        ring.shows(make_meta(OF_A))
        await asyncio.sleep(5)
        assert [sent.version for sent in ring.objects.sent] == ["7", "9"]
        assert ring.owner(OF_A) == "a-1"


async def test_when_all_that_was_to_be_done_has_gone_the_next_page_is_asked_for() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        meta = make_meta(OF_A)
        ring.shows(meta)
        ring.pending.drop(ring.pending.name(ObjectRef(WEBSITES.group_resource, meta.key)))
        await asyncio.sleep(5)
        assert ring.lists.looked > 0
        assert ring.queue.to_do() == 0


async def test_an_object_that_somebody_owns_by_now_is_left_to_it() -> None:
    async with moving(Roster(TWO, "a-1", "b-1")) as ring:
        ring.shows(make_meta(OF_A))
        owned = msgspec.structs.replace(make_meta(OF_A, shard="b-1"), resource_version="9")
        ring.objects.put(owned)
        await asyncio.sleep(5)
        assert len(ring.objects.sent) == 1
        assert ring.owner(OF_A) == "b-1"
        assert len(ring.pending) == 0


async def dead_tree(ring: Ring) -> tuple[Meta, Meta]:
    """A site and its page that carry a dead name; the watch has shown the page, and nobody looked at it yet."""
    parent = ring.objects.put(make_meta(OF_A, shard="c-dead"))
    child = ring.objects.put(msgspec.structs.replace(child_of(OF_A, shard="c-dead").meta, uid="child"))
    work = ObjectRef(CONFIGMAPS.group_resource, ObjectKey("ns", child.name))
    ring.pending.put(work, child, at=ring.clock.now())
    ring.shows(parent)
    return parent, child


async def test_a_dead_shards_parent_goes_once_its_children_went() -> None:
    async with moving(Roster(replace(TWO, at=0.0), "a-1", "b-1")) as ring:
        parent, child = await dead_tree(ring)
        await asyncio.sleep(0.5)
        assert ring.objects.sent == [], "its child still carries the dead name"
        ring.shows(child, CONFIGMAPS)
        ring.queue.enqueue(ObjectRef(CONFIGMAPS.group_resource, ObjectKey("ns", child.name)))
        await asyncio.sleep(1)
        assert [sent.name for sent in ring.objects.sent] == [child.name, parent.name]


async def test_a_dead_shards_parent_goes_after_ten_seconds_anyway_though_membership_stands_still() -> None:
    async with moving(Roster(replace(TWO, at=0.0), "a-1", "b-1")) as ring:
        began = ring.clock.now()
        parent, _ = await dead_tree(ring)
        await asyncio.sleep(30)
        assert [sent.name for sent in ring.objects.sent] == [parent.name]
        assert ring.objects.sent[0].at - began == pytest.approx(CHILDREN_FIRST_S, abs=0.3)
        assert len(ring.membership.reads) <= 3, "it is not asked about in a circle"


def at_version(version: int, meta: Meta) -> Meta:
    return msgspec.structs.replace(meta, resource_version=str(version))


def heard_of_at(version: int) -> View:
    """The dead shard's last renewal was *version*."""
    dead = replace(TWO.shards["c-dead"], renewal_before=version)
    return replace(TWO, at=0.0, shards={**TWO.shards, "c-dead": dead})


async def test_what_changed_since_its_owner_was_heard_of_goes_before_the_others_with_its_children() -> None:
    async with moving(Roster(heard_of_at(50), "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.05
        unchanged = [f"other-{number}" for number in range(300)]
        for name in unchanged:
            ring.shows(ring.objects.put(at_version(40, make_meta(name, shard="c-dead"))))
        child = ring.objects.put(msgspec.structs.replace(child_of(OF_A, shard="c-dead").meta, uid="child"))
        ring.shows(child, CONFIGMAPS)
        ring.shows(ring.objects.put(at_version(60, make_meta(OF_A, shard="c-dead"))))
        await asyncio.sleep(20)
        order = [sent.name for sent in ring.objects.sent]
        assert sorted(order) == sorted([*unchanged, child.name, OF_A])
        assert order.index(child.name) < order.index(OF_A) < 100


async def test_what_changes_after_a_wait_of_ten_seconds_goes_first_and_its_children_with_it() -> None:
    async with moving(Roster(heard_of_at(50), "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.05
        parent = ring.objects.put(at_version(40, make_meta(OF_A, shard="c-dead")))
        others = [f"other-{number}" for number in range(2000)]
        for name in others:
            ring.shows(ring.objects.put(at_version(40, make_meta(name, shard="c-dead"))))
        ring.shows(parent)
        child = ring.objects.put(msgspec.structs.replace(child_of(OF_A, shard="c-dead").meta, uid="child"))
        ring.shows(child, CONFIGMAPS)
        await asyncio.sleep(CHILDREN_FIRST_S + 1)
        done = len(ring.objects.sent)
        assert OF_A not in [sent.name for sent in ring.objects.sent], "others are before it"
        ring.shows(ring.objects.put(at_version(60, parent)))
        await asyncio.sleep(1)
        order = [sent.name for sent in ring.objects.sent][done:]
        assert {OF_A, child.name} <= set(order)


async def test_what_is_controlled_goes_first_if_its_wanted_controller_went_before_it_was_known() -> None:
    async with moving(Roster(heard_of_at(50), "a-1", "b-1")) as ring:
        ring.lists.knows_controlled = False
        ring.shows(ring.objects.put(at_version(60, make_meta(OF_A, shard="c-dead"))))
        await asyncio.sleep(CHILDREN_FIRST_S + 2)
        assert [sent.name for sent in ring.objects.sent] == [OF_A]
        ring.objects.takes_s = 0.05
        pages = []
        for number in range(300):
            ring.objects.put(make_meta(f"other-{number}", shard="a-1"))
            page = child_of(f"other-{number}", shard="c-dead").meta
            pages.append(
                ring.objects.put(at_version(40, msgspec.structs.replace(page, uid=f"page-{number}")))
            )
        for page in pages:
            ring.shows(page, CONFIGMAPS)
        child = ring.objects.put(msgspec.structs.replace(child_of(OF_A, shard="c-dead").meta, uid="child"))
        ring.shows(child, CONFIGMAPS)
        await asyncio.sleep(20)
        assert [sent.name for sent in ring.objects.sent].index(child.name) < 100


MIN_MEMBERS = make_view({"a-1": ShardState.READY}, {"a": "a-1"}, hold=AssignmentHold(WaitReason.MIN_MEMBERS))


@pytest.mark.parametrize(("view", "shard"), [(MIN_MEMBERS, None), (heard_of_at(5), "c-dead")])
async def test_an_object_that_says_it_controls_itself_costs_no_more_than_others(
    view: View, shard: str | None
) -> None:
    async with moving(Roster(view, "a-1", "b-1")) as ring:
        itself = OwnerReference("example.com/v1", "Website", OF_A, f"uid-of-{OF_A}", controller=True)
        ring.shows(ring.objects.put(make_meta(OF_A, shard=shard, owner_references=[itself])))
        await asyncio.sleep(CHILDREN_FIRST_S - 1)
        assert len(ring.membership.reads) <= 2


async def test_objects_of_a_dead_owner_hold_no_list_back() -> None:
    async with moving(Roster(TWO)) as ring:  # nobody is held: nothing is written
        for number in range(3):
            ring.shows(ring.objects.put(make_meta(f"orphan-{number}", shard="c-dead")))
        assert (ring.queue.to_do(), ring.queue.backlog()) == (3, 0)
        never_owned = make_meta("never-owned")
        ring.pending.put(
            ObjectRef(WEBSITES.group_resource, ObjectKey("ns", never_owned.name)),
            never_owned,
            at=0.0,
            priority=AssignmentPriority.BACKLOG,
        )
        ring.queue.enqueue(ObjectRef(WEBSITES.group_resource, ObjectKey("ns", never_owned.name)))
        assert (ring.queue.to_do(), ring.queue.backlog()) == (4, 1)


async def test_forged_names_cost_neither_evidence_nor_turns() -> None:
    """However often an object is relabelled: a new object's owner is still found by one read of one Lease."""
    membership = Roster(TWO, "a-1", "b-1")
    async with moving(membership) as ring:
        forged = [make_meta(f"forged-{number}", shard=f"nobody-{number}") for number in range(1000)]
        for meta in forged:
            ring.shows(ring.objects.put(meta))
        for version in range(100):
            ring.shows(msgspec.structs.replace(forged[0], resource_version=str(100 + version)))
            await asyncio.sleep(0.005)
        ring.queue.enqueue_all()
        assert ring.queue.to_do() == 0
        await asyncio.sleep(5)
        assert membership.reads == []
        assert {f"nobody-{number}" for number in range(1000)} == set(membership.unknown)
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(1)
        assert membership.asked == [frozenset({"a-1"})]
        assert ring.owner(OF_A) == "a-1"
