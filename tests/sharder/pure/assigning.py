"""The real assigner, planner and ring over a membership and a server that do what the test says, and note requests."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import msgspec

from kubeio.errors import ServerFailure
from kubeio.models import Meta, ObjectKey, ObjectRef
from kubeio.resource import ApiResource
from sharder.membership.lease_reads import Evidence
from sharder.membership.shards import ShardState
from sharder.membership.view import View
from sharder.moving.missent import MissentObjects
from sharder.planning.decisions import Assign, Strip
from sharder.planning.keys import ControllerName
from sharder.planning.planner import ControllerSeen
from sharder.ringspec.spec import Pace
from sharder.unowned.pending import AssignmentPriority, PendingObjects
from sharder.writing.assigner import Assigner
from sharder.writing.assignment_queue import (
    AssignmentQueue,
)
from sharder.writing.limiter import WriteLimiter
from sharder.writing.object_writer import WriteOutcome
from sharder.writing.ring_context import RingContext
from tests.sharder.pure.contexts import SitesContext, running
from tests.sharder.pure.views import KEYS, WEBSITES, make_meta, make_view, name_for

TWO = make_view(
    {"a-1": ShardState.READY, "b-1": ShardState.READY, "c-dead": ShardState.DEAD}, {"a": "a-1", "b": "b-1"}
)
READ_S = 0.02
OF_A = name_for(TWO, "a")
OF_B = name_for(TWO, "b")


class FakeMembership:
    """Shows *view*; evidence takes `READ_S` and shows *held* as it was when the read began."""

    def __init__(self, view: View, *held: str) -> None:
        self.view = view
        self.held = set(held)
        self.began: list[float] = []
        self.asked: list[frozenset[str]] = []
        self.read_s = READ_S
        self.fails = 0
        self.unknown: list[str] = []

    @property
    def reads(self) -> FakeMembership:
        return self

    async def evidence(self) -> Evidence:
        began = asyncio.get_running_loop().time()
        self.began.append(began)
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
        assert isinstance(decision, Assign | Strip)
        to = decision.to if isinstance(decision, Assign) else ""
        now = asyncio.get_running_loop().time()
        self.sent.append(Sent(now, meta.name, meta.resource_version, to))
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        if meta.name in self.answers:
            return self.answers[meta.name]
        current = self.objects[meta.name]
        if current.resource_version != meta.resource_version:
            return WriteOutcome.STALE
        version = str(int(meta.resource_version) + 100)
        labels = {KEYS.shard: to} if to else {}
        self.put(msgspec.structs.replace(meta, labels=labels, resource_version=version))
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
        self.resumed = 0

    def resume_lists(self) -> None:
        self.resumed += 1


class Ring(SitesContext):
    """What an assigner knows of its ring: the part of `RingContext` that it reads."""

    def __init__(self, membership: FakeMembership, *, pace: Pace | None = None) -> None:
        super().__init__(membership)
        self.spec = dataclasses.replace(self.spec, pace=pace)
        self.membership = membership
        self.objects = Objects()
        self.pending = PendingObjects()
        self.limiter = WriteLimiter(clock=self.clock, rng=self.rng)
        context = cast(RingContext, self)
        self.queue, self.lists = AssignmentQueue(context, self.pending), Lists()
        self.missent = MissentObjects()
        self.assigner = Assigner(
            context, self.pending, self.queue, self.lists, self.limiter, missent=self.missent
        )

    def shows(self, meta: Meta, resource: ApiResource = WEBSITES) -> None:
        """The unowned watch shows *meta*."""
        work = ObjectRef(resource.group_resource, ObjectKey(meta.namespace, meta.name))
        priority = AssignmentPriority.ORPHANED if KEYS.shard in meta.labels else AssignmentPriority.NEW
        self.pending.put(work, meta, at=self.clock.now(), priority=priority)
        self.queue.enqueue(work)

    def owner(self, name: str) -> str | None:
        return self.objects.objects[name].labels.get(KEYS.shard)


@asynccontextmanager
async def moving(membership: FakeMembership, *, pace: Pace | None = None) -> AsyncIterator[Ring]:
    ring = Ring(membership, pace=pace)
    async with running(ring.states, ring.assigner.run()):
        yield ring


@asynccontextmanager
async def no_slots(ring: Ring) -> AsyncIterator[None]:
    """Nothing is written meanwhile."""
    slots = ring.limiter.allowed(Pace.URGENT)
    for _ in range(slots):
        await ring.limiter.enter(Pace.URGENT)
    yield
    for _ in range(slots):
        ring.limiter.leave()


async def busy(ring: Ring, count: int) -> list[float]:
    """Have *count* objects written by a server that takes 20 ms for each; the instants of the writes."""
    ring.objects.takes_s = 0.02
    limit = ring.limiter.allowed(Pace.URGENT)
    for number in range(count):
        ring.shows(ring.objects.put(make_meta(f"site-{number}")))
    await asyncio.sleep(count / limit * 0.02 + 1)
    assert len(ring.objects.sent) == count
    return [sent.at for sent in ring.objects.sent]


def at_version(version: int, meta: Meta) -> Meta:
    return msgspec.structs.replace(meta, resource_version=str(version))


def last_renewed_before(version: int) -> View:
    """The dead shard's last renewal was *version*."""
    dead = dataclasses.replace(TWO.shards["c-dead"], renewal_before=version)
    return dataclasses.replace(TWO, at=0.0, shards={**TWO.shards, "c-dead": dead})
