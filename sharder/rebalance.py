"""Passes over everything that has an owner: finds what is not at its place and asks for it to be handed over.

A pass goes over pages of metadata in a circle under the newest ring; the ring has converged when one whole circle
was clean under one ring version. The audit is the same circle over all objects, slower, and never ends: it finds
what a lost event or a stale write left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from kubeio.errors import Expired, KubeError
from sharder.decisions import (
    Assign,
    Decision,
    Drain,
    NeedController,
    ReleaseDrain,
    ReportUnknown,
    Strip,
    Wait,
)
from sharder.objects import Outcome
from sharder.planner import Subject, plan
from sharder.waiting import WorkKey

if TYPE_CHECKING:
    from kubeio.models import Meta
    from kubeio.resource import Resource
    from sharder.duty import Duty
    from sharder.handoffs import Handoffs
    from sharder.mover import Mover
    from sharder.waiting import Waiting

log = structlog.get_logger("sharder")

PAGE: Final = 500
WRITES_AT_ONCE: Final = 32
MAX_DEFERRED: Final = 5000
"""Objects remembered while their owners have no room for another handoff; then the pass waits."""
AUDIT_PAUSE_S: Final = 0.2
RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 30.0


class Misplaced(NamedTuple):
    """An object to be handed over by *owner*."""

    work: WorkKey
    meta: Meta
    owner: str


@dataclass(slots=True)
class Circle:
    """What one circle found; *clean* if nothing had to be done or waited for."""

    ring_version: int
    seen: int = 0
    asked: int = 0
    clean: bool = True


class Rebalance:
    """Moves objects between live shards until every one is at its place; until cancelled."""

    def __init__(self, duty: Duty, handoffs: Handoffs, waiting: Waiting, mover: Mover) -> None:
        self._duty = duty
        self._handoffs = handoffs
        self._waiting = waiting
        self._mover = mover
        self._deferred: dict[str, deque[Misplaced]] = {}
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)
        self._nudged = asyncio.Event()
        self.converged_version: int | None = None
        """The ring version under which the last whole circle was clean."""
        self.last_seen = 0
        """Objects with an owner in that circle."""

    @property
    def is_converged(self) -> bool:
        """Whether every object with a live owner was found at its place under the present ring."""
        return self.converged_version == self._duty.roster.view.ring_version

    def nudge(self) -> None:
        """Look again although the ring is the same: namespaces changed."""
        self.converged_version = None
        self._nudged.set()

    async def run(self) -> None:
        await self._handoffs.synced.wait()
        await self._duty.namespaces.synced.wait()
        idle = 0
        while True:
            self._nudged.clear()
            try:
                circle = await self._circle()
            except* KubeError as group:
                log.warning("pass interrupted", ring=self._duty.spec.name, error=str(group.exceptions[0]))
                circle = Circle(self._ring_version, clean=False)
            if circle.clean and not len(self._handoffs) and circle.ring_version == self._ring_version:
                self._converge(circle)
                await self._wait_for_work()
            else:
                is_idle = not circle.asked and not len(self._handoffs)
                idle = idle + 1 if is_idle and circle.ring_version == self._ring_version else 0
                await self._wait_for_progress(circle, idle)

    def _converge(self, circle: Circle) -> None:
        if self.converged_version != circle.ring_version:
            members = ", ".join(sorted(self._duty.roster.view.ring_members)) or "nobody"
            self._duty.events.record(
                self._duty.ring,
                reason="Converged",
                action="Rebalance",
                note=f"every object with an owner is at its place; on the ring: {members}",
            )
            log.info(
                "ring converged",
                ring=self._duty.spec.name,
                objects=circle.seen,
                ring_version=circle.ring_version,
            )
        self.converged_version = circle.ring_version
        self.last_seen = circle.seen

    @property
    def _ring_version(self) -> int:
        return self._duty.roster.view.ring_version

    async def _circle(self) -> Circle:
        circle = Circle(self._ring_version)
        async with asyncio.TaskGroup() as tasks:
            for resource in self._duty.kinds.resources:
                await self._pass(resource, circle, tasks)
            while self._deferred and circle.ring_version == self._ring_version:
                self._send_what_has_room(circle, tasks)
                if self._deferred:
                    await self._handoffs.wait_changed()
        self._deferred.clear()
        return circle

    async def _pass(self, resource: Resource, circle: Circle, tasks: asyncio.TaskGroup) -> None:
        if not self._duty.kinds.is_main(resource) and not self._asks_for_each_object():
            return
        pages = self._duty.client.pages(
            resource, label_selector=self._duty.keys.shard, limit=PAGE, metadata_only=True
        )
        with suppress(Expired):
            async for page in pages:
                for item in page.objects:
                    self._look(resource, item.meta, circle)
                self._send_what_has_room(circle, tasks)
                while sum(map(len, self._deferred.values())) > MAX_DEFERRED:
                    await self._handoffs.wait_changed()
                    self._send_what_has_room(circle, tasks)
                if circle.ring_version != self._ring_version:
                    return
            return
        circle.clean = False  # the list expired while we waited for room: the next circle sees the rest

    def _asks_for_each_object(self) -> bool:
        """Whether some shard does not pass its controlled objects on by itself, or everything is given up."""
        view = self._duty.roster.view
        return self._duty.releasing or any(
            life.state.is_live and not life.hands_over for life in view.lives.values()
        )

    def _look(self, resource: Resource, meta: Meta, circle: Circle) -> None:
        work = WorkKey(resource.group_resource, meta.key)
        circle.seen += 1
        match self._plan(work, meta):
            case Drain(owner=owner) | ReleaseDrain(owner=owner):
                circle.clean = False
                if work not in self._handoffs:
                    self._deferred.setdefault(owner, deque()).append(Misplaced(work, meta, owner))
            case Assign() | Strip() | ReportUnknown() | NeedController():
                circle.clean = False
                self._bring(work, meta)
            case Wait():
                circle.clean = False
            case _:
                pass

    def _plan(self, work: WorkKey, meta: Meta) -> Decision:
        duty = self._duty
        subject = Subject(
            meta,
            duty.kinds.role(duty.resource(work), meta),
            selected=duty.namespaces.selects(meta.namespace),
        )
        return plan(subject, view=duty.roster.view, terms=duty.terms(), keys=duty.keys)

    def _send_what_has_room(self, circle: Circle, tasks: asyncio.TaskGroup) -> None:
        now = self._duty.clock.now()
        for owner, queue in list(self._deferred.items()):
            room = self._handoffs.budget.room(owner, at=now)
            while queue and room > 0:
                misplaced = queue.popleft()
                self._handoffs.begin(misplaced.work, owner)
                circle.asked += 1
                room -= 1
                tasks.create_task(self._ask(misplaced), name="drain")
            if not queue:
                del self._deferred[owner]

    async def _ask(self, misplaced: Misplaced) -> None:
        """Send one request, planned anew: the ring may have changed while it waited for room."""
        async with self._slots:
            decision = self._plan(misplaced.work, misplaced.meta)
            outcome = Outcome.STALE
            if isinstance(decision, Drain | ReleaseDrain):
                resource = self._duty.resource(misplaced.work)
                outcome = await self._duty.objects.write(resource, misplaced.meta, decision)
        if outcome is not Outcome.DONE:
            self._handoffs.failed(misplaced.work)

    # ---- between two circles ----------------------------------------------------------------------------------

    async def _wait_for_progress(self, circle: Circle, idle: int) -> None:
        """Something is not at its place yet: go round again when the handoffs ended or the ring changed.

        *idle* circles in a row found nothing they could ask for (paused, owners silent): they come more rarely.
        """
        while self._handoffs.budget.is_moving(at=self._duty.clock.now()):
            await self._handoffs.wait_changed(at_most_s=RETRY_S)
            if self._ring_version != circle.ring_version:
                return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(RETRY_S * 2 ** min(idle, 10), LONGEST_RETRY_S)):
                await self._duty.roster.wait_newer(self._duty.roster.view.version)

    async def _wait_for_work(self) -> None:
        """Converged: until the ring changes or somebody nudges."""
        while not self._nudged.is_set() and self.converged_version == self._ring_version:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._duty.roster.wait_newer(self._duty.roster.view.version)

    async def audit(self) -> None:
        """Go over all objects once per audit interval, converged or not, until cancelled."""
        await self._duty.namespaces.synced.wait()
        while True:
            await asyncio.sleep(self._duty.spec.audit_interval_s)
            await self._audit()

    async def _audit(self) -> None:
        """One slow circle over all objects, labelled or not: what the watches should have shown is counted."""
        found = 0
        for resource in self._duty.kinds.resources:
            pages = self._duty.client.pages(resource, limit=PAGE, metadata_only=True)
            with suppress(Expired, KubeError):
                async for page in pages:
                    for item in page.objects:
                        found += self._audit_one(resource, item.meta)
                    await asyncio.sleep(AUDIT_PAUSE_S)
        if found:
            log.warning(
                "audit found objects that no watch had shown", ring=self._duty.spec.name, objects=found
            )
            self._duty.metrics.audit_found.labels(ring=self._duty.spec.name).inc(found)

    def _audit_one(self, resource: Resource, meta: Meta) -> bool:
        work = WorkKey(resource.group_resource, meta.key)
        decision = self._plan(work, meta)
        if not isinstance(decision, Assign | Strip | NeedController | ReportUnknown):
            return False
        return self._bring(work, meta)

    def _bring(self, work: WorkKey, meta: Meta) -> bool:
        """Have the mover look at an object that no watch has shown it; true if it did not know it."""
        is_news = self._waiting.get(work) is None
        if self._waiting.put(work, meta, at=self._duty.clock.now()):
            self._mover.look_at(work)
        return is_news
