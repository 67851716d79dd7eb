"""One ring as the acting sharder works it: the values and rooms that mover, handoffs and passes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sharder.planner import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubeio.client import Client
    from kubeio.clock import Clock
    from kubeio.events import EventRecorder, Regarding
    from kubeio.labels import RingKeys
    from kubeio.resource import Resource
    from sharder.activation import Activation
    from sharder.denials import Denials
    from sharder.keys import RingKinds
    from sharder.metrics import SharderMetrics
    from sharder.namespaces import Namespaces
    from sharder.objects import ObjectWriter
    from sharder.roster import Roster
    from sharder.scope import Scope
    from sharder.spec import RingSpec
    from sharder.waiting import WorkKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """*releasing*: the ring is being deleted, so every object is given up."""

    spec: RingSpec
    kinds: RingKinds
    by_name: Mapping[str, Resource]
    client: Client
    scope: Scope
    denials: Denials
    roster: Roster
    namespaces: Namespaces
    activation: Activation
    objects: ObjectWriter
    metrics: SharderMetrics
    events: EventRecorder
    ring: Regarding
    clock: Clock
    releasing: bool = False

    @property
    def keys(self) -> RingKeys:
        return self.spec.keys

    def resource(self, work: WorkKey) -> Resource:
        """The resource that *work* names."""
        return self.by_name[work.resource]

    def terms(self) -> Terms:
        """What the ring allows at the moment."""
        return Terms(paused=self.spec.paused, activated=self.activation.is_granted, releasing=self.releasing)
