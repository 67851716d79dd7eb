"""A ControllerRing as frozen values.

Owns the shapes and their defaults; `sharder.ringspec.parsing` parses a person's document into them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.models import GroupResource
from kubeio.protocol import DEFAULT_DOMAIN, RingKeys, ring_keys

if TYPE_CHECKING:
    from collections.abc import Mapping


class RingResource(NamedTuple):
    """One kind whose objects the ring distributes, and the kinds that follow their controllers."""

    main: GroupResource
    controlled: tuple[GroupResource, ...] = ()


class KeyKind(StrEnum):
    """Kind of the key that is hashed."""

    OBJECT = "Object"
    NAMESPACE = "Namespace"
    LABEL = "Label"
    OWNER = "Owner"


class DrainPolicy(StrEnum):
    """Policy for a handoff past its timeout: report it, or take the owner's Lease."""

    WAIT = "Wait"
    FORCE = "Force"


class Pace(StrEnum):
    """Pace of label patches: the more are under way, the sooner the work is done, and the longer other clients wait."""

    BACKGROUND = "Background"
    NORMAL = "Normal"
    URGENT = "Urgent"


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """Settings of one member: its share relative to the others, and whether it may have any."""

    weight: float = 1.0
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRef:
    """The leader-election Lease of the controller that worked these objects before (protocol, section 7)."""

    namespace: str
    name: str


class Requirement(NamedTuple):
    """One `matchExpressions` entry."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A namespaceSelector; empty matches everything."""

    labels: Mapping[str, str] = field(default_factory=dict)
    expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether something with *labels* is selected, by the API's rules."""
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            _meets(requirement, labels) for requirement in self.expressions
        )


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case _:
            return value is None


DEFAULT_MEMBER: Final = MemberSpec()
LONGEST_LEASE_S: Final = 3600
"""The most that maxLeaseDurationSeconds may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSpec:
    """One ring, as it is to be worked. Durations in seconds."""

    name: str
    lease_namespace: str
    resources: tuple[RingResource, ...]
    namespace_selector: LabelSelector | None = None
    label_domain: str = DEFAULT_DOMAIN
    algorithm: str = "v1"
    virtual_nodes: int = 1000
    eps: float = 0.05  # spec.imbalancePercent / 100
    key: KeyKind = KeyKind.OBJECT
    key_label: str = ""
    members: Mapping[str, MemberSpec] = field(default_factory=dict)
    hold_s: float = 0.0
    settle_s: float = 2.0
    min_members: int = 1
    start_delay_s: float = 0.0
    max_lease_duration_s: float = 60.0
    max_in_flight: int = 1000
    max_in_flight_per_owner: int = 250
    drain_timeout_s: float = 60.0
    drain_policy: DrainPolicy = DrainPolicy.WAIT
    audit_interval_s: float = 3600.0
    paused: bool = False
    pace: Pace | None = None
    """Pace of every label patch of the ring; None: urgent for objects without a worker, background for all others."""
    assign_at_admission: bool = False
    activation: LeaseRef | None = None

    @property
    def keys(self) -> RingKeys:
        """Label and annotation keys of this ring."""
        return ring_keys(self.name, self.label_domain)

    @property
    def mains(self) -> tuple[str, ...]:
        """Names of the main resources, in their order."""
        return tuple(str(entry.main) for entry in self.resources)

    @property
    def labels_read(self) -> tuple[str, ...]:
        """The labels of an object that a decision about it reads."""
        keys = self.keys
        return (keys.shard, keys.drain, self.key_label) if self.key_label else (keys.shard, keys.drain)

    def member(self, name: str) -> MemberSpec:
        """Settings of member *name*; the default if the ring has none for it."""
        return self.members.get(name, DEFAULT_MEMBER)

    def selects_namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether objects of a namespace with *labels* belong to the ring (cluster-scoped ones always do)."""
        return self.namespace_selector is None or self.namespace_selector.matches(labels)
