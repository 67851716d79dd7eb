"""Gives every waiting object to its owner: evidence per batch, one conditional patch each.

Owns the queue of objects to look at and the concurrency of the writes. What to write is `sharder.planner`'s
decision; a write that met another version is decided anew on a fresh read and with fresh evidence.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

import structlog

from kubeio.errors import KubeError
from kubeio.models import ObjectKey
from kubeio.workqueue import WorkQueue
from sharder.decisions import (
    Assign,
    Decision,
    Drain,
    NeedController,
    Nothing,
    ReleaseDrain,
    ReportUnknown,
    Strip,
    UpdateDrain,
    Wait,
)
from sharder.keys import Controlled
from sharder.objects import Outcome
from sharder.planner import ControllerSeen, Subject, plan
from sharder.view import Standing
from sharder.waiting import WaitingObject, WorkKey

if TYPE_CHECKING:
    from sharder.duty import Duty
    from sharder.evidence import Evidence
    from sharder.unowned import Unowned
    from sharder.waiting import Waiting

log = structlog.get_logger("sharder")

BATCH: Final = 250
"""Objects per evidence read: about 250 ms of writes at the rate a server takes them."""
WRITES_AT_ONCE: Final = 64
LOOK_AGAIN_S: Final = 0.5


class Mover:
    """Works off *waiting* until cancelled."""

    def __init__(self, duty: Duty, waiting: Waiting, *, rng: random.Random) -> None:
        self._duty = duty
        self._waiting = waiting
        self._queue: WorkQueue[WorkKey] = WorkQueue(
            clock=duty.clock, base_delay_s=0.05, max_delay_s=10.0, rng=rng
        )
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)
        self.unowned: Unowned | None = None

    def look_at(self, work: WorkKey) -> None:
        """Decide about *work* soon."""
        self._queue.add(work)

    def look_at_all(self) -> None:
        """Decide about everything that waits: membership, namespaces or terms changed."""
        for waiting in self._waiting:
            self._queue.add(waiting.work)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_views(), name="replan on view")
            while True:
                await self._work_batch(await self._next_batch(), tasks)

    async def _follow_views(self) -> None:
        version = self._duty.roster.view.version
        while True:
            view = await self._duty.roster.wait_newer(version)
            version = view.version
            self.look_at_all()

    async def _next_batch(self) -> list[WaitingObject]:
        """What is due, as it is known now: versions are read before the evidence begins."""
        works = [await self._queue.get()]
        while len(works) < BATCH and len(self._queue):
            works.append(await self._queue.get())
        batch = []
        for work in works:
            waiting = self._waiting.get(work)
            if waiting is None:
                self._finish(work)
            else:
                batch.append(waiting)
        return batch

    async def _work_batch(self, batch: list[WaitingObject], tasks: asyncio.TaskGroup) -> None:
        if not batch:
            return
        try:
            evidence = await self._duty.roster.evidence()
        except KubeError as error:
            log.warning("no evidence about leases", ring=self._duty.spec.name, error=str(error))
            for waiting in batch:
                self._retry(waiting.work)
            return
        for waiting in batch:
            await self._slots.acquire()
            tasks.create_task(self._work(waiting, evidence), name="assign")

    async def _work(self, waiting: WaitingObject, evidence: Evidence) -> None:
        try:
            await self._decide_and_write(waiting, evidence)
        except KubeError as error:
            log.warning("object could not be read", object=str(waiting.work), error=str(error))
            self._retry(waiting.work)
        finally:
            self._slots.release()

    async def _decide_and_write(self, waiting: WaitingObject, evidence: Evidence) -> None:
        decision = self._plan(waiting, None)
        if isinstance(decision, NeedController):
            seen = await self._duty.objects.read_controller(decision.controller)
            decision = self._plan(waiting, seen)
        match decision:
            case Assign(to=to) if to not in evidence.held:
                self._later(waiting.work, LOOK_AGAIN_S)
            case Assign() | Strip():
                resource = self._duty.resource(waiting.work)
                outcome = await self._duty.objects.write(resource, waiting.meta, decision)
                await self._settle(waiting, decision, outcome)
            case Wait(until=until):
                now = self._duty.clock.now()
                self._later(waiting.work, None if until is None else max(0.0, until - now))
            case ReportUnknown(name=name):
                self._duty.roster.unknown_name_seen(name)
                self._finish(waiting.work)
            case Drain() | UpdateDrain() | ReleaseDrain() | Nothing() | NeedController():
                self._dismiss(waiting)
            case _:
                assert_never(decision)

    def _plan(self, waiting: WaitingObject, controller: ControllerSeen | None) -> Decision:
        duty = self._duty
        view = replace(duty.roster.view, at=duty.clock.now())  # published at its last change
        role = duty.kinds.role(duty.resource(waiting.work), waiting.meta)
        subject = Subject(
            waiting.meta,
            role,
            selected=duty.namespaces.selects(waiting.meta.namespace),
            controller=controller,
            children_since=self._held_back_since(waiting),
        )
        return plan(subject, view=view, terms=duty.terms(), keys=duty.keys)

    def _held_back_since(self, waiting: WaitingObject) -> float | None:
        """Since when a dead shard's object waits for its controlled objects; None if none of them waits."""
        keys, view = self._duty.keys, self._duty.roster.view
        name = waiting.meta.labels.get(keys.shard)
        if name is None or waiting.meta.controller is not None or view.standing(name) is not Standing.DEAD:
            return None
        is_listing = self.unowned is not None and self.unowned.listed_at is None
        children = self._waiting.controlled_by(waiting.meta.uid)
        if not is_listing and not any(child.meta.labels.get(keys.shard) == name for child in children):
            return None
        life = view.lives.get(name)
        return max(waiting.since, life.since) if life is not None else waiting.since

    def _dismiss(self, waiting: WaitingObject) -> None:
        """Nobody has to be found for it: a live owner has it, or it is no business of the ring's. Forget it.

        What could change that shows it again: an owner's death switches the watch or is met by a pass, a change
        of the object is an event, a change of the selected namespaces lists anew (`Unowned.refresh`).
        """
        self._waiting.drop_up_to(waiting.work, int(waiting.meta.resource_version))
        self._finish(waiting.work)

    async def _settle(self, waiting: WaitingObject, decision: Assign | Strip, outcome: Outcome) -> None:
        work = waiting.work
        match outcome:
            case Outcome.DONE:
                self._tell(waiting, decision)
                self._waiting.drop_up_to(work, int(waiting.meta.resource_version))
                self._look_at_controller(waiting)
                self._finish(work)
            case Outcome.GONE:
                self._waiting.drop_up_to(work, int(waiting.meta.resource_version))
                self._finish(work)
            case Outcome.STALE:
                await self._read_again(waiting)
            case Outcome.LATER:
                self._retry(work)
            case _:
                assert_never(outcome)

    async def _read_again(self, waiting: WaitingObject) -> None:
        meta = await self._duty.objects.read(self._duty.resource(waiting.work), waiting.meta)
        if meta is None:
            self._waiting.drop(waiting.work)
            self._finish(waiting.work)
            return
        owner = meta.labels.get(self._duty.keys.shard)
        if owner is not None and self._duty.roster.view.standing(owner) is Standing.LIVE:
            self._waiting.drop_up_to(waiting.work, int(meta.resource_version))
            self._finish(waiting.work)
            return
        self._waiting.put(waiting.work, meta, at=self._duty.clock.now())
        self._retry(waiting.work)

    def _look_at_controller(self, waiting: WaitingObject) -> None:
        """A child was moved: its parent may have been held back for it."""
        role = self._duty.kinds.role(self._duty.resource(waiting.work), waiting.meta)
        if isinstance(role, Controlled):
            parent = WorkKey(
                role.controller.resource.group_resource,
                ObjectKey(role.controller.namespace, role.controller.name),
            )
            if self._waiting.get(parent) is not None:
                self._queue.add(parent)

    def _tell(self, waiting: WaitingObject, decision: Assign | Strip) -> None:
        waited_s = self._duty.clock.now() - waiting.since
        self._duty.metrics.assign_s.labels(ring=self._duty.spec.name).observe(waited_s)
        to = decision.to if isinstance(decision, Assign) else None
        log.debug("object assigned", object=str(waiting.work), to=to, waited_s=round(waited_s, 3))

    def _finish(self, work: WorkKey) -> None:
        self._queue.forget(work)
        self._queue.done(work)

    def _later(self, work: WorkKey, delay_s: float | None) -> None:
        """Look again after *delay_s*; None: when something changes."""
        self._finish(work)
        if delay_s is not None:
            self._queue.add_after(work, delay_s)

    def _retry(self, work: WorkKey) -> None:
        self._queue.done(work)
        self._queue.add_rate_limited(work)
