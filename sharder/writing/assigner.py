"""The assigner: gives each pending object its owner, by one conditional patch on fresh evidence.

Owns an object from its turn in the queue to the server's answer. `sharder.planning.planner` decides what to write,
`AssignmentQueue` the order, `WriteLimiter` how many at once, `EvidenceReads` on which read of the Leases. A write that
met another version is decided anew on a fresh read and with fresh evidence.
"""

from __future__ import annotations

import asyncio
import random
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

import structlog

from kubeio.errors import KubeError
from kubeio.models import ObjectKey
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
from sharder.unowned.assignment_queue import AssignmentQueue
from sharder.unowned.pending import Lane, ObjectRef, PendingObject
from sharder.writing.evidence_reads import EvidenceRead, EvidenceReads
from sharder.writing.limiter import WriteLimiter
from sharder.writing.objects import WriteOutcome

if TYPE_CHECKING:
    from sharder.unowned.pending import PendingObjects
    from sharder.unowned.reflectors import UnownedReflectors
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

UNATTENDED: Final = (Lane.NEW, Lane.ORPHANED)
"""Objects without a worker that somebody misses; of the backlog of a first assignment none was ever worked."""
LOOK_AGAIN_S: Final = 0.5
FEW_OBJECTS: Final = 16
FEW_OWNERS: Final = 4
"""Up to so many objects for so many owners, these owners' Leases are read one by one: quicker than a list of all."""
REST: Final = 4
"""So many times as long as a look at everything took, the next one waits: 10 us an object, and membership may change
many times a second while names are forged."""
SOME: Final = 8
"""Objects brought to try a resource again: one of them is written, some may wait for their owners."""
_GRAIN_S: Final = 0.001
"""Timers are no finer: what is due within this is due."""
MOST_AHEAD: Final = 10_000
CHILDREN_AT_ONCE: Final = 100
"""Controlled objects that go first because their controller is wanted: each costs a search of its lane."""


class Work(NamedTuple):
    """An object in its turn, as it was when *proof* covered it; None if it waits no more."""

    name: str
    pending: PendingObject | None
    proof: EvidenceRead


class Assigner:
    """Works off *pending* until cancelled. Inside, objects go by their names in *pending*."""

    def __init__(
        self,
        context: RingContext,
        pending: PendingObjects,
        *,
        rng: random.Random,
        limiter: WriteLimiter | None = None,
    ) -> None:
        self._context = context
        self._keys = context.keys
        self._pending = pending
        self._rng = rng
        self._queue = AssignmentQueue(pending, rng=rng)
        self._limiter = limiter or WriteLimiter(clock=context.clock, rng=rng)
        self._proofs = EvidenceReads(
            context, self._queue, self._limiter, few_owners=self._few_owners, rng=rng
        )
        self._due_changed = asyncio.Event()
        self._waited_s = context.metrics.assign_s.labels(ring=context.spec.name)
        self._idle: list[asyncio.Future[Work]] = []
        self._ahead: set[str] = set()
        """Uids of wanted controllers that went before their controlled objects were known."""
        self.unowned: UnownedReflectors | None = None

    def to_do(self) -> int:
        """Number of queue entries to handle now."""
        return len(self._queue)

    def backlog(self) -> int:
        """Number of queue entries of a first assignment to handle now."""
        return self._queue.count(Lane.BACKLOG)

    def enqueue(self, work: ObjectRef) -> None:
        """Decide about *work* soon."""
        self.enqueue_name(self._pending.name(work))

    def enqueue_name(self, name: str) -> None:
        """`enqueue` by the object's name in *pending*."""
        if self._add(name):
            self._proofs.wake()

    def _add(self, name: str, *, is_wanted: bool = False) -> bool:
        """Give *name* a turn, in the first lane if it *is_wanted* or was written since its owner was last heard of.

        Not if it names a shard whose Lease has to be judged first: nothing can be written before, and anybody may
        write such a name: it costs no turn and no evidence.
        """
        owner = self._pending.label(name, self._keys.shard)
        if owner is not None:
            view = self._context.states.current.view
            owner_state = view.owner_state(owner)
            if owner_state is OwnerState.UNKNOWN and not (
                view.hold and view.hold.reason is WaitReason.NOT_SYNCED
            ):
                self._context.membership.unknown_name_seen(owner)
            if owner_state in (OwnerState.UNKNOWN, OwnerState.CONTESTED) or not self._pending.knows(name):
                return False
            life = view.lives.get(owner)
            is_news = life is not None and 0 < life.heard < self._pending.version(name)
            if is_wanted or is_news or self._waits_for(name):
                self._queue.hurry(name)
        self._queue.add(name)
        return True

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
        self._proofs.wake()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_states(), name="replan on state")
            tasks.create_task(self._proofs.run(), name="evidence")
            tasks.create_task(self._wake_when_due(), name="look again")
            tasks.create_task(self._assign(UNATTENDED, Pace.URGENT, tasks), name="unattended objects")
            tasks.create_task(self._assign((Lane.BACKLOG,), Pace.BACKGROUND, tasks), name="backlog")

    async def _assign(self, lanes: tuple[Lane, ...], pace: Pace, tasks: asyncio.TaskGroup) -> None:
        """Take the objects of *lanes* one after the other, at the ring's own pace if it names one."""
        pace, ahead = self._context.spec.pace or pace, lanes == UNATTENDED
        while True:
            await self._proofs.next(lanes)
            await self._limiter.enter(pace, ahead=ahead)
            proof = self._proofs.current(lanes)  # the turn may have come late
            name = self._queue.take(proof.covered, lanes) if proof is not None else None
            if proof is None or name is None:
                self._limiter.leave()
                self._resume_lists()  # all that was on the agenda may have gone
                continue
            work = Work(name, self._pending.by_name(name), proof)  # a version that comes later is not covered
            if self._idle:
                self._idle.pop().set_result(work)
            else:
                tasks.create_task(self._work(work), name="assign")

    async def _follow_states(self) -> None:
        state = self._context.states.current
        while True:
            state = await self._context.states.wait_newer(state)
            began_at = self._context.clock.now()
            self.enqueue_all()
            await asyncio.sleep(REST * (self._context.clock.now() - began_at))

    async def _wake_when_due(self) -> None:
        while True:
            now = self._context.clock.now()
            self._queue.wake(now + _GRAIN_S)
            self._proofs.wake()
            self._due_changed.clear()
            due_at = self._queue.next_due_at
            try:
                async with asyncio.timeout(None if due_at is None else due_at - now):
                    await self._due_changed.wait()
            except TimeoutError:
                pass

    # ---- one object, in its turn ------------------------------------------------------------------------------

    async def _work(self, work: Work) -> None:
        """Work one object after the other, each in a turn that `run` waited for: a task for each would cost more."""
        while True:
            try:
                await self._work_one(work)
            finally:
                self._limiter.leave()
            idle: asyncio.Future[Work] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            work = await idle

    async def _work_one(self, work: Work) -> None:
        name, pending, proof = work
        try:
            if pending is None:
                self._queue.done(name)
            else:
                await self._decide_and_write(name, pending, proof)
        except KubeError as error:
            log.warning("object could not be read", object=str(self._pending.work(name)), error=str(error))
            self._retry(name)
        self._resume_lists()

    def _resume_lists(self) -> None:
        if self.unowned is not None:
            self.unowned.resume_lists()

    async def _decide_and_write(self, name: str, pending: PendingObject, proof: EvidenceRead) -> None:
        decision = self._plan(pending, None)
        if isinstance(decision, NeedController):
            seen = await self._context.objects.read_controller(decision.controller)
            decision = self._plan(pending, seen)
        match decision:
            case Assign(to=to) if to not in proof.evidence.held:
                self._later(name, self._context.clock.now() + LOOK_AGAIN_S)
            case Assign() if not proof.is_valid(self._context.clock.now()):
                self._queue.done(name)
                self.enqueue_name(name)
            case Assign() | Strip():
                self._raise_children(name, pending)  # those that it was not held back for
                resource = self._context.resource(pending.work)
                outcome = await self._context.objects.write_in_turn(resource, pending.meta, decision)
                await self._settle(name, pending, decision, outcome)
            case Wait(reason=WaitReason.CHILDREN_FIRST, until=until):
                self._raise_children(name, pending)
                self._later(name, until)
            case Wait(until=until):
                self._later(name, until)
            case ReportUnknown(name=unknown):
                self._context.membership.unknown_name_seen(unknown)
                self._queue.done(name)
            case Drain() | UpdateDrain() | ReleaseDrain() | Nothing() | NeedController():
                self._dismiss(name, pending)
            case _:
                assert_never(decision)

    def _raise_children(self, name: str, pending: PendingObject) -> None:
        """If *name* is wanted: some at a time, since each that gets an owner gives its controller a turn again."""
        if not self._is_wanted(name):
            return
        for child in islice(self._pending.controlled_by(pending.meta.uid), CHILDREN_AT_ONCE):
            if self._pending.lane(child) is not Lane.NEW:
                self._add(child, is_wanted=True)

    def _plan(self, pending: PendingObject, controller: ControllerSeen | None) -> Decision:
        context = self._context
        subject = context.subject(
            context.resource(pending.work),
            pending.meta,
            controller=controller,
            children_since=self._held_back_since(pending),
        )
        return context.plan(subject)

    def _few_owners(self) -> frozenset[str] | None:
        """Owners that all queue entries would get now; None if there are none or many, or if they are not known yet."""
        if len(self._queue) > FEW_OBJECTS:
            return None
        owners = set()
        for name in self._queue.names():
            pending = self._pending.by_name(name)
            match self._plan(pending, None) if pending is not None else None:
                case NeedController():
                    return None
                case Assign(to=to):
                    owners.add(to)
                case _:
                    pass
        return frozenset(owners) if 0 < len(owners) <= FEW_OWNERS else None

    def _held_back_since(self, pending: PendingObject) -> float | None:
        """Instant since which a dead shard's object waits for its controlled objects; None if none of them waits."""
        keys, view = self._keys, self._context.states.current.view
        name = pending.meta.labels.get(keys.shard)
        if name is None or view.owner_state(name) is not OwnerState.DEAD:
            return None
        if not self._context.kinds.may_control(self._context.resource(pending.work)):
            return None
        are_known = self.unowned is None or self.unowned.knows_controlled
        children = self._pending.controlled_by(pending.meta.uid)
        if are_known and not any(self._pending.label(child, keys.shard) == name for child in children):
            return None
        life = view.lives.get(name)
        return max(pending.since, life.since) if life is not None else pending.since

    # ---- what came of it --------------------------------------------------------------------------------------

    def _dismiss(self, name: str, pending: PendingObject) -> None:
        """Forget an object that needs no new owner: a live owner has it, or it is no business of the ring's.

        Every change that matters shows it again: an owner's death switches the watch or is met by a pass, a change
        of the object is an event, a change of the selected namespaces lists anew (`UnownedReflectors.refresh`).
        """
        self._pending.drop_named_up_to(name, order(pending.meta.resource_version))
        self._queue.done(name)

    async def _settle(
        self, name: str, pending: PendingObject, decision: Assign | Strip, outcome: WriteOutcome
    ) -> None:
        match outcome:
            case WriteOutcome.DONE:
                self._waited_s.observe(self._context.clock.now() - pending.since)
                if self._is_ahead(name):
                    self._ahead.add(pending.meta.uid)
                self._pending.drop_named_up_to(name, order(pending.meta.resource_version))
                self._look_at_controller(pending)
                self._queue.done(name)
            case WriteOutcome.GONE:
                self._pending.drop_named_up_to(name, order(pending.meta.resource_version))
                self._queue.done(name)
            case WriteOutcome.STALE:
                await self._read_again(name, pending)
            case WriteOutcome.LATER:
                self._retry(name)
            case WriteOutcome.DENIED:
                self._queue.done(name)  # `permissions.try_again` brings it back
            case WriteOutcome.REFUSED:
                again_at = self._context.objects.refusals.again_at(pending.work)
                self._later(name, again_at or self._context.clock.now() + LOOK_AGAIN_S)
            case _:
                assert_never(outcome)

    async def _read_again(self, name: str, pending: PendingObject) -> None:
        meta = await self._context.objects.read(self._context.resource(pending.work), pending.meta)
        if meta is None:
            self._pending.drop_named_up_to(name, order(pending.meta.resource_version))
            self._queue.done(name)
            return
        owner = meta.labels.get(self._keys.shard)
        if owner is not None and self._context.states.current.view.owner_state(owner) is OwnerState.LIVE:
            self._pending.drop_named_up_to(name, order(meta.resource_version))
            self._queue.done(name)
            return
        self._pending.put(pending.work, meta, at=self._context.clock.now())
        self._retry(name)

    def _is_ahead(self, name: str) -> bool:
        """Whether *name*, which was wanted, may control objects that no list has shown yet."""
        if self.unowned is None or self.unowned.knows_controlled or len(self._ahead) >= MOST_AHEAD:
            return False
        return self._is_wanted(name)

    def _is_wanted(self, name: str) -> bool:
        """Whether *name* is new, or was written since its owner was last heard of."""
        return self._pending.knows(name) and self._pending.lane(name) is Lane.NEW

    def _look_at_controller(self, pending: PendingObject) -> None:
        """A child was moved: its parent may have been held back for it."""
        if pending.meta.controller is None:
            return
        role = self._context.kinds.role(self._context.resource(pending.work), pending.meta)
        if isinstance(role, Controlled):
            parent = ObjectRef(
                role.controller.resource.group_resource,
                ObjectKey(role.controller.namespace, role.controller.name),
            )
            self.enqueue(parent)

    def _later(self, name: str, due_at: float | None) -> None:
        """Look again at *due_at*; None: when something changes."""
        if due_at is None:
            self._queue.done(name)
        else:
            self._queue.done_until(name, due_at)
            self._due_changed.set()

    def _retry(self, name: str) -> None:
        self._queue.failed(name, now=self._context.clock.now())
        self._due_changed.set()
