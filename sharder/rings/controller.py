"""Controller of one ring: composes its components, starts them when this sharder leads, and when the spec changes.

Standbys run the membership controller too, so that a new leader knows since when each Lease has been silent. An
obstacle to the work (a resource that is not served, a missing permission) becomes a condition and is retried.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import Conflict, InputError, KubeError, NotFound
from kubeio.program.failures import failure
from kubeio.rest.events import EventRecorder, Regarding
from sharder.admission.webhook_controller import WebhookController
from sharder.errors import RingRefused
from sharder.membership.activation import Activation
from sharder.membership.controller import MembershipController
from sharder.moving.audit import Audit
from sharder.moving.handoffs import Handoffs
from sharder.moving.scan import Scan
from sharder.planning.keys import RingKinds
from sharder.planning.planner import Terms
from sharder.planning.state import RingStates
from sharder.rings.finalizer import (
    WORKED_AS,
    ensure_finalizer,
    finalize,
    watch_former,
    watch_former_namespaces,
)
from sharder.rings.status import IMPLEMENTATION, refused_conditions, unserved
from sharder.rings.status_collector import StatusCollector
from sharder.rings.status_writer import StatusWriter
from sharder.ringspec.config import immutable_changes, parse_spec, worked_as
from sharder.ringspec.worked import united
from sharder.unowned.namespaces import Namespaces, selected_at_first
from sharder.unowned.pending import PendingObjects
from sharder.unowned.permissions import MissingPermissions, try_again
from sharder.unowned.reflectors import UnownedReflectors
from sharder.unowned.selection import follow_states
from sharder.writing.assigner import Assigner
from sharder.writing.objects import ObjectWriter
from sharder.writing.refusals import Refusals
from sharder.writing.ring_context import RingContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kubeio.models import GroupResource, Meta
    from kubeio.resource import ApiResource
    from sharder.page.rooms import RingRoom
    from sharder.rings.store import Ring, RingStore
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingResource, RingSpec
    from sharder.sharder_context import SharderContext
    from sharder.unowned.permissions import Permission

log = structlog.get_logger("sharder")

RETRY_S: Final = 5.0
CONFLICT_RETRY_S: Final = 0.2
NOT_FOUND_RETRY_S: Final = 1.0
UNSERVED_RETRY_S: Final = 10.0
"""Two GETs; a definition that comes back is noticed within this."""


class RingController:
    """The work on one ring. `run` lasts until cancelled; `change` and `lead` report a newer ring and leadership."""

    def __init__(
        self,
        context: SharderContext,
        ring: Ring,
        *,
        store: RingStore,
        scope: Scope,
    ) -> None:
        self._context = context
        self._ring = ring
        self._store = store
        self._scope = scope
        self._client = context.client
        self._clock = context.clock
        self._rng = context.rng
        self._metrics = context.metrics
        self._webhook = context.webhook
        self._stage = context.stage
        self._changed = asyncio.Event()
        self._remedies: dict[GroupResource, str] = {}
        """Suggestions for the resources that were not served."""
        self._is_leading = False
        self._worked_as = ""
        self._membership: MembershipController | None = None
        self.name = ring.name

    def change(self, ring: Ring) -> None:
        """A newer version of the ring was seen."""
        old, self._ring = self._ring, ring
        if _substance(old) != _substance(ring):
            self._changed.set()

    def why_not_alive(self) -> str | None:
        """Problem that a restart would cure; None if there is none."""
        return self._membership.why_not_alive() if self._membership is not None else None

    def lead(self) -> None:
        """This sharder acts from now on."""
        self._is_leading = True
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            work = asyncio.create_task(self._work(), name=f"ring {self.name}")
            news = asyncio.create_task(self._changed.wait(), name=f"ring changes {self.name}")
            try:
                await asyncio.wait({work, news}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _end(work, news)

    async def _work(self) -> None:
        """Work under the present spec; an obstacle is reported, and the work tried again."""
        while True:
            try:
                await self._work_once()
            except RingRefused as refused:
                log.error("ring refused", ring=self.name, problems=[str(p) for p in refused.problems])
                await self._report_refusal("InvalidSpec", "; ".join(str(p) for p in refused.problems))
                await asyncio.Event().wait()  # only another spec can help: `run` starts anew then
            except (KubeError, ExceptionGroup) as raised:
                error = _first(raised)
                if not isinstance(error, KubeError):
                    raise
                if isinstance(error, Conflict):  # somebody wrote to the ring at the same time
                    await asyncio.sleep(CONFLICT_RETRY_S)
                    continue
                if isinstance(error, NotFound):  # a resource, in this version: is another one served?
                    log.warning("looking again at what is served", ring=self.name, error=str(error))
                    self._context.discovery.forget()
                    await asyncio.sleep(NOT_FOUND_RETRY_S)
                    continue
                told = failure(error).message
                log.error("ring cannot be worked", ring=self.name, error=told)
                await self._report_refusal(type(error).__name__, told)
            await asyncio.sleep(RETRY_S)

    async def _work_once(self) -> None:
        spec = self._parse()
        resolved = await self._resolve(spec.resources)
        if not self._ring.is_deleted and not any(entry.main in resolved for entry in spec.resources):
            await self._context.discovery.resolve(
                str(spec.resources[0].main)
            )  # raises what it may have meant
        is_acting = self._is_leading and self._is_ours()
        if is_acting:
            worked = await ensure_finalizer(self._store, spec)
        else:
            worked = united(self._ring.worked, spec.resources)
        resolved |= await self._resolve(worked)
        kinds = RingKinds(spec, resolved, worked=worked, releasing=self._ring.is_deleted)
        self._scope.check(self.name, kinds.labelled)
        membership = self._take_roster(spec, kinds)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(membership.run(), name=f"roster {self.name}")
            if kinds.unserved:
                tasks.create_task(self._watch_unserved(kinds.unserved), name=f"unserved {self.name}")
            if self._webhook is not None and spec.assign_at_admission and self._is_ours():
                serve = self._webhook.serve(spec, kinds, membership, releasing=self._ring.is_deleted)
                tasks.create_task(serve, name=f"admission {self.name}")
            room = self._stage.open(spec, kinds, membership) if self._stage is not None else None
            if room is not None:
                tasks.create_task(room.follow(), name=f"page {self.name}")
            if is_acting:
                has_former = worked != united((), spec.resources)
                await self._act(spec, kinds, membership, tasks, has_former=has_former, room=room)

    async def _resolve(self, entries: Iterable[RingResource]) -> dict[GroupResource, ApiResource]:
        """Kinds of *entries* that the server serves, each with its resource."""
        found = {}
        for kind in dict.fromkeys(kind for entry in entries for kind in (entry.main, *entry.controlled)):
            try:
                found[kind] = await self._context.discovery.resolve(str(kind))
            except InputError as error:
                log.warning("resource is not served", ring=self.name, resource=str(kind))
                self._remedies[kind] = error.remedy
        return found

    async def _served(self, kind: GroupResource) -> ApiResource | None:
        try:
            return await self._context.discovery.resolve(str(kind))
        except InputError:
            return None

    async def _watch_unserved(self, kinds: Iterable[GroupResource]) -> None:
        """Begin the work anew when one of *kinds* is served."""
        while True:
            await asyncio.sleep(UNSERVED_RETRY_S)
            try:
                served = [str(kind) for kind in kinds if await self._served(kind) is not None]
            except KubeError as error:
                log.warning("what is served could not be read", ring=self.name, error=str(error))
                continue
            if served:
                log.info("resource is served again", ring=self.name, resources=served)
                self._changed.set()
                return

    def _parse(self) -> RingSpec:
        spec = parse_spec(self.name, self._ring.spec)
        before = self._ring.metadata.annotations.get(WORKED_AS) or self._worked_as
        problems = immutable_changes(before, spec)
        if problems:
            raise RingRefused(self.name, problems)
        self._worked_as = worked_as(spec)
        return spec

    def _take_roster(self, spec: RingSpec, kinds: RingKinds) -> MembershipController:
        """The ring's one membership controller: its memory outlives changes of the spec and of leadership."""
        if self._membership is None:
            self._membership = MembershipController(
                self._context.lease_client,
                self._client,
                spec,
                kinds.labelled,
                identity=self._context.identity,
                scope=self._scope,
                clock=self._clock,
                rng=self._rng,
            )
        self._membership.configure(spec, kinds.labelled, releasing=self._ring.is_deleted)
        self._membership.act(self._is_leading and self._is_ours())
        return self._membership

    def _is_ours(self) -> bool:
        """Another implementation's ring is left alone (protocol, section 2)."""
        worked_by = self._ring.sharder or IMPLEMENTATION
        if worked_by != IMPLEMENTATION:
            log.warning("ring is worked by another sharder", ring=self.name, sharder=worked_by)
        return worked_by == IMPLEMENTATION

    async def _act(
        self,
        spec: RingSpec,
        kinds: RingKinds,
        membership: MembershipController,
        tasks: asyncio.TaskGroup,
        *,
        has_former: bool,
        room: RingRoom | None,
    ) -> None:
        releasing = self._ring.is_deleted
        pending = PendingObjects(labels=spec.labels_read)

        def terms() -> Terms:
            return Terms(
                paused=spec.paused,
                activated=activation.is_granted,
                releasing=releasing,
                yields=bool(activation.former_holder),
            )

        def on_right(right: Permission, is_missing: bool) -> None:
            log.log(
                logging.ERROR if is_missing else logging.INFO,
                "right is missing" if is_missing else "accepted again",
                ring=self.name,
                right=str(right),
            )
            if is_missing:
                events.record(
                    self._store.regarding,
                    reason="MissingRight",
                    action="Work",
                    note=f"the API server refuses: {right}; the other resources go on",
                    type="Warning",
                )
            if not is_missing and right.verb == "patch":
                states.revise()

        permissions = MissingPermissions(now=self._clock.now, on_change=on_right)
        events = EventRecorder(
            self._client,
            reporter=IMPLEMENTATION,
            instance=self._context.identity,
            on_dropped=self._metrics.events_dropped.labels(ring=self.name).inc,
            clock=self._clock,
            rng=self._rng,
        )
        activation = Activation(
            self._client,
            self.name,
            spec.activation,
            on_change=lambda: states.set_terms(terms()),
            clock=self._clock,
        )
        states = RingStates(membership, terms(), selected_at_first(spec, self._scope))
        namespaces = Namespaces(
            self._client,
            spec,
            scope=self._scope,
            on_change=states.set_selected,
            clock=self._clock,
            rng=self._rng,
        )
        context = RingContext(
            spec=spec,
            kinds=kinds,
            client=self._client,
            scope=self._scope,
            permissions=permissions,
            membership=membership,
            states=states,
            activation=activation,
            objects=ObjectWriter(
                self._client,
                spec,
                kinds=kinds,
                permissions=permissions,
                refusals=Refusals(now=self._clock.now, rng=self._rng, on_refused=self._refusals_to(events)),
                metrics=self._metrics,
                clock=self._clock,
                limiter=self._context.limiter,
            ),
            metrics=self._metrics,
            events=events,
            ring=self._store.regarding,
            clock=self._clock,
            unserved=[unserved(kind, self._remedies[kind]) for kind in kinds.unserved],
        )

        assigner = Assigner(context, pending, rng=self._rng, limiter=self._context.limiter)
        unowned = UnownedReflectors(
            self._client,
            kinds.resources,
            keys=spec.keys,
            pending=pending,
            on_work=assigner.enqueue_name,
            on_listed=assigner.enqueue_all,
            backlog=assigner.backlog,
            controlled=[kind for kind in kinds.resources if kinds.may_be_controlled(kind)],
            scope=self._scope,
            permissions=permissions,
            clock=self._clock,
            rng=self._rng,
        )
        assigner.unowned = unowned
        handoffs = Handoffs(context, rng=self._rng)
        scan = Scan(context, handoffs, pending, assigner)
        status_writer = StatusWriter(self._store, self.name, self._ring.status, clock=self._clock)
        collector = StatusCollector(context, pending, handoffs, scan, room=room)
        webhook_controller = WebhookController(
            self._client,
            self._webhook,
            spec,
            kinds.resources,
            states=states,
            scan=scan,
            ring_uid=self._ring.metadata.uid,
            clock=self._clock,
        )
        tasks.create_task(webhook_controller.run(), name="admission")
        tasks.create_task(states.run(), name="state")
        tasks.create_task(namespaces.run(), name="namespaces")
        tasks.create_task(activation.run(), name="activation")
        tasks.create_task(events.run(), name="events")
        tasks.create_task(unowned.run(), name="unowned")
        tasks.create_task(
            follow_states(states, unowned, settle_s=spec.settle_s, clock=self._clock), name="selector"
        )
        tasks.create_task(collector.follow(), name="survey")
        tasks.create_task(
            status_writer.run(
                lambda: collector.status(status_writer, generation=self._ring.metadata.generation)
            ),
            name="status",
        )
        tasks.create_task(try_again(permissions, assigner.enqueue_some), name="missing rights")
        if has_former and not releasing:
            tasks.create_task(watch_former(self._store, spec, scan), name="former resources")
        if self._scope.former and not releasing:
            tasks.create_task(
                watch_former_namespaces(self._store, spec, self._scope, scan), name="former namespaces"
            )
        if releasing:
            ending = finalize(
                self._store, self.name, scan, membership, activation, withdrawn=webhook_controller.withdrawn
            )
            tasks.create_task(ending, name="let go")
        await namespaces.synced.wait()  # before, nothing seems to be selected
        tasks.create_task(assigner.run(), name="assigner")
        tasks.create_task(handoffs.run(), name="handoffs")
        tasks.create_task(scan.run(), name="scan")
        tasks.create_task(Audit(context, scan).run(), name="audit")

    def _refusals_to(self, events: EventRecorder) -> Callable[[ApiResource, Meta, str], None]:
        """Reports an object to which the ring's labels cannot be written, in the log and by an Event on it."""

        def record(resource: ApiResource, meta: Meta, words: str) -> None:
            what = f"{resource.group_resource}/{meta.key}"
            log.warning("object may not be changed", ring=self.name, object=what, error=words)
            events.record(
                Regarding.of(resource, meta),
                reason="Refused",
                action="Label",
                note=f"the labels of the ring cannot be written to this object: {words}",
                type="Warning",
            )

        return record

    async def _report_refusal(self, reason: str, message: str) -> None:
        if self._stage is not None:
            self._stage.refuse(self.name, message)
        if not self._is_leading or not self._is_ours():
            return
        status_writer = StatusWriter(self._store, self.name, self._ring.status, clock=self._clock)
        generation = self._ring.metadata.generation
        conditions = status_writer.dated(refused_conditions(reason, message), generation=generation)
        await status_writer.write(
            {"observedGeneration": generation, "sharder": IMPLEMENTATION, "conditions": conditions}
        )


def _substance(ring: Ring) -> object:
    """Parts of a ring that change the work: not its status, not its versions."""
    return ring.spec, ring.metadata.uid, ring.is_deleted


def _first(raised: Exception) -> Exception:
    """The first error inside *raised*, however deep the groups around it are."""
    return _first(raised.exceptions[0]) if isinstance(raised, ExceptionGroup) else raised


async def _end(*tasks: asyncio.Task[object]) -> None:
    """Cancel *tasks* and wait; an error that one of them raised by itself is passed on."""
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
