"""Controller of one ring: composes its components, starts them when this sharder leads, and when the spec changes.

Standbys run the membership controller too, so that a new leader knows since when each Lease has been silent. An
obstacle to the work (a resource that is not served, a missing permission) becomes a condition and is retried.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import Conflict, InputError, KubeError, NotFound, first_error
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
from sharder.ringspec.config import immutable_changes, parse_ring, worked_as
from sharder.ringspec.worked import read_worked, united
from sharder.unowned.namespaces import Namespaces
from sharder.unowned.pending import PendingObjects
from sharder.unowned.permissions import MissingPermissions, try_again
from sharder.unowned.reflectors import UnownedReflectors
from sharder.unowned.selection import follow_membership
from sharder.writing.assigner import Assigner
from sharder.writing.client_set import ClientSet
from sharder.writing.objects import ObjectWriter
from sharder.writing.refusals import Refusals
from sharder.writing.ring_context import RingContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kubeio.clock import Clock
    from kubeio.models import GroupResource, Meta
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from sharder.admission.webhook import Webhook
    from sharder.metrics import SharderMetrics
    from sharder.page.rooms import RingRoom
    from sharder.page.stage import Stage
    from sharder.rings.store import RingStore
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingResource, RingSpec
    from sharder.unowned.permissions import Permission

log = structlog.get_logger("sharder")

RETRY_S: Final = 5.0
CONFLICT_RETRY_S: Final = 0.2
NOT_FOUND_RETRY_S: Final = 1.0
UNSERVED_RETRY_S: Final = 10.0
"""Two GETs; a definition that comes back is noticed within this."""


class RingController:
    """The work on one ring. `run` lasts until cancelled; `change` and `lead` tell it what happens around it."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        document: Mapping[str, object],
        *,
        identity: str,
        home: RingStore,
        scope: Scope,
        metrics: SharderMetrics,
        clock: Clock,
        rng: random.Random,
        webhook: Webhook | None = None,
        clients: ClientSet | None = None,
        stage: Stage | None = None,
    ) -> None:
        self._client = client
        self._discovery = discovery
        self._document = document
        self._identity = identity
        self._home = home
        self._scope = scope
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._webhook = webhook
        self._stage = stage
        self._clients = clients or ClientSet.of(client, clock=clock, rng=rng)
        self._changed = asyncio.Event()
        self._remedies: dict[GroupResource, str] = {}
        """What may have been meant by the resources that were not served."""
        self._is_leading = False
        self._worked_as = ""
        self._membership: MembershipController | None = None
        self.name = str(_mapping(document, "metadata").get("name", ""))

    def change(self, document: Mapping[str, object]) -> None:
        """A newer version of the ring was seen."""
        old, self._document = self._document, document
        if _substance(old) != _substance(document):
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
        """Work under the present spec; what stands in the way is reported and tried again."""
        while True:
            try:
                await self._work_once()
            except RingRefused as refused:
                log.error("ring refused", ring=self.name, problems=[str(p) for p in refused.problems])
                await self._report_refusal("InvalidSpec", "; ".join(str(p) for p in refused.problems))
                await asyncio.Event().wait()  # only another spec can help: `run` starts anew then
            except (KubeError, ExceptionGroup) as raised:
                error = first_error(raised)
                if not isinstance(error, KubeError):
                    raise
                if isinstance(error, Conflict):  # somebody wrote to the ring at the same time
                    await asyncio.sleep(CONFLICT_RETRY_S)
                    continue
                if isinstance(error, NotFound):  # a resource, in this version: is another one served?
                    log.warning("looking again at what is served", ring=self.name, error=str(error))
                    self._discovery.forget()
                    await asyncio.sleep(NOT_FOUND_RETRY_S)
                    continue
                told = failure(error).message
                log.error("ring cannot be worked", ring=self.name, error=told)
                await self._report_refusal(type(error).__name__, told)
            await asyncio.sleep(RETRY_S)

    async def _work_once(self) -> None:
        spec = self._parse()
        resolved = await self._resolve(spec.resources)
        if not self._is_deleted() and not any(entry.main in resolved for entry in spec.resources):
            await self._discovery.resolve(str(spec.resources[0].main))  # raises what it may have meant
        is_acting = self._is_leading and self._is_ours()
        if is_acting:
            worked = await ensure_finalizer(self._home, spec)
        else:
            worked = united(read_worked(_mapping(self._document, "status")), spec.resources)
        resolved |= await self._resolve(worked)
        kinds = RingKinds(spec, resolved, worked=worked, releasing=self._is_deleted())
        self._scope.check(self.name, kinds.labelled)
        membership = self._take_roster(spec, kinds)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(membership.run(), name=f"roster {self.name}")
            if kinds.unserved:
                tasks.create_task(self._watch_unserved(kinds.unserved), name=f"unserved {self.name}")
            if self._webhook is not None and spec.assign_at_admission and self._is_ours():
                serve = self._webhook.serve(spec, kinds, membership, releasing=self._is_deleted())
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
                found[kind] = await self._discovery.resolve(str(kind))
            except InputError as error:
                log.warning("resource is not served", ring=self.name, resource=str(kind))
                self._remedies[kind] = error.remedy
        return found

    async def _served(self, kind: GroupResource) -> ApiResource | None:
        try:
            return await self._discovery.resolve(str(kind))
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

    def _is_deleted(self) -> bool:
        return _mapping(self._document, "metadata").get("deletionTimestamp") is not None

    def _parse(self) -> RingSpec:
        spec = parse_ring(self._document)
        annotations = _mapping(_mapping(self._document, "metadata"), "annotations")
        before = str(annotations.get(WORKED_AS) or self._worked_as)
        problems = immutable_changes(before, spec)
        if problems:
            raise RingRefused(self.name, problems)
        self._worked_as = worked_as(spec)
        return spec

    def _take_roster(self, spec: RingSpec, kinds: RingKinds) -> MembershipController:
        """The ring's one roster: what it saw outlives changes of the spec and the change from standby to leader."""
        if self._membership is None:
            self._membership = MembershipController(
                self._clients.leases,
                spec,
                kinds.labelled,
                identity=self._identity,
                scope=self._scope,
                clock=self._clock,
                rng=self._rng,
                objects=self._client,
            )
        self._membership.configure(spec, kinds.labelled, releasing=self._is_deleted())
        self._membership.act(self._is_leading and self._is_ours())
        return self._membership

    def _is_ours(self) -> bool:
        """Another implementation's ring is left alone (protocol, section 2)."""
        worked_by = str(_mapping(self._document, "status").get("sharder") or IMPLEMENTATION)
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
        releasing = self._is_deleted()
        pending = PendingObjects(labels=spec.labels_read)

        def look_again() -> None:
            """Namespaces, activation or rights changed: what was left alone may be wanted now."""
            unowned.refresh()
            assigner.enqueue_all()
            handoffs.look_again()
            scan.request_pass()
            webhook_controller.note()

        def on_right(right: Permission, is_missing: bool) -> None:
            log.log(
                logging.ERROR if is_missing else logging.INFO,
                "right is missing" if is_missing else "accepted again",
                ring=self.name,
                right=str(right),
            )
            if is_missing:
                events.record(
                    self._home.regarding,
                    reason="MissingRight",
                    action="Work",
                    note=f"the API server refuses: {right}; the other resources go on",
                    type="Warning",
                )
            if not is_missing and right.verb == "patch":
                assigner.enqueue_all()
                scan.request_pass()

        permissions = MissingPermissions(now=self._clock.now, on_change=on_right)
        namespaces = Namespaces(
            self._client, spec, scope=self._scope, on_change=look_again, clock=self._clock, rng=self._rng
        )
        events = EventRecorder(
            self._client,
            reporter=IMPLEMENTATION,
            instance=self._identity,
            on_dropped=self._metrics.events_dropped.labels(ring=self.name).inc,
            clock=self._clock,
            rng=self._rng,
        )
        activation = Activation(
            self._client, self.name, spec.activation, on_change=look_again, clock=self._clock
        )
        context = RingContext(
            spec=spec,
            kinds=kinds,
            by_name={resource.group_resource: resource for resource in kinds.labelled},
            client=self._client,
            scope=self._scope,
            permissions=permissions,
            membership=membership,
            namespaces=namespaces,
            activation=activation,
            objects=ObjectWriter(
                self._client,
                spec,
                kinds=kinds,
                permissions=permissions,
                refusals=Refusals(now=self._clock.now, rng=self._rng, on_refused=self._refusals_to(events)),
                metrics=self._metrics,
                clock=self._clock,
                limiter=self._clients.limiter,
            ),
            metrics=self._metrics,
            events=events,
            ring=self._home.regarding,
            clock=self._clock,
            unserved=[unserved(kind, self._remedies[kind]) for kind in kinds.unserved],
            releasing=releasing,
        )

        assigner = Assigner(context, pending, rng=self._rng, limiter=self._clients.limiter)
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
        status_writer = StatusWriter(
            self._home, self.name, _mapping(self._document, "status"), clock=self._clock
        )
        collector = StatusCollector(context, pending, handoffs, scan, room=room)
        webhook_controller = WebhookController(
            self._client,
            self._webhook,
            spec,
            kinds.resources,
            membership=membership,
            scan=scan,
            ring_uid=str(_mapping(self._document, "metadata").get("uid", "")),
            releasing=releasing,
            clock=self._clock,
        )
        tasks.create_task(webhook_controller.run(), name="admission")
        tasks.create_task(namespaces.run(), name="namespaces")
        tasks.create_task(activation.run(), name="activation")
        tasks.create_task(events.run(), name="events")
        tasks.create_task(handoffs.run(), name="handoffs")
        tasks.create_task(unowned.run(), name="unowned")
        tasks.create_task(
            follow_membership(membership, unowned, settle_s=spec.settle_s, clock=self._clock), name="selector"
        )
        tasks.create_task(scan.run(), name="rebalance")
        tasks.create_task(Audit(context, scan).run(), name="audit")
        tasks.create_task(collector.follow(), name="survey")
        tasks.create_task(
            status_writer.run(
                lambda: collector.status(status_writer, generation=_generation(self._document))
            ),
            name="status",
        )
        tasks.create_task(try_again(permissions, assigner.enqueue_some), name="missing rights")
        if has_former and not releasing:
            tasks.create_task(watch_former(self._home, spec, scan), name="former resources")
        if self._scope.former and not releasing:
            tasks.create_task(
                watch_former_namespaces(self._home, spec, self._scope, scan), name="former namespaces"
            )
        if releasing:
            ending = finalize(
                self._home, self.name, scan, membership, activation, withdrawn=webhook_controller.withdrawn
            )
            tasks.create_task(ending, name="let go")
        await namespaces.synced.wait()
        tasks.create_task(assigner.run(), name="mover")

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
        status_writer = StatusWriter(
            self._home, self.name, _mapping(self._document, "status"), clock=self._clock
        )
        generation = _generation(self._document)
        conditions = status_writer.dated(refused_conditions(reason, message), generation=generation)
        await status_writer.write(
            {"observedGeneration": generation, "sharder": IMPLEMENTATION, "conditions": conditions}
        )


def _generation(document: Mapping[str, object]) -> int:
    generation = _mapping(document, "metadata").get("generation", 0)
    return generation if isinstance(generation, int) else 0


def _substance(document: Mapping[str, object]) -> object:
    """Parts of a ring's document that change the work: not its status, not its versions."""
    meta = _mapping(document, "metadata")
    return document.get("spec"), meta.get("uid"), meta.get("deletionTimestamp") is not None


def _mapping(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


async def _end(*tasks: asyncio.Task[object]) -> None:
    """Cancel *tasks* and wait; an error that one of them raised by itself is passed on."""
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
