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
from kubeio.models import Meta, ObjectRef
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
"""Roots remembered as not at their place, a megabyte; with more, what they control waits for a later pass."""
RETRY_S: Final = 1.0
ANEW_S: Final = 0.1
"""A change of the ring ends a pass; the next one begins this much later."""
MAX_SUSPECTS: Final = 2_000
"""Objects remembered until the next pass because their page may be stale; with more, a later one finds the rest."""
MAX_MISSENT: Final = 1_000
"""Objects remembered that were passed on to where they do not belong; with more, a pass finds the rest."""
CORRECT_EVERY_S: Final = 0.5
"""Such an object is read this often at most: drain labels can be forged hundreds of times a second."""
STALLED_S: Final = 5.0
"""With no handoff begun or ended for so long, and then for twice that, another pass finds lost requests."""
LONGEST_RETRY_S: Final = 30.0
MUCH_TO_DO: Final = 500
"""Objects without an owner in the queues: passes yield to them."""
YIELDS_S: Final = 120.0
"""Passes yield at most this long: on a server that is always full, objects have to come to their places too."""


class Misplaced(NamedTuple):
    """An object to be handed over by *owner*; *controller*: only if that one, read anew, is elsewhere."""

    ref: ObjectRef
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
        self._controller_keys = ControllerKeys(context.kinds, context.objects.read_controller)
        self._deferred: dict[str, deque[Misplaced]] = {}
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)
        self._requested = asyncio.Event()
        self._missent: set[ObjectRef] = set()
        self._suspects: dict[ObjectRef, str] = {}
        self._has_missent = asyncio.Event()
        self._touching = Touching(context)
        self._stalls = 0
        self._may_be_stopped = False
        self.converged_version: ScanVersion | None = None
        """The version under which the last whole pass was clean."""
        self.converged_at = 0.0
        """End of that pass, on the sharder's clock."""
        self.last_seen: int | None = None
        """Objects with an owner in that pass; None if not all could be read."""
        self.former_free = asyncio.Event()
        """Set once no object that the ring gave up with its kind carries a label."""
        self.still_labelled: int | None = None
        """Number of those in the last pass; None if it could not see all."""

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

    def enqueue(self, ref: ObjectRef) -> None:
        """Read and plan one object that may be where it does not belong. A pass would cost far more."""
        if len(self._missent) < MAX_MISSENT:
            self._missent.add(ref)
        self._has_missent.set()

    async def run(self) -> None:
        await self._handoffs.synced.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._correct(), name="missent objects")
            tasks.create_task(self._touching.run(), name="touch")
            tasks.create_task(self._run_passes(), name="passes")

    async def _correct(self) -> None:
        """Check missent objects, a batch at a time; if there are too many, request a pass now and then."""
        requested_at = -math.inf
        while True:
            await self._has_missent.wait()
            self._has_missent.clear()
            refs, self._missent = self._missent, set()
            async with asyncio.TaskGroup() as tasks:
                pass_ = Pass(self._version)
                for ref in refs:
                    await self._check_missent(ref, pass_)
                self._send_allowed(pass_, tasks)
            is_left = len(refs) >= MAX_MISSENT or bool(self._deferred)
            if is_left and self._context.clock.now() - requested_at >= LONGEST_RETRY_S:
                requested_at = self._context.clock.now()
                self.request_pass()
            await asyncio.sleep(CORRECT_EVERY_S)

    async def _check_missent(self, ref: ObjectRef, pass_: Pass) -> None:
        resource = self._context.resource(ref)
        named = Meta(name=ref.key.name, namespace=ref.key.namespace)
        try:
            meta = await self._context.objects.read(resource, named)
        except KubeError as error:
            log.warning("object could not be read", object=str(ref), error=str(error))
            self._missent.add(ref)
            self._has_missent.set()
            return
        if meta is not None:
            pass_.suspected[ref] = meta.resource_version  # a read is not stale
            await self._check_page(resource, [meta], pass_)

    async def _run_passes(self) -> None:
        idle, stripped, version = 0, 0, self._version
        while True:
            self._requested.clear()
            if version != self._version:
                # objects that could not be moved may be at their places soon
                idle, version = 0, self._version
            await self._yield_to_assignments()
            try:
                pass_ = await self._run_pass()
            except* NotFound:
                raise  # a resource is not served any more, or not in this version: RingController asks which
            except* KubeError as group:
                log.warning("pass interrupted", ring=self._context.spec.name, error=str(group.exceptions[0]))
                pass_ = Pass(self._version, clean=False, whole=False)
            self._note_former(pass_)
            if pass_.version != self._version:
                await asyncio.sleep(ANEW_S)
            elif pass_.clean and not len(self._handoffs):
                self._converge(pass_)
                await self._wait_for_request(at_most_s=None if pass_.whole else LONGEST_RETRY_S)
            else:
                was_idle = stripped == self._context.objects.stripped
                stripped = self._context.objects.stripped
                is_idle = was_idle and not pass_.asked and not len(self._handoffs)
                idle = idle + 1 if is_idle else 0
                await self._wait_for_progress(pass_, idle)

    async def _yield_to_assignments(self) -> None:
        """Wait while many objects have no owner: a pass would only slow down their assignment."""
        began = self._context.clock.now()
        while self._assigner.to_do() > MUCH_TO_DO and self._context.clock.now() < began + YIELDS_S:  # noqa: ASYNC110
            await asyncio.sleep(RETRY_S)
        self._may_be_stopped = self._assigner.to_do() <= MUCH_TO_DO

    def _must_yield(self) -> bool:
        return self._may_be_stopped and self._assigner.to_do() > MUCH_TO_DO

    def _note_former(self, pass_: Pass) -> None:
        self.still_labelled = pass_.former if pass_.whole else None
        if not self._touching.former_done:
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
        self._controller_keys.forget()
        async with asyncio.TaskGroup() as tasks:
            for resource in self._context.kinds.labelled:
                if resource in self._context.kinds.former:
                    await self._pass_former(resource, pass_, tasks)
                else:
                    await self._pass_allowed(resource, pass_, tasks)
            while self._deferred and not self._is_outdated(pass_):
                self._send_allowed(pass_, tasks)
                if self._deferred:
                    await self._handoffs.wait_changed(at_most_s=RETRY_S)
        pass_.whole = pass_.whole and pass_.version == self._version
        self._deferred.clear()
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
            except Forbidden as error:
                self._context.permissions.denied(right, error)
                pass_.clean = pass_.whole = False
            except NotFound:
                raise
            except KubeError as error:
                log.warning("resource left out of the pass", ring=self._context.spec.name, error=str(error))
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
                metas = [item.meta for item in page.objects]
                await self._check_page(resource, metas, pass_)
                self._send_allowed(pass_, tasks)
                while self.misplaced > MAX_DEFERRED and not self._is_outdated(pass_):
                    await self._handoffs.wait_changed(at_most_s=RETRY_S)
                    self._send_allowed(pass_, tasks)
                if self._is_outdated(pass_):
                    return
                if self._must_yield():
                    break  # the rest of this list would be old by the time the pass went on
                await asyncio.sleep(min(took_s, RETRY_S))  # half of the time belongs to other clients
                asked_at = self._context.clock.now()
            else:
                return
        pass_.clean = pass_.whole = False  # given up, or expired while we waited: the next pass sees the rest

    async def _check_page(self, resource: ApiResource, metas: Sequence[Meta], pass_: Pass) -> None:
        """Check one page. An object whose controller cannot be read makes the pass unclean, and nothing else."""
        found = await self._controller_keys.resolved(
            self._context.kinds.role(resource, meta) for meta in metas
        )
        unread: list[tuple[Meta, KubeError]] = []
        for meta, role in zip(metas, found, strict=True):
            if isinstance(role, KubeError):
                unread.append((meta, role))
                pass_.clean = pass_.whole = False
                continue
            self._controller_keys.remember(resource, meta, role)
            self._plan_object(resource, meta, role, pass_)
        if unread:
            log.warning(
                "controllers could not be read",
                ring=self._context.spec.name,
                objects=len(unread),
                first=f"{resource.group_resource}/{unread[0][0].key}",
                error=str(unread[0][1]),
            )

    def _plan_object(self, resource: ApiResource, meta: Meta, role: Role, pass_: Pass) -> None:
        ref = ObjectRef(resource.group_resource, meta.key)
        pass_.seen += 1
        subject = self._context.subject(resource, meta, role=role)
        if resource in self._context.kinds.former or (not isinstance(role, Outsider) and role.given_up):
            pass_.former += 1
        if isinstance(role, Controlled) and self._context.may_be_left_behind(subject):
            self._check_left_behind(Misplaced(ref, meta, role, self._owner(meta), role.controller), pass_)
            return
        if self._context.states.current.view.is_stranger(self._owner(meta)):
            self._check_stranger(ref, meta, pass_)
            return
        match self._context.plan(subject):
            case Drain(owner=owner) | ReleaseDrain(owner=owner):
                if ref not in self._handoffs:
                    self._defer(Misplaced(ref, meta, role, owner))
            case Assign(was=was) if was and not self._pending.knows(self._pending.name(ref)):
                self._enqueue_if_seen_twice(ref, meta, pass_)
            case Assign() | Strip() | ReportUnknown() | NeedController():
                self.enqueue_unshown(ref, meta)
            case UpdateDrain():
                self._handoffs.redirect_all()
            case Wait():
                pass
            case _:
                if self._context.keys.drain in meta.labels:
                    pass_.displace(meta.uid)
                return
        pass_.clean = False
        pass_.displace(meta.uid)

    def _enqueue_if_seen_twice(self, ref: ObjectRef, meta: Meta, pass_: Pass) -> None:
        """Enqueue a dead shard's object that does not wait, once two passes show it in one version.

        It may have an owner by now: later pages are as old as the first one, a minute under load. Otherwise no watch
        showed it.
        """
        if pass_.suspected.get(ref) == meta.resource_version:
            self.enqueue_unshown(ref, meta)
        elif len(pass_.suspects) < MAX_SUSPECTS:
            pass_.suspects[ref] = meta.resource_version

    def _check_stranger(self, ref: ObjectRef, meta: Meta, pass_: Pass) -> None:
        """Enqueue an object whose label names no shard that ever had a Lease.

        The pass stays clean, unless the ring has to become free of labels.
        """
        self.enqueue_unshown(ref, meta)
        context = self._context
        if (
            context.states.current.terms.releasing
            or context.kinds.former
            or context.scope.former
            or self._pending.is_full(ref.resource)
        ):
            pass_.clean = False

    def _check_left_behind(self, misplaced: Misplaced, pass_: Pass) -> None:
        """Defer a controlled object until its controller is read. A controller on its way takes it along."""
        controller = misplaced.controller
        is_taken_along = controller is not None and controller.uid in pass_.displaced
        if is_taken_along or not pass_.knows_displaced:
            pass_.clean = False
        elif misplaced.ref not in self._handoffs:
            self._defer(misplaced)
        pass_.displace(misplaced.meta.uid)

    def _owner(self, meta: Meta) -> str:
        return meta.labels.get(self._context.keys.shard, "")

    def _defer(self, misplaced: Misplaced) -> None:
        kept = misplaced._replace(meta=essential(misplaced.meta, self._context.spec.labels_read))
        self._deferred.setdefault(misplaced.owner, deque()).append(kept)

    def _send_allowed(self, pass_: Pass, tasks: asyncio.TaskGroup) -> None:
        now = self._context.clock.now()
        for owner in self._handoffs.budget.in_order(self._deferred, at=now):
            queue = self._deferred[owner]
            room = self._handoffs.budget.room(owner, at=now)
            while queue and room > 0:
                misplaced = queue.popleft()
                self._handoffs.begin(misplaced.ref, owner)
                room -= 1
                tasks.create_task(self._ask(misplaced, pass_), name="drain")
            if not queue:
                del self._deferred[owner]

    async def _ask(self, misplaced: Misplaced, pass_: Pass) -> None:
        """Send one request, planned anew: the ring may have changed while it waited for room."""
        outcome = WriteOutcome.STALE
        async with self._slots:
            try:
                decision = await self._decide(misplaced)
            except KubeError as error:
                log.warning("object could not be read", object=str(misplaced.ref), error=str(error))
                pass_.clean = False
            else:
                if isinstance(decision, Drain | ReleaseDrain):
                    resource = self._context.resource(misplaced.ref)
                    outcome = await self._context.objects.write(resource, misplaced.meta, decision)
                    pass_.asked += outcome not in (WriteOutcome.REFUSED, WriteOutcome.DENIED)
                pass_.clean = pass_.clean and isinstance(decision, Nothing)
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

    # ---- between two passes -----------------------------------------------------------------------------------

    async def _wait_for_progress(self, pass_: Pass, idle: int) -> None:
        """Return when another pass is due: the handoffs ended, or the ring changed.

        *idle* passes in a row could request no handoff (paused, owners silent): they come more rarely.
        """
        in_flight, since = len(self._handoffs), self._context.clock.now()
        while self._handoffs.budget.is_moving(at=self._context.clock.now()):
            await self._handoffs.wait_changed(at_most_s=RETRY_S)
            if self._version != pass_.version:
                return
            if len(self._handoffs) != in_flight:
                in_flight, since, self._stalls = len(self._handoffs), self._context.clock.now(), 0
            elif self._context.clock.now() - since >= min(STALLED_S * 2**self._stalls, LONGEST_RETRY_S):
                self._stalls = min(self._stalls + 1, 10)
                return  # owners are slow, or a request was removed by another client: only a pass can show it
        await self._wait_for_news(at_most_s=min(RETRY_S * 2 ** min(idle, 10), LONGEST_RETRY_S))

    async def _wait_for_request(self, *, at_most_s: float | None) -> None:
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

    def knows(self, ref: ObjectRef) -> bool:
        """Whether an object waits for the assigner, or its owner was asked for it."""
        return self._pending.get(ref) is not None or ref in self._handoffs

    def enqueue_unshown(self, ref: ObjectRef, meta: Meta) -> bool:
        """Enqueue an object that no watch has shown to the assigner; true if the assigner did not know it."""
        is_news = self._pending.get(ref) is None
        if is_news and self._pending.is_full(ref.resource):
            return False
        if self._pending.put(ref, meta, at=self._context.clock.now()):
            self._assigner.enqueue(ref)
        return is_news
