"""Queue of pending objects that are to be decided about: two lanes, each with a pace and priorities of its own.

Reflectors, scan and audit fill it, `sharder.writing.assigner` empties it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kubeio.queues.workqueue import WorkQueue
from sharder.membership.view import OwnerState, WaitReason
from sharder.ringspec.spec import Pace
from sharder.unowned.pending import AssignmentPriority

if TYPE_CHECKING:
    from kubeio.models import Meta, ObjectRef
    from sharder.unowned.pending import PendingObjects
    from sharder.writing.limiter import WriteLimiter
    from sharder.writing.ring_context import RingContext

SOME: Final = 8
"""Objects enqueued to try a resource again: one of them is written, some may wait for their owners."""
SPARE: Final = 4
"""Objects in hand beyond the writes that may be under way: their plans and evidence are ready when a slot is free."""
FIRST_RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 10.0
MOST_AHEAD: Final = 10_000


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


class AssignmentQueue:
    """Objects by their names in *pending*: a string each, however much is known of them."""

    def __init__(self, context: RingContext, pending: PendingObjects) -> None:
        self._context = context
        self._pending = pending
        self._shard_label = context.keys.shard
        pace = context.spec.pace
        self.unattended = Lane(self._make_queue(), pace or Pace.URGENT, is_ahead=True)
        """Objects without a worker whose delay users notice."""
        self.first_time = Lane(self._make_queue(), pace or Pace.BACKGROUND, is_ahead=False)
        """A first assignment: none of these was ever worked."""
        self._ahead: set[str] = set()
        """Uids of wanted controllers that went before their controlled objects were known."""

    def to_do(self) -> int:
        """Number of names that wait."""
        return len(self.unattended.queue) + len(self.first_time.queue)

    def backlog(self) -> int:
        """Number of names that wait for a first assignment."""
        return len(self.first_time.queue)

    def knows(self, ref: ObjectRef) -> bool:
        """Whether *ref* waits for a decision."""
        return self._pending.knows(self._pending.name(ref))

    def is_full(self, resource: str) -> bool:
        """Whether so many objects of *resource* wait that only the watches add more."""
        return self._pending.is_full(resource)

    def enqueue_unshown(self, ref: ObjectRef, meta: Meta) -> bool:
        """Enqueue an object that no watch has shown, unless too many wait; true if it was not known to wait."""
        is_new = not self.knows(ref)
        if is_new and self.is_full(ref.resource):
            return False
        if self._pending.put(ref, meta, at=self._context.clock.now()):
            self.enqueue(ref)
        return is_new

    def enqueue(self, ref: ObjectRef) -> None:
        """Decide about *ref* soon."""
        self.enqueue_name(self._pending.name(ref))

    def enqueue_name(self, name: str, *, is_wanted: bool = False) -> None:
        """Decide about *name* soon; first if it *is_wanted* or was written after its owner's last renewal but one.

        Not if it names a shard whose Lease has to be judged first: nothing can be written before, and any client may
        write such a name: it costs no slot and no evidence.
        """
        if not self._pending.knows(name):
            return
        owner = self._pending.label(name, self._shard_label)
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
            was_written = shard is not None and 0 < shard.renewal_before < self._pending.version(name)
            if is_wanted or was_written or self._waits_for(name):
                self._pending.raise_priority(name)
        priority = self._pending.priority(name)
        lane, other = self.unattended, self.first_time
        if priority is AssignmentPriority.BACKLOG:
            lane, other = other, lane
        if other.queue.is_processing(name):  # it was made anew meanwhile
            lane, other = other, lane
        other.queue.discard(name)
        lane.queue.add(name, priority=priority)

    def enqueue_some(self, resource: str, namespace: str) -> None:
        """Decide about some objects of *resource* in *namespace*, if any wait: writing is to be tried again.

        Never the same ones: those that came first may be the ones that cannot be written.
        """
        begins = self._pending.area(resource, namespace)
        found = [name for name in self._pending.names() if name.startswith(begins)]
        for name in self._context.rng.sample(found, min(len(found), SOME)):
            self.enqueue_name(name)

    def enqueue_all(self) -> None:
        """Decide about everything that waits."""
        for name in tuple(self._pending.names()):
            self.enqueue_name(name)

    def controlled_listed(self) -> None:
        """Decide about everything that waits: all controlled objects are known by now."""
        self._ahead.clear()
        self.enqueue_all()

    def note_ahead(self, uid: str) -> None:
        """The controller *uid* got its owner before its controlled objects were known: those follow it at once."""
        if len(self._ahead) < MOST_AHEAD:
            self._ahead.add(uid)

    def _waits_for(self, name: str) -> bool:
        """Whether the controller of *name* went ahead."""
        return bool(self._ahead) and self._pending.controller(name) in self._ahead

    def _make_queue(self) -> WorkQueue[str]:
        return WorkQueue(
            clock=self._context.clock,
            rng=self._context.rng,
            base_delay_s=FIRST_RETRY_S,
            max_delay_s=LONGEST_RETRY_S,
            priorities=AssignmentPriority,
        )
