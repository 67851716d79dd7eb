"""Passes over all objects with an owner: finds those not at their place and asks for them to be handed over.

Pass follows pass over pages of metadata, each under the newest ring. The ring has converged when one whole pass was
clean under one ring version. Objects that no watch shows are `sharder.moving.audit`'s to find.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from kubeio.errors import Expired, Forbidden, KubeError, NotFound
from kubeio.models import Meta
from kubeio.program.memory import give_memory_back
from sharder.moving.touching import Touching
from sharder.planning.controllers import ControllerKeys
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
from sharder.planning.keys import Controlled, ControllerName, Outsider, Role, essential
from sharder.unowned.pending import ObjectRef
from sharder.unowned.permissions import Permission
from sharder.writing.objects import WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeio.resource import ApiResource
    from sharder.moving.handoffs import Handoffs
    from sharder.planning.state import ScanVersion
    from sharder.unowned.pending import PendingObjects
    from sharder.writing.assigner import Assigner
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

PAGE: Final = 500
WRITES_AT_ONCE: Final = 64
MAX_DEFERRED: Final = 5000
"""Objects remembered while their owners have no room for another handoff; then the pass waits."""
MAX_DISPLACED: Final = 10_000
"""Roots remembered as not at their place, a megabyte; with more, what they control waits for a later circle."""
RETRY_S: Final = 1.0
ANEW_S: Final = 0.1
"""A circle that the ring changed under is over; the next one begins this much later."""
MAX_SUSPECTS: Final = 2_000
"""Objects remembered until the next circle because their page may be stale; with more, a later one finds the rest."""
MAX_MISLED: Final = 1_000
"""Objects remembered that were passed on to where they do not belong; with more, a circle finds the rest."""
CORRECT_EVERY_S: Final = 0.5
"""Such an object is read this often at most: drain labels can be forged hundreds of times a second."""
STALLED_S: Final = 5.0
"""With no handoff begun or ended for so long, and then for twice that, another circle looks for lost requests."""
LONGEST_RETRY_S: Final = 30.0
MUCH_TO_DO: Final = 500
"""Objects without an owner on the agenda: circles give way to them."""
GIVES_WAY_S: Final = 120.0
"""For at most this long: on a server that is always full, objects have to come to their places too."""


class Misplaced(NamedTuple):
    """An object to be handed over by *owner*; *controller*: only if that one, read anew, is elsewhere."""

    work: ObjectRef
    meta: Meta
    role: Role
    owner: str
    controller: ControllerName | None = None


@dataclass(slots=True)
class Pass:
    """Findings of one pass. *clean*: nothing had to be done or waited for; *whole*: nothing was left out.

    *former* counts labelled objects that the ring gave up with their kind. *displaced* are the uids of objects that are
    not at their place: the objects that they control move with them, and are not judged. *suspects* are the versions of
    objects that bear a dead shard's name and are not known to wait; *suspected* are the suspects of the pass before.
    """

    version: ScanVersion
    seen: int = 0
    asked: int = 0
    former: int = 0
    clean: bool = True
    whole: bool = True
    displaced: set[str] = field(default_factory=set)
    suspects: dict[ObjectRef, str] = field(default_factory=dict)
    suspected: dict[ObjectRef, str] = field(default_factory=dict)

    def displace(self, uid: str) -> None:
        """An object is not at its place."""
        if len(self.displaced) <= MAX_DISPLACED:
            self.displaced.add(uid)

    @property
    def knows_displaced(self) -> bool:
        """Whether *displaced* is complete."""
        return len(self.displaced) <= MAX_DISPLACED


class Scan:
    """Moves objects between live shards until every one is at its place; until cancelled."""

    def __init__(
        self, context: RingContext, handoffs: Handoffs, pending: PendingObjects, assigner: Assigner
    ) -> None:
        self._context = context
        self._handoffs = handoffs
        handoffs.on_missent = self.enqueue
        self._pending = pending
        self._assigner = assigner
        self._ancestry = ControllerKeys(context.kinds, context.objects.read_controller)
        self._deferred: dict[str, deque[Misplaced]] = {}
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)
        self._requested = asyncio.Event()
        self._missent: set[ObjectRef] = set()
        self._suspects: dict[ObjectRef, str] = {}
        self._was_misled = asyncio.Event()
        self._touching = Touching(context)
        self._stalls = 0
        self._may_be_stopped = False
        self.converged_version: ScanVersion | None = None
        """The version under which the last whole pass was clean."""
        self.converged_at = 0.0
        """When that circle ended, on the sharder's clock."""
        self.last_seen: int | None = None
        """Objects with an owner in that circle; None if not all could be read."""
        self.former_free = asyncio.Event()
        """Set once no object that the ring gave up with its kind carries a label."""
        self.still_labelled: int | None = None
        """How many of those the last circle saw; None if it could not see all."""

    @property
    def is_converged(self) -> bool:
        """Whether every object with a live owner was found at its place under the present ring."""
        return self.converged_version == self._version

    @property
    def misplaced(self) -> int:
        """Objects that wait for room to be handed over."""
        return sum(map(len, self._deferred.values()))

    def request_pass(self, *, stays_converged: bool = False) -> None:
        """Make another pass. Unless the ring *stays_converged*, it is in doubt what the last one found."""
        if not stays_converged:
            self.converged_version = None
        self._requested.set()

    def enqueue(self, work: ObjectRef) -> None:
        """Read one object and see to it: it may be where it does not belong. A circle would cost far more."""
        if len(self._missent) < MAX_MISLED:
            self._missent.add(work)
        self._was_misled.set()

    async def run(self) -> None:
        await self._handoffs.synced.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._correct(), name="misled objects")
            tasks.create_task(self._touching.run(), name="touch")
            tasks.create_task(self._go_round(), name="passes")

    async def _correct(self) -> None:
        """Look at what was misled, a batch at a time; where it is too much, in a circle now and then."""
        nudged_at = -math.inf
        while True:
            await self._was_misled.wait()
            self._was_misled.clear()
            works, self._missent = self._missent, set()
            async with asyncio.TaskGroup() as tasks:
                circle = Pass(self._version)
                for work in works:
                    await self._look_at_one(work, circle)
                self._send_what_has_room(circle, tasks)
            is_left = len(works) >= MAX_MISLED or bool(self._deferred)
            if is_left and self._context.clock.now() - nudged_at >= LONGEST_RETRY_S:
                nudged_at = self._context.clock.now()
                self.request_pass()
            await asyncio.sleep(CORRECT_EVERY_S)

    async def _look_at_one(self, work: ObjectRef, circle: Pass) -> None:
        resource = self._context.resource(work)
        named = Meta(name=work.key.name, namespace=work.key.namespace)
        try:
            meta = await self._context.objects.read(resource, named)
        except KubeError as error:
            log.warning("object could not be read", object=str(work), error=str(error))
            self._missent.add(work)
            self._was_misled.set()
            return
        if meta is not None:
            circle.suspected[work] = meta.resource_version  # a read is not stale
            await self._look_at_page(resource, [meta], circle)

    async def _go_round(self) -> None:
        idle, stripped, version = 0, 0, self._version
        while True:
            self._requested.clear()
            if version != self._version:
                # what nothing could be done for may be at its place soon
                idle, version = 0, self._version
            await self._give_way()
            try:
                circle = await self._circle()
            except* NotFound:
                raise  # a resource is not served any more, or not in this version: `ringwork` asks which
            except* KubeError as group:
                log.warning("pass interrupted", ring=self._context.spec.name, error=str(group.exceptions[0]))
                circle = Pass(self._version, clean=False, whole=False)
            self._note_former(circle)
            if circle.version != self._version:
                await asyncio.sleep(ANEW_S)
            elif circle.clean and not len(self._handoffs):
                self._converge(circle)
                await self._wait_for_work(at_most_s=None if circle.whole else LONGEST_RETRY_S)
            else:
                was_idle = stripped == self._context.objects.stripped
                stripped = self._context.objects.stripped
                is_idle = was_idle and not circle.asked and not len(self._handoffs)
                idle = idle + 1 if is_idle else 0
                await self._wait_for_progress(circle, idle)

    async def _give_way(self) -> None:
        """While many objects have no owner, a circle would only slow down what gives them one."""
        began = self._context.clock.now()
        while self._assigner.to_do() > MUCH_TO_DO and self._context.clock.now() < began + GIVES_WAY_S:  # noqa: ASYNC110
            await asyncio.sleep(RETRY_S)
        self._may_be_stopped = self._assigner.to_do() <= MUCH_TO_DO

    def _must_give_way(self) -> bool:
        return self._may_be_stopped and self._assigner.to_do() > MUCH_TO_DO

    def _note_former(self, circle: Pass) -> None:
        self.still_labelled = circle.former if circle.whole else None
        if not self._touching.former_done:
            return
        if circle.whole and not circle.former and self._handoffs.is_free_of_former():
            self.former_free.set()

    def _converge(self, circle: Pass) -> None:
        if self._requested.is_set():
            return  # while it went round: what it saw first may have changed since
        view = self._context.states.current.view
        if view.ring is not None and self.converged_version != circle.version:
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
                objects=circle.seen,
                ring_version=circle.version.ring,
            )
            self.converged_at = self._context.clock.now()
            give_memory_back()  # 10 MB after a change among 1,000 members
        self.converged_version = circle.version
        self.last_seen = circle.seen if circle.whole else None

    @property
    def _version(self) -> ScanVersion:
        return self._context.states.current.scan_version

    def _is_outdated(self, circle: Pass) -> bool:
        """Whether the ring changed. Namespaces alone do not end a pass: where many are made, none would end."""
        return circle.version.ring != self._version.ring

    async def _circle(self) -> Pass:
        circle = Pass(self._version, suspected=self._suspects)
        self._ancestry.forget()
        async with asyncio.TaskGroup() as tasks:
            for resource in self._context.kinds.labelled:
                if resource in self._context.kinds.former:
                    await self._pass_former(resource, circle, tasks)
                else:
                    await self._pass_allowed(resource, circle, tasks)
            while self._deferred and not self._is_outdated(circle):
                self._send_what_has_room(circle, tasks)
                if self._deferred:
                    await self._handoffs.wait_changed(at_most_s=RETRY_S)
        circle.whole = circle.whole and circle.version == self._version
        self._deferred.clear()
        self._suspects = circle.suspects
        return circle

    async def _pass_former(self, resource: ApiResource, circle: Pass, tasks: asyncio.TaskGroup) -> None:
        """A resource that the ring gave up may be out of reach by now: that must not stop the others."""
        try:
            for namespace in self._context.scope.namespaces:
                await self._pass(resource, namespace, circle, tasks)
        except NotFound:
            raise
        except KubeError as error:
            circle.whole = False
            log.warning("removed resource cannot be listed", ring=self._context.spec.name, error=str(error))

    async def _pass_allowed(self, resource: ApiResource, circle: Pass, tasks: asyncio.TaskGroup) -> None:
        """Scan *resource*; a missing permission to list, or a server that cannot list, stops no other resource.

        A pass that left something out proves nothing.
        """
        for namespace in self._context.scope.namespaces:
            right = Permission("list", resource.group_resource, namespace)
            try:
                await self._pass(resource, namespace, circle, tasks)
            except Forbidden as error:
                self._context.permissions.denied(right, error)
                circle.clean = circle.whole = False
            except NotFound:
                raise
            except KubeError as error:
                log.warning("resource left out of the pass", ring=self._context.spec.name, error=str(error))
                self._context.permissions.failed(right, error)
                circle.clean = circle.whole = False
            else:
                self._context.permissions.granted(right)

    async def _pass(
        self, resource: ApiResource, namespace: str, circle: Pass, tasks: asyncio.TaskGroup
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
                metas = [item.meta for item in page.objects]
                await self._look_at_page(resource, metas, circle)
                self._send_what_has_room(circle, tasks)
                while self.misplaced > MAX_DEFERRED and not self._is_outdated(circle):
                    await self._handoffs.wait_changed(at_most_s=RETRY_S)
                    self._send_what_has_room(circle, tasks)
                if self._is_outdated(circle):
                    return
                if self._must_give_way():
                    break  # what is left of this list would be old by the time we came back to it
                await asyncio.sleep(min(took_s, RETRY_S))  # half of the time belongs to other clients
                asked_at = self._context.clock.now()
            else:
                return
        circle.clean = circle.whole = (
            False  # given up, or expired while we waited: the next circle sees the rest
        )

    async def _look_at_page(self, resource: ApiResource, metas: Sequence[Meta], circle: Pass) -> None:
        """One object whose controller cannot be read makes the circle unclean, and nothing else."""
        found = await self._ancestry.resolved(self._context.kinds.role(resource, meta) for meta in metas)
        unread: list[tuple[Meta, KubeError]] = []
        for meta, role in zip(metas, found, strict=True):
            if isinstance(role, KubeError):
                unread.append((meta, role))
                circle.clean = circle.whole = False
                continue
            self._ancestry.met(resource, meta, role)
            self._look(resource, meta, role, circle)
        if unread:
            log.warning(
                "controllers could not be read",
                ring=self._context.spec.name,
                objects=len(unread),
                first=f"{resource.group_resource}/{unread[0][0].key}",
                error=str(unread[0][1]),
            )

    def _look(self, resource: ApiResource, meta: Meta, role: Role, circle: Pass) -> None:
        work = ObjectRef(resource.group_resource, meta.key)
        circle.seen += 1
        subject = self._context.subject(resource, meta, role=role)
        if resource in self._context.kinds.former or (not isinstance(role, Outsider) and role.given_up):
            circle.former += 1
        if isinstance(role, Controlled) and self._context.may_be_left_behind(subject):
            self._look_at_left_behind(Misplaced(work, meta, role, self._owner(meta), role.controller), circle)
            return
        if self._context.states.current.view.is_stranger(self._owner(meta)):
            self._look_at_stranger(work, meta, circle)
            return
        match self._context.plan(subject):
            case Drain(owner=owner) | ReleaseDrain(owner=owner):
                if work not in self._handoffs:
                    self._defer(Misplaced(work, meta, role, owner))
            case Assign(was=was) if was and not self._pending.knows(self._pending.name(work)):
                self._bring_if_seen_twice(work, meta, circle)
            case Assign() | Strip() | ReportUnknown() | NeedController():
                self.bring(work, meta)
            case UpdateDrain():
                self._handoffs.redirect_all()
            case Wait():
                pass
            case _:
                if self._context.keys.drain in meta.labels:
                    circle.displace(meta.uid)
                return
        circle.clean = False
        circle.displace(meta.uid)

    def _bring_if_seen_twice(self, work: ObjectRef, meta: Meta, circle: Pass) -> None:
        """A dead shard's object that does not wait has an owner by now, or no watch showed it.

        Later pages are as old as the first one, a minute under load. What two circles show in one version has no owner.
        """
        if circle.suspected.get(work) == meta.resource_version:
            self.bring(work, meta)
        elif len(circle.suspects) < MAX_SUSPECTS:
            circle.suspects[work] = meta.resource_version

    def _look_at_stranger(self, work: ObjectRef, meta: Meta, circle: Pass) -> None:
        """Its label names what no shard's Lease ever bore: its own trouble, and the mover's.

        Only what is to be free of labels is not before this one is.
        """
        self.bring(work, meta)
        context = self._context
        if (
            context.states.current.terms.releasing
            or context.kinds.former
            or context.scope.former
            or self._pending.is_full(work.resource)
        ):
            circle.clean = False

    def _look_at_left_behind(self, misplaced: Misplaced, circle: Pass) -> None:
        """Only its controller can tell: one that is on its way takes it along."""
        controller = misplaced.controller
        is_taken_along = controller is not None and controller.uid in circle.displaced
        if is_taken_along or not circle.knows_displaced:
            circle.clean = False
        elif misplaced.work not in self._handoffs:
            self._defer(misplaced)
        circle.displace(misplaced.meta.uid)

    def _owner(self, meta: Meta) -> str:
        return meta.labels.get(self._context.keys.shard, "")

    def _defer(self, misplaced: Misplaced) -> None:
        kept = misplaced._replace(meta=essential(misplaced.meta, self._context.spec.labels_read))
        self._deferred.setdefault(misplaced.owner, deque()).append(kept)

    def _send_what_has_room(self, circle: Pass, tasks: asyncio.TaskGroup) -> None:
        now = self._context.clock.now()
        for owner in self._handoffs.budget.in_order(self._deferred, at=now):
            queue = self._deferred[owner]
            room = self._handoffs.budget.room(owner, at=now)
            while queue and room > 0:
                misplaced = queue.popleft()
                self._handoffs.begin(misplaced.work, owner)
                room -= 1
                tasks.create_task(self._ask(misplaced, circle), name="drain")
            if not queue:
                del self._deferred[owner]

    async def _ask(self, misplaced: Misplaced, circle: Pass) -> None:
        """Send one request, planned anew: the ring may have changed while it waited for room."""
        outcome = WriteOutcome.STALE
        async with self._slots:
            try:
                decision = await self._decide(misplaced)
            except KubeError as error:
                log.warning("object could not be read", object=str(misplaced.work), error=str(error))
                circle.clean = False
            else:
                if isinstance(decision, Drain | ReleaseDrain):
                    resource = self._context.resource(misplaced.work)
                    outcome = await self._context.objects.write(resource, misplaced.meta, decision)
                    circle.asked += outcome not in (WriteOutcome.REFUSED, WriteOutcome.DENIED)
                circle.clean = circle.clean and isinstance(decision, Nothing)
        if outcome is not WriteOutcome.DONE:
            self._handoffs.failed(misplaced.work)
        elif isinstance(decision, ReleaseDrain) and not isinstance(misplaced.role, Controlled):
            self._handoffs.asked_to_give_up(misplaced.work)

    async def _decide(self, misplaced: Misplaced) -> Decision:
        context, seen = self._context, None
        if misplaced.controller is not None:
            seen = await context.objects.read_controller(misplaced.controller)
        resource = context.resource(misplaced.work)
        return context.plan(context.subject(resource, misplaced.meta, role=misplaced.role, controller=seen))

    # ---- between two circles ----------------------------------------------------------------------------------

    async def _wait_for_progress(self, circle: Pass, idle: int) -> None:
        """Something is not at its place yet: go round again when the handoffs ended or the ring changed.

        *idle* circles in a row found nothing they could ask for (paused, owners silent): they come more rarely.
        """
        in_flight, since = len(self._handoffs), self._context.clock.now()
        while self._handoffs.budget.is_moving(at=self._context.clock.now()):
            await self._handoffs.wait_changed(at_most_s=RETRY_S)
            if self._version != circle.version:
                return
            if len(self._handoffs) != in_flight:
                in_flight, since, self._stalls = len(self._handoffs), self._context.clock.now(), 0
            elif self._context.clock.now() - since >= min(STALLED_S * 2**self._stalls, LONGEST_RETRY_S):
                self._stalls = min(self._stalls + 1, 10)
                return  # owners are slow, or somebody took a request away: only a circle can tell
        await self._wait_for_news(at_most_s=min(RETRY_S * 2 ** min(idle, 10), LONGEST_RETRY_S))

    async def _wait_for_work(self, *, at_most_s: float | None) -> None:
        """Converged: until the state of the ring changes, or a pass is requested."""
        until = self._context.clock.now() + at_most_s if at_most_s is not None else math.inf
        while not self._requested.is_set() and self.is_converged:
            if self._context.clock.now() >= until:
                return
            await self._wait_for_news(at_most_s=LONGEST_RETRY_S)

    async def _wait_for_news(self, *, at_most_s: float) -> None:
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

    def knows(self, work: ObjectRef) -> bool:
        """Whether the mover has an object before it, or its owner was asked for it."""
        return self._pending.get(work) is not None or work in self._handoffs

    def bring(self, work: ObjectRef, meta: Meta) -> bool:
        """Have the mover look at an object that no watch has shown it; true if it did not know it."""
        is_news = self._pending.get(work) is None
        if is_news and self._pending.is_full(work.resource):
            return False
        if self._pending.put(work, meta, at=self._context.clock.now()):
            self._assigner.enqueue(work)
        return is_news
