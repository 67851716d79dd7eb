"""Requests for handoffs: they wait for the drain budget of their owners, are planned anew, and are written."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from kubeio.errors import KubeError
from kubeio.models import Meta, ObjectRef
from sharder.planning.decisions import Decision, Drain, Nothing, ReleaseDrain
from sharder.planning.keys import Controlled, ControllerName, Role, essential
from sharder.writing.object_writer import WriteOutcome

if TYPE_CHECKING:
    from sharder.moving.handoffs import Handoffs
    from sharder.moving.scan_pass import Pass
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

WRITES_AT_ONCE: Final = 64


class Misplaced(NamedTuple):
    """An object to be handed over by *owner*; *controller*: only if that one, read anew, is elsewhere."""

    ref: ObjectRef
    meta: Meta
    role: Role
    owner: str
    controller: ControllerName | None = None


class DrainRequests:
    """Misplaced objects by owner, until they are requested from it."""

    def __init__(self, context: RingContext, handoffs: Handoffs) -> None:
        self._context = context
        self._handoffs = handoffs
        self._waiting: dict[str, deque[Misplaced]] = {}
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)

    def __len__(self) -> int:
        """Objects that wait for the budget."""
        return sum(map(len, self._waiting.values()))

    def add(self, misplaced: Misplaced, pass_: Pass) -> None:
        """Request *misplaced* when the budget allows it, unless it is in flight, as far as the watch shows."""
        if misplaced.ref in self._handoffs:
            pass_.deferred = True
            return
        kept = misplaced._replace(meta=essential(misplaced.meta, self._context.spec.labels_read))
        self._waiting.setdefault(misplaced.owner, deque()).append(kept)

    def clear(self) -> None:
        self._waiting.clear()

    def trim(self, at_most: int) -> None:
        """Forget what is more than *at_most*: each owner keeps an equal share, or one would keep all others out."""
        share = at_most // max(1, len(self._waiting))
        for queue in self._waiting.values():
            while len(queue) > share:
                queue.pop()

    def send_allowed(self, pass_: Pass, tasks: asyncio.TaskGroup) -> None:
        """Send the requests that the budget allows; *pass_* gets their outcomes."""
        now = self._context.clock.now()
        for owner in self._handoffs.budget.in_order(self._waiting, at=now):
            queue = self._waiting[owner]
            available = self._handoffs.budget.available(owner, at=now)
            while queue and available > 0:
                misplaced = queue.popleft()
                self._handoffs.begin(misplaced.ref, owner)
                available -= 1
                tasks.create_task(self._send(misplaced, pass_), name="drain")
            if not queue:
                del self._waiting[owner]

    async def _send(self, misplaced: Misplaced, pass_: Pass) -> None:
        """Send *misplaced*, planned anew: the ring may have changed while it waited."""
        outcome = WriteOutcome.STALE
        async with self._slots:
            try:
                decision = await self._decide(misplaced)
            except KubeError as error:
                log.warning("object could not be read", object=str(misplaced.ref), error=str(error))
                pass_.clean, pass_.deferred = False, True
            else:
                if isinstance(decision, Drain | ReleaseDrain):
                    resource = self._context.resource(misplaced.ref)
                    outcome = await self._context.objects.write(resource, misplaced.meta, decision)
                    pass_.asked += outcome not in (WriteOutcome.REFUSED, WriteOutcome.DENIED)
                if not isinstance(decision, Nothing):
                    pass_.clean = False
                    pass_.deferred |= outcome not in (WriteOutcome.DONE, WriteOutcome.GONE)
                elif misplaced.controller is not None:
                    pass_.deferred = True  # its controller is elsewhere, too, and may come without it
        if outcome is not WriteOutcome.DONE:
            self._handoffs.failed(misplaced.ref)
        elif isinstance(decision, ReleaseDrain) and not isinstance(misplaced.role, Controlled):
            self._handoffs.asked_to_give_up(misplaced.ref)

    async def _decide(self, misplaced: Misplaced) -> Decision:
        context, seen = self._context, None
        if misplaced.controller is not None:
            seen = await context.objects.read_controller(misplaced.controller)
        resource = context.resource(misplaced.ref)
        return context.plan(context.subject(resource, misplaced.meta, role=misplaced.role, controller=seen))
