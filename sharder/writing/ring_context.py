"""Context of one ring in the acting sharder: values and components that assigner, handoffs and passes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sharder.planning.planner import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubeio.clock import Clock
    from kubeio.protocol import RingKeys
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client
    from kubeio.rest.events import EventRecorder, Regarding
    from sharder.membership.activation import Activation
    from sharder.membership.controller import MembershipController
    from sharder.metrics import SharderMetrics
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec
    from sharder.unowned.namespaces import Namespaces
    from sharder.unowned.pending import ObjectRef
    from sharder.unowned.permissions import MissingPermissions
    from sharder.writing.objects import ObjectWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class RingContext:
    """Values and components that assigner, handoffs and passes of one ring share.

    *unserved*: a sentence for each resource that is not served.
    *releasing*: the ring is being deleted, so every object is given up.
    """

    spec: RingSpec
    kinds: RingKinds
    by_name: Mapping[str, ApiResource]
    client: Client
    scope: Scope
    permissions: MissingPermissions
    membership: MembershipController
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

    def resource(self, work: ObjectRef) -> ApiResource:
        """The resource that *work* names."""
        return self.by_name[work.resource]

    def terms(self) -> Terms:
        """Terms of the ring at the moment: the writes that it allows."""
        return Terms(
            paused=self.spec.paused,
            activated=self.activation.is_granted,
            releasing=self.releasing,
            yields=bool(self.activation.former_holder),
        )
