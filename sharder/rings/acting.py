"""One ring on which this sharder acts: its components, built in the order of their dependencies, and run together.

Sources name objects (reflectors, handoffs, scan, audit), the assigner and the scan decide and write. All plan again
whenever `RingStates` has a newer state.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.rest.events import EventRecorder, Regarding
from sharder.admission.webhook_controller import WebhookController
from sharder.membership.activation import Activation
from sharder.moving.audit import Audit
from sharder.moving.handoffs import Handoffs
from sharder.moving.missent import MissentObjects
from sharder.moving.scan import Scan
from sharder.planning.planner import Terms
from sharder.planning.state import RingStates
from sharder.rings.finalizer import (
    finalize,
    watch_former,
    watch_former_maximum,
    watch_former_namespaces,
)
from sharder.rings.status import IMPLEMENTATION
from sharder.rings.status_collector import StatusCollector
from sharder.rings.status_writer import StatusWriter
from sharder.unowned.access import ObjectAccess
from sharder.unowned.namespaces import Namespaces, selected_at_first
from sharder.unowned.pending import PendingObjects
from sharder.unowned.permissions import MissingPermissions, try_again
from sharder.unowned.reflectors import UnownedReflectors
from sharder.unowned.selector_switch import follow_states
from sharder.writing.assigner import Assigner
from sharder.writing.assignment_queue import AssignmentQueue
from sharder.writing.object_writer import ObjectWriter
from sharder.writing.refusals import Refusals
from sharder.writing.ring_context import RingContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kubeio.models import Meta
    from kubeio.resource import ApiResource
    from sharder.live.ring_view import RingView
    from sharder.membership.controller import MembershipController
    from sharder.planning.keys import RingKinds
    from sharder.rings.store import Ring, RingStore
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec
    from sharder.sharder_context import SharderContext
    from sharder.unowned.permissions import Permission

log = structlog.get_logger("sharder")


class ActingRing:
    """The components of one ring under one spec."""

    def __init__(
        self,
        process: SharderContext,
        store: RingStore,
        *,
        scope: Scope,
        spec: RingSpec,
        kinds: RingKinds,
        membership: MembershipController,
        releasing: bool,
        ring_view: RingView,
    ) -> None:
        client, clock, rng = process.client, process.clock, process.rng
        self._process: Final = process
        self._store: Final = store
        self._scope: Final = scope
        self._spec: Final = spec
        self._releasing: Final = releasing
        self._events = EventRecorder(
            client,
            reporter=IMPLEMENTATION,
            instance=process.identity,
            on_dropped=process.metrics.events_dropped.labels(ring=spec.name).inc,
            clock=clock,
            rng=rng,
        )
        self._activation = Activation(
            client, spec.name, spec.activation, on_change=self._activation_changed, clock=clock
        )
        self._states = RingStates(membership, self._terms(), selected_at_first(spec, scope))
        self._namespaces = Namespaces(
            client, spec, scope=scope, on_change=self._states.set_selected, clock=clock, rng=rng
        )
        permissions = MissingPermissions(now=clock.now, on_change=self._permission_changed)
        access = ObjectAccess(client, permissions, clock, rng)
        self._context = RingContext(
            spec=spec,
            kinds=kinds,
            access=access,
            scope=scope,
            membership=membership,
            states=self._states,
            objects=ObjectWriter(
                access,
                spec,
                kinds=kinds,
                refusals=Refusals(now=clock.now, rng=rng, on_refused=self._object_refused),
                metrics=process.metrics,
                limiter=process.limiter,
                observer=ring_view,
            ),
            metrics=process.metrics,
            events=self._events,
            ring=store.regarding,
        )
        self._pending = PendingObjects(labels=spec.labels_read)
        self._queue = AssignmentQueue(self._context, self._pending)
        self._unowned = UnownedReflectors(
            access,
            kinds.resources,
            self._pending,
            self._queue,
            keys=spec.keys,
            scope=scope,
            controlled=[kind for kind in kinds.resources if kinds.may_be_controlled(kind)],
        )
        missent = MissentObjects()
        self._assigner = Assigner(
            self._context, self._pending, self._queue, self._unowned, process.limiter, missent=missent
        )
        self._handoffs = Handoffs(self._context, missent, ring_view)
        self._scan = Scan(self._context, self._handoffs, missent, self._queue)
        self._ring_view: Final = ring_view

    async def run(self, ring: Callable[[], Ring], *, has_former: bool, unserved: Sequence[str]) -> None:
        """Act on the ring until cancelled.

        *ring*: its newest version. *has_former*: some resource was given up. *unserved*: a sentence for each resource
        that is not served.
        """
        context = self._context
        webhook_controller = WebhookController(
            self._process.client,
            self._process.webhook,
            self._spec,
            context.kinds.resources,
            states=self._states,
            scan=self._scan,
            ring_uid=ring().metadata.uid,
            clock=self._process.clock,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(webhook_controller.run(), name="webhook controller")
            tasks.create_task(self._states.run(), name="state")
            tasks.create_task(self._namespaces.run(), name="namespaces")
            tasks.create_task(self._activation.run(), name="activation")
            tasks.create_task(self._events.run(), name="events")
            tasks.create_task(self._unowned.run(), name="unowned")
            selection = follow_states(
                self._states, self._unowned, settle_s=self._spec.settle_s, clock=self._process.clock
            )
            tasks.create_task(selection, name="selector")
            tasks.create_task(self._keep_status(ring, unserved), name="status")
            tasks.create_task(
                try_again(context.permissions, self._queue.enqueue_some), name="missing permissions"
            )
            self._start_endings(tasks, has_former=has_former, former_s=ring().longest_lease_s)
            await self._namespaces.synced.wait()  # before, nothing seems to be selected
            tasks.create_task(self._assigner.run(), name="assigner")
            tasks.create_task(self._handoffs.run(), name="handoffs")
            tasks.create_task(self._scan.run(), name="scan")
            audit = Audit(context, self._scan, self._queue)
            tasks.create_task(audit.run(), name="audit")

    def _start_endings(self, tasks: asyncio.TaskGroup, *, has_former: bool, former_s: float) -> None:
        """Start the tasks that release resources, namespaces, or the whole ring, and end then.

        *former_s*: the longest lease duration that the ring remembers.
        """
        store, spec, scan = self._store, self._spec, self._scan
        if self._releasing:
            ending = finalize(store, spec.name, scan, self._context.membership, self._activation)
            tasks.create_task(ending, name="finalize")
            return
        if has_former:
            tasks.create_task(watch_former(store, spec, scan), name="former resources")
        if former_s > spec.max_lease_duration_s:
            membership, clock = self._context.membership, self._process.clock
            forget = watch_former_maximum(store, spec, membership, former_s=former_s, clock=clock)
            tasks.create_task(forget, name="former maximum")
        if self._scope.former:
            tasks.create_task(
                watch_former_namespaces(store, spec, self._scope, scan), name="former namespaces"
            )

    async def _keep_status(self, ring: Callable[[], Ring], unserved: Sequence[str]) -> None:
        writer = StatusWriter(self._store, ring, clock=self._process.clock)
        collector = StatusCollector(
            self._context,
            self._activation,
            self._pending,
            self._handoffs,
            self._scan,
            unserved=unserved,
        )
        self._ring_view.enter(self._pending, self._handoffs, self._scan, reported=collector.reported)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(collector.follow(), name="membership counts")
            tasks.create_task(
                writer.run(lambda: collector.status(writer, generation=ring().metadata.generation)),
                name="status writes",
            )

    # ---- what changes the state -------------------------------------------------------------------------------

    def _terms(self) -> Terms:
        return Terms(
            paused=self._spec.paused,
            activated=self._activation.is_granted,
            releasing=self._releasing,
            former_controller_works=bool(self._activation.former_holder),
        )

    def _activation_changed(self) -> None:
        self._states.set_terms(self._terms())

    def _permission_changed(self, permission: Permission, is_missing: bool) -> None:
        log.log(
            logging.ERROR if is_missing else logging.INFO,
            "permission missing" if is_missing else "permission granted again",
            ring=self._spec.name,
            permission=str(permission),
        )
        if is_missing:
            self._events.record(
                self._store.regarding,
                reason="MissingRight",
                action="Work",
                note=f"the API server refuses: {permission}; the other resources go on",
                type="Warning",
            )
        elif permission.verb == "patch":
            self._states.revise()

    def _object_refused(self, resource: ApiResource, meta: Meta, message: str) -> None:
        """The ring's labels cannot be written to an object."""
        what = f"{resource.group_resource}/{meta.key}"
        log.warning("object may not be changed", ring=self._spec.name, object=what, error=message)
        self._events.record(
            Regarding.of(resource, meta),
            reason="Refused",
            action="Label",
            note=f"the labels of the ring cannot be written to this object: {message}",
            type="Warning",
        )
