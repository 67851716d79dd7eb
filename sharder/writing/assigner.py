"""The assigner: gives each pending object its owner, by one conditional patch on fresh evidence.

Work queue, plan, evidence, turn to write, patch: one object after the other passes through these. The planner decides
what to write. `WriteLimiter` decides how many patches are under way, `EvidenceReads` on which read of the Leases. A
write that conflicted with another version is decided anew on a fresh read and with fresh evidence.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, assert_never

import structlog

from kubeio.errors import KubeError
from kubeio.models import ObjectKey, ObjectRef
from kubeio.queues.workqueue import WorkQueue
from kubeio.watches.versions import order
from sharder.membership.view import OwnerState, WaitReason
from sharder.planning.decisions import (
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
from sharder.ringspec.spec import Pace
from sharder.unowned.pending import AssignmentPriority, PendingObject
from sharder.writing.evidence_reads import EvidenceReads, PendingWrite
from sharder.writing.limiter import WriteLimiter
from sharder.writing.objects import WriteOutcome

if TYPE_CHECKING:
    from kubeio.models import Meta
    from sharder.unowned.pending import PendingObjects
    from sharder.unowned.reflectors import UnownedReflectors
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

RECHECK_S: Final = 0.5
REST: Final = 4
"""The next replan of everything waits so many times as long as the last one took: 10 us an object, and membership may
change many times a second while names are forged."""
SOME: Final = 8
"""Objects enqueued to try a resource again: one of them is written, some may wait for their owners."""
SPARE: Final = 4
"""Objects in hand beyond the writes that may be under way: their plans and evidence are ready when a turn is free."""
FIRST_RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 10.0
MOST_AHEAD: Final = 10_000
CHILDREN_AT_ONCE: Final = 100
"""Controlled objects that go first because their controller is wanted."""


class Lane:
    """Objects of one pace: those that wait in *queue*, by their names, and those in hand.

    *is_ahead*: they have no worker, so their writes go before those of others.
    """

    def __init__(self, queue: WorkQueue[str], pace: Pace, *, is_ahead: bool) -> None:
        self.queue: Final = queue
        self.pace: Final = pace
        self.is_ahead: Final = is_ahead
        self._in_hand = 0
        self._freed = asyncio.Event()
        self._idle: list[asyncio.Future[str]] = []

    async def take(self, limiter: WriteLimiter) -> str:
        """The next name, when the lane may have another one in hand."""
        while self._in_hand >= limiter.allowed(self.pace) + SPARE:
            self._freed.clear()
            await self._freed.wait()
        name = await self.queue.get()
        self._in_hand += 1
        return name

    def give_back(self, name: str) -> None:
        """*name* was processed; a change that came meanwhile queues it once more."""
        self._in_hand -= 1
        self._freed.set()
        self.queue.done(name)

    def give_to_idle(self, name: str) -> bool:
        """Whether a worker had nothing to do, and has *name* now."""
        if not self._idle:
            return False
        self._idle.pop().set_result(name)
        return True

    async def wait_idle(self) -> str:
        """The name of the next `give_to_idle`."""
        idle: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        return await idle


class Assigner:
    """Assigns the objects of *pending* until cancelled. Inside, objects go by their names in *pending*."""

    def __init__(self, context: RingContext, pending: PendingObjects, limiter: WriteLimiter) -> None:
        self._context = context
        self._keys = context.keys
        self._pending = pending
        self._rng = context.rng
        self._limiter = limiter
        self._evidence = EvidenceReads(
            context.membership,
            self._limiter,
            begin_read=pending.begin_read,
            ring=context.spec.name,
            clock=context.clock,
            rng=context.rng,
        )
        pace = context.spec.pace
        self._unattended = Lane(self._make_queue(), pace or Pace.URGENT, is_ahead=True)
        """Objects without a worker whose delay users notice."""
        self._backlog = Lane(self._make_queue(), pace or Pace.BACKGROUND, is_ahead=False)
        """A first assignment: none of these was ever worked."""
        self._waited_s = context.metrics.assign_s.labels(ring=context.spec.name)
        self._ahead: set[str] = set()
        """Uids of wanted controllers that went before their controlled objects were known."""
        self.unowned: UnownedReflectors | None = None

    def to_do(self) -> int:
        """Number of names that wait in the queues."""
        return len(self._unattended.queue) + len(self._backlog.queue)

    def backlog(self) -> int:
        """Number of names that wait in the queue of a first assignment."""
        return len(self._backlog.queue)

    def enqueue(self, ref: ObjectRef) -> None:
        """Decide about *ref* soon."""
        self.enqueue_name(self._pending.name(ref))

    def enqueue_name(self, name: str) -> None:
        """`enqueue` by the object's name in *pending*."""
        self._add(name)

    def knows(self, ref: ObjectRef) -> bool:
        """Whether *ref* waits for a decision."""
        return self._pending.knows(self._pending.name(ref))

    def is_full(self, resource: str) -> bool:
        """Whether so many objects of *resource* wait that only the watches add more."""
        return self._pending.is_full(resource)

    def enqueue_unshown(self, ref: ObjectRef, meta: Meta) -> bool:
        """Enqueue an object that no watch has shown, unless too many wait; true if it was not known to wait."""
        is_news = not self.knows(ref)
        if is_news and self.is_full(ref.resource):
            return False
        if self._pending.put(ref, meta, at=self._context.clock.now()):
            self.enqueue(ref)
        return is_news

    def _add(self, name: str, *, is_wanted: bool = False) -> None:
        """Queue *name*; first if it *is_wanted* or was written since its owner was last heard of.

        Not if it names a shard whose Lease has to be judged first: nothing can be written before, and any client may
        write such a name: it costs no turn and no evidence.
        """
        if not self._pending.knows(name):
            return
        owner = self._pending.label(name, self._keys.shard)
        if owner is not None:
            view = self._context.states.current.view
            owner_state = view.owner_state(owner)
            if owner_state is OwnerState.UNKNOWN and not (
                view.hold and view.hold.reason is WaitReason.NOT_SYNCED
            ):
                self._context.membership.unknown_name_seen(owner)
            if owner_state in (OwnerState.UNKNOWN, OwnerState.CONTESTED):
                return
            shard = view.shards.get(owner)
            is_news = shard is not None and 0 < shard.renewal_before < self._pending.version(name)
            if is_wanted or is_news or self._waits_for(name):
                self._pending.raise_priority(name)
        priority = self._pending.priority(name)
        lane, other = self._unattended, self._backlog
        if priority is AssignmentPriority.BACKLOG:
            lane, other = other, lane
        if other.queue.is_processing(name):  # it was made anew meanwhile
            lane, other = other, lane
        other.queue.discard(name)
        lane.queue.add(name, priority=priority)

    def _make_queue(self) -> WorkQueue[str]:
        return WorkQueue(
            clock=self._context.clock,
            rng=self._rng,
            base_delay_s=FIRST_RETRY_S,
            max_delay_s=LONGEST_RETRY_S,
            priorities=AssignmentPriority,
        )

    def _waits_for(self, name: str) -> bool:
        """Whether the controller of *name* was wanted, and went ahead before its controlled objects were known."""
        if self._ahead and (self.unowned is None or self.unowned.knows_controlled):
            self._ahead.clear()
        return bool(self._ahead) and self._pending.controller(name) in self._ahead

    def enqueue_some(self, resource: str, namespace: str) -> None:
        """Decide about some objects of *resource* in *namespace*, if any wait: writing is to be tried again.

        Never the same ones: those that came first may be the ones that cannot be written.
        """
        begins = self._pending.area(resource, namespace)
        found = [name for name in self._pending.names() if name.startswith(begins)]
        for name in self._rng.sample(found, min(len(found), SOME)):
            self.enqueue_name(name)

    def enqueue_all(self) -> None:
        """Decide about everything that waits."""
        for name in tuple(self._pending.names()):
            self._add(name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_states(), name="replan on state")
            tasks.create_task(self._evidence.run(), name="evidence")
            tasks.create_task(self._dispatch(self._unattended, tasks), name="unattended objects")
            tasks.create_task(self._dispatch(self._backlog, tasks), name="backlog")

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
            self.enqueue_all()
            await asyncio.sleep(REST * (self._context.clock.now() - began_at))

    # ---- one object -------------------------------------------------------------------------------------------

    async def _run_worker(self, lane: Lane, name: str) -> None:
        while True:
            try:
                await self._process(lane, name)
            finally:
                lane.give_back(name)
            self._resume_lists()
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

    def _resume_lists(self) -> None:
        if self.unowned is not None:
            self.unowned.resume_lists()

    async def _assign(self, lane: Lane, name: str, pending: PendingObject) -> bool:
        """Decide and write; true if that has to begin anew, since something changed before the turn to write."""
        seen = None
        decision = self._plan(pending, seen)
        if isinstance(decision, NeedController):
            seen = await self._context.objects.read_controller(decision.controller)
            decision = self._plan(pending, seen)
        match decision:
            case Assign():
                return await self._assign_on_evidence(lane, name, pending, decision, seen)
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

    async def _assign_on_evidence(
        self, lane: Lane, name: str, pending: PendingObject, decision: Assign, seen: ControllerSeen | None
    ) -> bool:
        """`_assign` of a *decision* that was planned just now."""
        state = self._context.states.current
        write = PendingWrite(decision.to, pending.reads_before)
        self._evidence.want(write)
        try:
            if decision.to not in (await self._evidence.next(write)).held:
                self._later(lane, name, self._context.clock.now() + RECHECK_S)
                return False
            await self._limiter.enter(lane.pace, ahead=lane.is_ahead)
            try:
                evidence = self._evidence.current(write)
                is_shown = evidence is not None and decision.to in evidence.held
                is_same = self._context.states.current is state or self._plan(pending, seen) == decision
                if not (is_shown and is_same and self._is_newest(name, pending)):
                    return True
                await self._write(lane, name, pending, decision)
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
        outcome = await self._context.objects.write_in_turn(resource, pending.meta, decision)
        await self._handle_outcome(lane, name, pending, outcome)

    def _raise_children(self, name: str, pending: PendingObject) -> None:
        """Raise controlled objects of a wanted *name*, some at a time: each one assigned enqueues its controller."""
        if not self._is_wanted(name):
            return
        for child in islice(self._pending.controlled_by(pending.meta.uid), CHILDREN_AT_ONCE):
            if self._pending.priority(child) is not AssignmentPriority.NEW:
                self._add(child, is_wanted=True)

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
        are_known = self.unowned is None or self.unowned.knows_controlled
        children = self._pending.controlled_by(pending.meta.uid)
        if are_known and not any(self._pending.label(child, keys.shard) == name for child in children):
            return None
        shard = view.shards.get(name)
        return max(pending.since, shard.since) if shard is not None else pending.since

    # ---- outcomes ---------------------------------------------------------------------------------------------

    def _drop(self, lane: Lane, name: str, meta: Meta) -> None:
        """Forget an object that has its owner, is gone, or is no business of the ring's.

        Every change that matters shows it again: an owner's death switches the watch or a pass finds it, a change
        of the object is an event, a change of the selected namespaces lists anew (`UnownedReflectors.refresh`).
        """
        self._pending.drop_named_up_to(name, order(meta.resource_version))
        lane.queue.forget(name)

    async def _handle_outcome(
        self, lane: Lane, name: str, pending: PendingObject, outcome: WriteOutcome
    ) -> None:
        match outcome:
            case WriteOutcome.DONE:
                self._waited_s.observe(self._context.clock.now() - pending.since)
                if self._is_ahead(name):
                    self._ahead.add(pending.meta.uid)
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
        meta = await self._context.objects.read(self._context.resource(pending.ref), pending.meta)
        if meta is None:
            self._drop(lane, name, pending.meta)
            return
        owner = meta.labels.get(self._keys.shard)
        if owner is not None and self._context.states.current.view.owner_state(owner) is OwnerState.LIVE:
            self._drop(lane, name, meta)
            return
        self._pending.put(pending.ref, meta, at=self._context.clock.now())
        self._retry(lane, name)

    def _is_ahead(self, name: str) -> bool:
        """Whether *name*, which was wanted, may control objects that no list has shown yet."""
        if self.unowned is None or self.unowned.knows_controlled or len(self._ahead) >= MOST_AHEAD:
            return False
        return self._is_wanted(name)

    def _is_wanted(self, name: str) -> bool:
        """Whether *name* is new, or was written since its owner was last heard of."""
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
            self.enqueue(parent)

    def _later(self, lane: Lane, name: str, due_at: float | None) -> None:
        """Decide again at *due_at*; None: when something changes."""
        lane.queue.forget(name)
        if due_at is not None:
            self._requeue(lane, name, due_at - self._context.clock.now())

    def _requeue(self, lane: Lane, name: str, delay_s: float) -> None:
        if self._pending.knows(name):
            lane.queue.add_after(name, delay_s, priority=self._pending.priority(name))

    def _retry(self, lane: Lane, name: str) -> None:
        if self._pending.knows(name):
            lane.queue.add_rate_limited(name, priority=self._pending.priority(name))
