"""One ring as the acting sharder works it: the values and rooms that mover, handoffs and passes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sharder.planning.planner import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubeio.clock import Clock
    from kubeio.labels import RingKeys
    from kubeio.resource import Resource
    from kubeio.rest.client import Client
    from kubeio.rest.events import EventRecorder, Regarding
    from sharder.membership.activation import Activation
    from sharder.membership.roster import Roster
    from sharder.metrics import SharderMetrics
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec
    from sharder.unowned.denials import Denials
    from sharder.unowned.namespaces import Namespaces
    from sharder.unowned.waiting import WorkKey
    from sharder.writing.objects import ObjectWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What mover, handoffs and passes of one ring share.

    *unserved*: a sentence for each resource that is not served.
    *releasing*: the ring is being deleted, so every object is given up.
    """

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
    unserved: Sequence[str] = ()
    releasing: bool = False

    @property
    def keys(self) -> RingKeys:
        return self.spec.keys

    def resource(self, work: WorkKey) -> Resource:
        """The resource that *work* names."""
        return self.by_name[work.resource]

    def terms(self) -> Terms:
        """What the ring allows at the moment."""
        return Terms(
            paused=self.spec.paused,
            activated=self.activation.is_granted,
            releasing=self.releasing,
            yields=bool(self.activation.former_holder),
        )
