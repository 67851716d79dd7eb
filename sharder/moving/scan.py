"""Passes over all objects with an owner: finds those not at their place and asks for them to be handed over.

Pass follows pass over pages of metadata, each under the newest ring. The ring has converged when one whole pass was
clean under one ring version. Objects that no watch shows are `sharder.moving.audit`'s to find.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import Expired, Forbidden, KubeError, NotFound
from kubeio.program.memory import give_memory_back
from sharder.moving.drain_requests import DrainRequests
from sharder.moving.missent import MissentCheck
from sharder.moving.page_check import PageCheck
from sharder.moving.scan_pass import Pass
from sharder.moving.touching import Touching
from sharder.unowned.permissions import Permission

if TYPE_CHECKING:
    from kubeio.models import ObjectRef
    from kubeio.resource import ApiResource
    from sharder.moving.handoffs import Handoffs
    from sharder.moving.missent import MissentObjects
    from sharder.planning.state import ScanVersion
    from sharder.writing.assignment_queue import AssignmentQueue
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

PAGE: Final = 500
MAX_WAITING: Final = 5000
"""Objects remembered while the drain budget is used up; then the list is held."""
HOLD_S: Final = 30.0
"""The budget holds a pass for so long in all: one owner that is slow or hangs would keep the next pass from all others.
A pass that was held so long is followed at once by the next one, so that is also the least time between two."""
HOLD_PER_LIST: Final = 10
"""At its end it holds a pass so many times as long as the lists took, if that is more: they spare the API server."""
RETRY_S: Final = 1.0
ANEW_S: Final = 0.1
"""A change of the ring ends a pass; the next one begins this much later."""
STALLED_S: Final = 5.0
"""With no handoff begun or ended for so long, and then for twice that, another pass finds lost requests."""
LONGEST_RETRY_S: Final = 30.0
MUCH_TO_DO: Final = 500
"""Objects without an owner in the queues: passes yield to them."""
YIELDS_S: Final = 120.0
"""Passes yield at most this long: on a server that is always full, objects have to come to their places too."""


class Scan:
    """Moves objects between live shards until every one is at its place; until cancelled."""

    def __init__(
        self, context: RingContext, handoffs: Handoffs, missent: MissentObjects, queue: AssignmentQueue
    ) -> None:
        self._context = context
        self._handoffs = handoffs
        self._queue = queue
        self._requests = DrainRequests(context, handoffs)
        self._page_check = PageCheck(context, handoffs, self._requests, queue)
        self._missent_check = MissentCheck(context, missent, handoffs, queue, request_pass=self.request_pass)
        self._requested = asyncio.Event()
        self._suspects: dict[ObjectRef, str] = {}
        self._touching = Touching(context)
        self._stalls = 0
        self._may_be_stopped = False
        self.converged_version: ScanVersion | None = None
        """The version under which the last whole pass was clean."""
        self.converged_at = 0.0
        """End of that pass, on the sharder's clock."""
        self.last_seen: int | None = None
        """Objects with an owner in that pass; None if not all could be read."""
        self.landed = asyncio.Event()
        """Set once no object can be stored any more that was given an owner at admission before this run."""
        self.former_free = asyncio.Event()
        """Set once no object that the ring gave up with its kind carries a label, or can get one."""
        self.still_labelled: int | None = None
        """Number of those in the last pass; None if it could not see all."""

    @property
    def is_converged(self) -> bool:
        """Whether every object with a live owner was found at its place under the present ring."""
        return self.converged_version == self._version

    @property
    def misplaced(self) -> int:
        """Objects that wait for the drain budget."""
        return len(self._requests)

    def request_pass(self, *, stays_converged: bool = False) -> None:
        """Make another pass. Unless the ring *stays_converged*, it is in doubt what the last one found."""
        if not stays_converged:
            self.converged_version = None
        self._requested.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._touching.run(), name="touch")  # it compares with the namespaces of now
            await self._handoffs.synced.wait()
            tasks.create_task(self._missent_check.run(), name="missent objects")
            tasks.create_task(self._run_passes(), name="passes")

    async def _run_passes(self) -> None:
        idle, stripped, version = 0, 0, self._version
        while True:
            self._requested.clear()
            if version != self._version:
                # objects that could not be moved may be at their places soon
                idle, version = 0, self._version
            await self._yield_to_assignments()
            has_landed = self.landed.is_set()
            # NotFound ends the run: RingController asks which resource is served
            pass_ = await self._run_pass()
            self._note_former(pass_, has_landed=has_landed)
            if pass_.version != self._version or (pass_.held_s >= _longest_hold_s(pass_) and not pass_.clean):
                await asyncio.sleep(ANEW_S)
            elif pass_.clean and not len(self._handoffs):
                self._converge(pass_)
                is_all_seen = pass_.whole and self.former_free.is_set()
                await self._wait_for_request(at_most_s=None if is_all_seen else LONGEST_RETRY_S)
            else:
                was_idle = stripped == self._context.objects.stripped
                stripped = self._context.objects.stripped
                is_idle = was_idle and not pass_.asked and not len(self._handoffs)
                idle = idle + 1 if is_idle else 0
                await self._wait_for_progress(pass_, idle)

    async def _yield_to_assignments(self) -> None:
        """Wait while many objects have no owner: a pass would only slow down their assignment."""
        began = self._context.clock.now()
        while self._queue.to_do() > MUCH_TO_DO and self._context.clock.now() < began + YIELDS_S:  # noqa: ASYNC110
            await asyncio.sleep(RETRY_S)
        self._may_be_stopped = self._queue.to_do() <= MUCH_TO_DO

    def _must_yield(self) -> bool:
        return self._may_be_stopped and self._queue.to_do() > MUCH_TO_DO

    def _note_former(self, pass_: Pass, *, has_landed: bool) -> None:
        self.still_labelled = pass_.former if pass_.whole else None
        if not self._touching.former_done or (self._context.kinds.former and not has_landed):
            return
        if pass_.whole and not pass_.former and self._handoffs.is_free_of_former():
            self.former_free.set()

    def _converge(self, pass_: Pass) -> None:
        if self._requested.is_set():
            return  # requested during the pass: the objects it saw first may have changed since
        view = self._context.states.current.view
        if view.ring is not None and self.converged_version != pass_.version:
            members = ", ".join(sorted(view.ring_members))
            self._context.events.record(
                self._context.ring,
                reason="Converged",
                action="Rebalance",
                note=f"every object with an owner is at its place; on the ring: {members}",
            )
            log.info(
                "ring converged",
                ring=self._context.spec.name,
                objects=pass_.seen,
                ring_version=pass_.version.ring,
            )
            self.converged_at = self._context.clock.now()
            give_memory_back()  # 10 MB after a change among 1,000 members
        self.converged_version = pass_.version
        self.last_seen = pass_.seen if pass_.whole else None

    @property
    def _version(self) -> ScanVersion:
        return self._context.states.current.scan_version

    def _is_outdated(self, pass_: Pass) -> bool:
        """Whether the ring changed. Namespaces alone do not end a pass: with many new ones no pass would end."""
        return pass_.version.ring != self._version.ring

    async def _run_pass(self) -> Pass:
        pass_ = Pass(self._version, suspected=self._suspects)
        self._page_check.forget_controllers()
        async with asyncio.TaskGroup() as tasks:
            for resource in self._context.kinds.labelled:
                if resource in self._context.kinds.former:
                    await self._pass_former(resource, pass_, tasks)
                else:
                    await self._pass_allowed(resource, pass_, tasks)
            await self._send_requests(pass_, tasks, may_wait=0, hold_s=_longest_hold_s(pass_))
        pass_.whole = pass_.whole and pass_.version == self._version
        self._requests.clear()
        self._suspects = pass_.suspects
        return pass_

    async def _pass_former(self, resource: ApiResource, pass_: Pass, tasks: asyncio.TaskGroup) -> None:
        """Scan a resource that the ring gave up. It may be out of reach by now, which stops no other resource."""
        try:
            for namespace in self._context.scope.namespaces:
                await self._pass(resource, namespace, pass_, tasks)
        except NotFound:
            raise
        except KubeError as error:
            pass_.whole = False
            log.warning("removed resource cannot be listed", ring=self._context.spec.name, error=str(error))

    async def _pass_allowed(self, resource: ApiResource, pass_: Pass, tasks: asyncio.TaskGroup) -> None:
        """Scan *resource*; a missing permission to list, or a server that cannot list, stops no other resource.

        A pass that left something out proves nothing.
        """
        for namespace in self._context.scope.namespaces:
            right = Permission("list", resource.group_resource, namespace)
            try:
                await self._pass(resource, namespace, pass_, tasks)
            except NotFound:
                raise
            except KubeError as error:
                if not isinstance(error, Forbidden):
                    log.warning(
                        "resource left out of the pass", ring=self._context.spec.name, error=str(error)
                    )
                self._context.permissions.failed(right, error)
                pass_.clean = pass_.whole = False
            else:
                self._context.permissions.granted(right)

    async def _pass(
        self, resource: ApiResource, namespace: str, pass_: Pass, tasks: asyncio.TaskGroup
    ) -> None:
        pages = self._context.client.pages(
            resource,
            namespace=namespace,
            label_selector=self._context.keys.shard,
            limit=PAGE,
            metadata_only=True,
        )
        with suppress(Expired):
            asked_at = self._context.clock.now()
            async for page in pages:
                took_s = self._context.clock.now() - asked_at
                pass_.listed_s += took_s
                metas = [item.meta for item in page.objects]
                await self._page_check.check(resource, metas, pass_)
                # not longer: a list expires after five minutes, and the next one would end at the same page
                await self._send_requests(pass_, tasks, may_wait=MAX_WAITING, hold_s=HOLD_S)
                if self._is_outdated(pass_):
                    return
                if self._must_yield():
                    break  # the rest of this list would be old by the time the pass went on
                await asyncio.sleep(min(took_s, RETRY_S))  # half of the time belongs to other clients
                asked_at = self._context.clock.now()
            else:
                return
        pass_.clean = pass_.whole = False  # given up, or expired while we waited: the next pass sees the rest

    async def _send_requests(
        self, pass_: Pass, tasks: asyncio.TaskGroup, *, may_wait: int, hold_s: float
    ) -> None:
        """Send requests until *may_wait* wait at most; once the pass was held for *hold_s*, the next sends the rest."""
        self._requests.send_allowed(pass_, tasks)
        while len(self._requests) > may_wait and not self._is_outdated(pass_):
            if pass_.held_s >= hold_s:
                pass_.clean = False
                self._requests.trim(may_wait)
                return
            began_at = self._context.clock.now()
            await self._handoffs.wait_changed(at_most_s=RETRY_S)
            pass_.held_s += self._context.clock.now() - began_at
            self._requests.send_allowed(pass_, tasks)

    # ---- between two passes -----------------------------------------------------------------------------------

    async def _wait_for_progress(self, pass_: Pass, idle: int) -> None:
        """Return when another pass is due: the handoffs ended, the ring changed, or a pass was requested.

        *idle* passes in a row could request no handoff (paused, owners silent): they come more rarely.
        """
        in_flight, since = len(self._handoffs), self._context.clock.now()
        while len(self._handoffs) or self._handoffs.budget.is_moving(at=self._context.clock.now()):
            await self._handoffs.wait_changed(at_most_s=RETRY_S)
            if self._version != pass_.version or self._requested.is_set():
                return
            if len(self._handoffs) != in_flight:
                in_flight, since, self._stalls = len(self._handoffs), self._context.clock.now(), 0
            elif self._context.clock.now() - since >= min(STALLED_S * 2**self._stalls, LONGEST_RETRY_S):
                self._stalls = min(self._stalls + 1, 10)
                return  # owners are slow, or a request was removed by another client: only a pass can show it
        await self._wait_for_change(at_most_s=min(RETRY_S * 2 ** min(idle, 10), LONGEST_RETRY_S))

    async def _wait_for_request(self, *, at_most_s: float | None) -> None:
        """Converged: until the state of the ring changes, or a pass is requested."""
        until = self._context.clock.now() + at_most_s if at_most_s is not None else math.inf
        while not self._requested.is_set() and self.is_converged:
            if self._context.clock.now() >= until:
                return
            await self._wait_for_change(at_most_s=LONGEST_RETRY_S)

    async def _wait_for_change(self, *, at_most_s: float) -> None:
        """Return at the next state of the ring, when a pass is requested, or after *at_most_s*."""
        states = self._context.states
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s), asyncio.TaskGroup() as tasks:
                waits = [
                    tasks.create_task(self._requested.wait(), name="pass requested"),
                    tasks.create_task(states.wait_newer(states.current), name="newer state"),
                ]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()


def _longest_hold_s(pass_: Pass) -> float:
    """How long the drain budget may hold *pass_* until another one is due."""
    return max(HOLD_S, HOLD_PER_LIST * pass_.listed_s)
