"""The assigner: gives each pending object its owner, by one conditional patch on fresh evidence.

Work queue, plan, evidence, slot, patch: one object after the other passes through these. The planner decides
what to write. `WriteLimiter` decides how many patches are under way, `EvidenceReads` on which read of the Leases. A
write that conflicted with another version is decided anew on a fresh read and with fresh evidence.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import structlog

from kubeio.errors import KubeError
from kubeio.models import ObjectKey, ObjectRef
from kubeio.versions import order
from sharder.membership.view import OwnerState, WaitReason
from sharder.planning.decisions import (
    NOTHING,
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
from sharder.planning.keys import Controlled
from sharder.planning.planner import ControllerSeen
from sharder.unowned.pending import AssignmentPriority, PendingObject
from sharder.writing.assignment_queue import FIRST_RETRY_S
from sharder.writing.evidence_reads import EvidenceReads, PendingWrite
from sharder.writing.limiter import WriteLimiter
from sharder.writing.object_writer import WriteOutcome

if TYPE_CHECKING:
    from kubeio.models import Meta
    from sharder.unowned.pending import PendingObjects
    from sharder.writing.assignment_queue import AssignmentQueue, Lane
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

RECHECK_S: Final = 0.5
REST: Final = 4
"""The next replan of everything waits so many times as long as the last one took: 10 us an object, and membership may
change many times a second while names are forged."""
CHILDREN_AT_ONCE: Final = 100
"""Controlled objects that go first because their controller is wanted."""


class UnownedLists(Protocol):
    """Lists of pending objects: `sharder.unowned.reflectors.UnownedReflectors`."""

    @property
    def knows_controlled(self) -> bool: ...

    def resume_lists(self) -> None: ...


class MissentObjects(Protocol):
    """Objects that may have an owner to which they do not belong: `sharder.moving.missent.MissentObjects`."""

    def add(self, ref: ObjectRef) -> None: ...


class Assigner:
    """Assigns the objects of *queue* until cancelled. Inside, objects go by their names in *pending*."""

    def __init__(
        self,
        context: RingContext,
        pending: PendingObjects,
        queue: AssignmentQueue,
        lists: UnownedLists,
        limiter: WriteLimiter,
        *,
        missent: MissentObjects,
    ) -> None:
        self._context = context
        self._keys = context.keys
        self._pending = pending
        self._queue = queue
        self._lists = lists
        self._limiter = limiter
        self._missent = missent
        self._evidence = EvidenceReads(
            context.membership.reads,
            self._limiter,
            begin_read=pending.begin_read,
            ring=context.spec.name,
            clock=context.clock,
            rng=context.rng,
        )
        self._waited_s = context.metrics.assign_s.labels(ring=context.spec.name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_states(), name="replan on state")
            tasks.create_task(self._evidence.run(), name="evidence")
            tasks.create_task(self._dispatch(self._queue.unattended, tasks), name="unattended objects")
            tasks.create_task(self._dispatch(self._queue.first_time, tasks), name="backlog")

    async def _dispatch(self, lane: Lane, tasks: asyncio.TaskGroup) -> None:
        """Hand the objects of *lane* to workers: a task for each object would cost more."""
        while True:
            name = await lane.take(self._limiter)
            if not lane.give_to_idle(name):
                tasks.create_task(self._run_worker(lane, name), name="assign")

    async def _follow_states(self) -> None:
        state = self._context.states.current
        while True:
            state = await self._context.states.wait_newer(state)
            began_at = self._context.clock.now()
            self._queue.enqueue_all()
            await asyncio.sleep(REST * (self._context.clock.now() - began_at))

    # ---- one object -------------------------------------------------------------------------------------------

    async def _run_worker(self, lane: Lane, name: str) -> None:
        while True:
            try:
                await self._process(lane, name)
            finally:
                lane.give_back(name)
            self._lists.resume_lists()
            name = await lane.wait_idle()

    async def _process(self, lane: Lane, name: str) -> None:
        try:
            while (pending := self._pending.by_name(name)) is not None:
                if not await self._assign(lane, name, pending):
                    return
            lane.queue.forget(name)
        except KubeError as error:
            log.warning("object could not be read", object=str(self._pending.ref(name)), error=str(error))
            self._retry(lane, name)

    async def _assign(self, lane: Lane, name: str, pending: PendingObject) -> bool:
        """Decide and write; true if that has to begin anew, since something changed before the write got a slot."""
        seen = None
        decision = self._plan(pending, seen)
        if isinstance(decision, NeedController):
            seen = await self._context.objects.read_controller(decision.controller)
            decision = self._plan(pending, seen)
        match decision:
            case Assign(to=owner):
                return await self._write_on_evidence(lane, name, pending, decision, seen, owner=owner)
            case Strip(without_lease=owner) if owner:
                return await self._write_on_evidence(lane, name, pending, decision, seen, owner=owner)
            case Strip():
                await self._limiter.enter(lane.pace, ahead=lane.is_ahead)
                try:
                    await self._write(lane, name, pending, decision)
                finally:
                    self._limiter.leave()
            case Wait(reason=WaitReason.CHILDREN_FIRST, until=until):
                self._raise_children(name, pending)
                self._later(lane, name, until)
            case Wait(until=until):
                self._later(lane, name, until)
            case ReportUnknown(name=unknown):
                self._context.membership.unknown_name_seen(unknown)
                lane.queue.forget(name)
            case Drain() | UpdateDrain() | ReleaseDrain() | Nothing() | NeedController():
                self._drop(lane, name, pending.meta)
            case _:
                assert_never(decision)
        return False

    async def _write_on_evidence(
        self,
        lane: Lane,
        name: str,
        pending: PendingObject,
        decision: Assign | Strip,
        seen: ControllerSeen | None,
        *,
        owner: str,
    ) -> bool:
        """`_assign` of a *decision* that was planned just now: *owner* gets the object, or has no Lease of its own."""
        state = self._context.states.current
        write = PendingWrite(owner, pending.reads_before)
        is_held = isinstance(decision, Assign)
        self._evidence.want(write)
        try:
            if (owner in (await self._evidence.next(write)).held) is not is_held:
                self._later(lane, name, self._context.clock.now() + RECHECK_S)
                return False
            await self._limiter.enter(lane.pace, ahead=lane.is_ahead)
            try:
                evidence = self._evidence.current(write)
                is_shown = evidence is not None and (owner in evidence.held) is is_held
                is_same = self._context.states.current is state or self._plan(pending, seen) == decision
                if not (is_shown and is_same and self._is_newest(name, pending)):
                    return True
                state = self._context.states.current
                await self._write(lane, name, pending, decision)
                if (
                    self._context.states.current is not state
                    and (seen is not None or self._plan(pending, seen) != decision)
                ):  # a pass under the newer ring may have listed it before; its controller may have moved, too
                    self._missent.add(pending.ref)
            finally:
                self._limiter.leave()
        finally:
            self._evidence.unwant(write)
        return False

    def _is_newest(self, name: str, pending: PendingObject) -> bool:
        return self._pending.version(name) == order(pending.meta.resource_version)

    async def _write(self, lane: Lane, name: str, pending: PendingObject, decision: Assign | Strip) -> None:
        self._raise_children(name, pending)  # those that it was not held back for
        resource = self._context.resource(pending.ref)
        outcome = await self._context.objects.write_with_slot(resource, pending.meta, decision)
        await self._handle_outcome(lane, name, pending, outcome)

    def _raise_children(self, name: str, pending: PendingObject) -> None:
        """Raise controlled objects of a wanted *name*, some at a time: each one assigned enqueues its controller."""
        if not self._is_wanted(name):
            return
        for child in islice(self._pending.controlled_by(pending.meta.uid), CHILDREN_AT_ONCE):
            if self._pending.priority(child) is not AssignmentPriority.NEW:
                self._queue.enqueue_name(child, is_wanted=True)

    def _plan(self, pending: PendingObject, controller: ControllerSeen | None) -> Decision:
        context = self._context
        subject = context.subject(
            context.resource(pending.ref),
            pending.meta,
            controller=controller,
            children_since=self._held_back_since(pending),
        )
        return context.plan(subject)

    def _held_back_since(self, pending: PendingObject) -> float | None:
        """Instant since which a dead shard's object waits for its controlled objects; None if none of them waits."""
        keys, view = self._keys, self._context.states.current.view
        name = pending.meta.labels.get(keys.shard)
        if name is None or view.owner_state(name) is not OwnerState.DEAD:
            return None
        if not self._context.kinds.may_control(self._context.resource(pending.ref)):
            return None
        children = self._pending.controlled_by(pending.meta.uid)
        if self._lists.knows_controlled and not any(
            self._pending.label(child, keys.shard) == name for child in children
        ):
            return None
        shard = view.shards.get(name)
        return max(pending.since, shard.since) if shard is not None else pending.since

    # ---- outcomes ---------------------------------------------------------------------------------------------

    def _drop(self, lane: Lane, name: str, meta: Meta) -> None:
        """Forget an object that has its owner, is gone, or is no business of the ring's.

        Every change that matters shows it again: an owner's death switches the watch or a pass finds it, a change
        of the object is an event, a change of the selected namespaces lists anew (`UnownedReflectors.refresh`).
        """
        self._pending.drop_up_to(name, order(meta.resource_version))
        lane.queue.forget(name)

    async def _handle_outcome(
        self, lane: Lane, name: str, pending: PendingObject, outcome: WriteOutcome
    ) -> None:
        match outcome:
            case WriteOutcome.DONE:
                self._waited_s.observe(self._context.clock.now() - pending.since)
                if not self._lists.knows_controlled and self._is_wanted(name):
                    self._queue.note_ahead(pending.meta.uid)
                self._drop(lane, name, pending.meta)
                self._enqueue_controller(pending)
            case WriteOutcome.GONE:
                self._drop(lane, name, pending.meta)
            case WriteOutcome.STALE:
                await self._read_again(lane, name, pending)
            case WriteOutcome.LATER:
                self._retry(lane, name)
            case WriteOutcome.DENIED:
                lane.queue.forget(name)  # `permissions.try_again` enqueues it again
            case WriteOutcome.REFUSED:
                again_at = self._context.objects.refusals.again_at(pending.ref)
                self._later(lane, name, again_at or self._context.clock.now() + RECHECK_S)
            case _:
                assert_never(outcome)

    async def _read_again(self, lane: Lane, name: str, pending: PendingObject) -> None:
        resource = self._context.resource(pending.ref)
        meta = await self._context.objects.read(resource, pending.meta)
        if meta is None:
            self._drop(lane, name, pending.meta)
            return
        owner = meta.labels.get(self._keys.shard)
        if owner is not None and self._context.states.current.view.owner_state(owner) is OwnerState.LIVE:
            subject = self._context.subject(resource, meta)
            if self._context.plan(subject) != NOTHING or self._context.may_be_left_behind(subject):
                self._missent.add(pending.ref)  # the write of an older decision, perhaps: its answer was lost
            self._drop(lane, name, meta)
            return
        self._pending.put(pending.ref, meta, at=self._context.clock.now())
        self._retry(lane, name)

    def _is_wanted(self, name: str) -> bool:
        """Whether *name* is new, or was written after its owner's last renewal but one."""
        return self._pending.knows(name) and self._pending.priority(name) is AssignmentPriority.NEW

    def _enqueue_controller(self, pending: PendingObject) -> None:
        """Enqueue the controller of an object that got an owner: it may have been held back for it."""
        if pending.meta.controller is None:
            return
        role = self._context.kinds.role(self._context.resource(pending.ref), pending.meta)
        if isinstance(role, Controlled):
            parent = ObjectRef(
                role.controller.resource.group_resource,
                ObjectKey(role.controller.namespace, role.controller.name),
            )
            self._queue.enqueue(parent)

    def _later(self, lane: Lane, name: str, due_at: float | None) -> None:
        """Decide again at *due_at*, a moment later if that is over; None: when something changes.

        What follows from an instant is published after it, by up to a tenth of a second.
        """
        lane.queue.forget(name)
        if due_at is not None:
            self._requeue(lane, name, max(FIRST_RETRY_S, due_at - self._context.clock.now()))

    def _requeue(self, lane: Lane, name: str, delay_s: float) -> None:
        if self._pending.knows(name):
            lane.queue.add_after(name, delay_s, priority=self._pending.priority(name))

    def _retry(self, lane: Lane, name: str) -> None:
        if self._pending.knows(name):
            lane.queue.add_rate_limited(name, priority=self._pending.priority(name))
