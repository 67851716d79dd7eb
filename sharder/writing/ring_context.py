"""Context of one ring in the acting sharder: values and components that assigner, handoffs and passes share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sharder.planning.planner import Subject, may_be_left_behind, plan

if TYPE_CHECKING:
    import random

    from kubeio.clock import Clock
    from kubeio.models import Meta, ObjectRef
    from kubeio.protocol import RingKeys
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from kubeio.rest.events import EventRecorder, Regarding
    from sharder.membership.controller import MembershipController
    from sharder.metrics import SharderMetrics
    from sharder.planning.decisions import Decision
    from sharder.planning.keys import RingKinds, Role
    from sharder.planning.planner import ControllerSeen
    from sharder.planning.state import RingStates
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec
    from sharder.unowned.access import ObjectAccess
    from sharder.unowned.permissions import MissingPermissions
    from sharder.writing.object_writer import ObjectWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class RingContext:
    """Values and components that assigner, handoffs and passes of one ring share."""

    spec: RingSpec
    kinds: RingKinds
    access: ObjectAccess
    scope: Scope
    membership: MembershipController
    states: RingStates
    objects: ObjectWriter
    metrics: SharderMetrics
    events: EventRecorder
    ring: Regarding

    @property
    def keys(self) -> RingKeys:
        return self.spec.keys

    @property
    def client(self) -> Client:
        return self.access.client

    @property
    def permissions(self) -> MissingPermissions:
        return self.access.permissions

    @property
    def clock(self) -> Clock:
        return self.access.clock

    @property
    def rng(self) -> random.Random:
        return self.access.rng

    def resource(self, ref: ObjectRef) -> ApiResource:
        """The resource that *ref* names."""
        return self.kinds.by_name[ref.resource]

    def subject(
        self,
        resource: ApiResource,
        meta: Meta,
        *,
        role: Role | None = None,
        controller: ControllerSeen | None = None,
        children_since: float | None = None,
    ) -> Subject:
        """One object to plan for, in the present state of the ring."""
        role = role or self.kinds.role(resource, meta)
        selected = self.states.current.selects(meta.namespace)
        return Subject(meta, role, selected, controller, children_since)

    def plan(self, subject: Subject) -> Decision:
        """Decide the write to *subject* in the present state of the ring."""
        state = self.states.current
        view = state.view
        if subject.children_since is not None:
            view = replace(view, at=self.clock.now())  # it was published at its last change
        return plan(subject, view=view, terms=state.terms, keys=self.keys)

    def may_be_left_behind(self, subject: Subject) -> bool:
        """Whether only the controller of *subject* shows whether its owner keeps it wrongly."""
        state = self.states.current
        return may_be_left_behind(subject, view=state.view, terms=state.terms, keys=self.keys)
