"""Rings and the lives in their Leases as the command reads them: only the fields it shows. Pure.

Owns no decision: the state of a life is what the sharder wrote beside it, or what the Lease itself says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from kubeio.models import Lease, Meta
from kubeio.protocol import DEFAULT_DOMAIN, RingKeys, read_counts
from ring import HashRing
from sharder.membership.shards import watched_kinds
from sharder.ringspec.spec import KeyKind

SILENT: Final = ("expired", "uncertain")
"""States of a life that does not renew its Lease."""
DEFAULT_DURATION_S: Final = 15.0


class Kind(msgspec.Struct, frozen=True):
    """A group (empty: core) and a resource."""

    resource: str
    group: str = ""

    @property
    def name(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class Distributed(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    group: str = ""
    controlled_resources: list[Kind] = []

    @property
    def kind(self) -> Kind:
        return Kind(self.resource, self.group)


class Member(msgspec.Struct, frozen=True):
    weight: float = 1.0
    cordoned: bool = False


class RingFields(msgspec.Struct, frozen=True, rename="camel"):
    resources: list[Distributed] = []
    lease_namespace: str = ""
    label_domain: str = DEFAULT_DOMAIN
    virtual_nodes: int = 1000
    eps: float = 0.05
    key: KeyKind = KeyKind.OBJECT
    key_label: str = ""
    members: dict[str, Member] = {}
    paused: bool = False
    activation: dict[str, Any] | None = None


class Ring(msgspec.Struct, frozen=True):
    """One ControllerRing."""

    metadata: Meta
    spec: RingFields
    status: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def keys(self) -> RingKeys:
        return RingKeys(self.name, self.spec.label_domain)

    @property
    def mains(self) -> list[str]:
        """Its main resources as `plural.group`, in their order."""
        return [each.kind.name for each in self.spec.resources]

    def condition(self, kind: str) -> str:
        """Status of the condition *kind*: True, False or Unknown."""
        for condition in self.status.get("conditions") or []:
            if condition.get("type") == kind:
                return str(condition.get("status"))
        return "Unknown"


class Pod(NamedTuple):
    """Where a replica runs."""

    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Life:
    """One shard, as its Lease shows it."""

    shard: str
    member: str
    state: str
    age_s: float | None
    is_live: bool
    """Whether its objects are still its own: its Lease exists and nobody took it."""
    fills_place: bool = False
    field_manager: str = ""
    """Under which name it writes objects; empty: its Lease does not say."""
    duration_s: float = DEFAULT_DURATION_S
    resources: frozenset[str] | None = None
    """What it watches with its name; None: its Lease does not say, so everything."""

    is_held: bool = False
    """Whether its Lease is held by itself: neither released nor taken."""
    objects: Mapping[str, int] | None = None
    """Its objects by resource, as it counted them at its last renewal; None: its Lease does not say."""
    pod: Pod = field(default_factory=Pod)
    """Where it runs, as its Lease says; else the pod called like the member beside the Lease."""

    def works(self, kind: str) -> bool:
        """Whether it watches objects of *kind*, a main resource or a controlled one; empty: of any."""
        return self.resources is None or not kind or kind in self.resources

    def ignores(self, kind: str) -> bool:
        """Whether it holds its Lease and does not watch objects of *kind*: those that bear its name wait."""
        return self.is_held and not self.works(kind)

    @property
    def is_silent(self) -> bool:
        """Whether it does not renew its Lease: as the sharder says, or for twice its duration by our clock."""
        is_late = self.state != "released" and (self.age_s or 0) > 2 * self.duration_s
        return self.state in SILENT or (self.is_live and is_late)


def lives(ring: Ring, leases: Iterable[Lease], *, now: datetime) -> list[Life]:
    """Every life of *ring*, by member; of several live ones with full caches the latest fills the member's place."""
    latest: dict[str, tuple[str, str]] = {}
    found = []
    for lease in leases:
        life = _life(ring.keys, lease, now)
        found.append(life)
        if lease.spec.holder_identity == life.shard and _works(ring.keys, lease):
            rank = (lease.metadata.creation_timestamp or "", life.shard)
            latest[life.member] = max(latest.get(life.member, rank), rank)
    placed = [replace(life, fills_place=latest.get(life.member, ("", ""))[1] == life.shard) for life in found]
    return sorted(placed, key=lambda life: (life.member, not life.fills_place, life.shard))


def _life(keys: RingKeys, lease: Lease, now: datetime) -> Life:
    shard, holder = lease.metadata.name, lease.spec.holder_identity or ""
    own = {"": "released", shard: "held"}.get(holder, "taken")
    return Life(
        shard=shard,
        member=lease.metadata.annotations.get(keys.member, shard),
        state=lease.metadata.labels.get(keys.state, own),
        age_s=_age_s(lease.spec.renew_time, now),
        is_live=own != "taken" or keys.contested in lease.metadata.annotations,
        is_held=own == "held",
        field_manager=lease.metadata.annotations.get(keys.field_manager, ""),
        duration_s=float(lease.spec.lease_duration_seconds or DEFAULT_DURATION_S),
        resources=watched_kinds(lease.metadata.annotations.get(keys.resources, "")),
        objects=_counts(keys, lease),
        pod=_pod(keys, lease),
    )


def _pod(keys: RingKeys, lease: Lease) -> Pod:
    marks, shard = lease.metadata.annotations, lease.metadata.name
    namespace, _, name = marks.get(keys.pod, "").partition("/")
    if namespace and name and "/" not in name:
        return Pod(namespace, name)
    return Pod(lease.metadata.namespace, marks.get(keys.member, shard))


def _counts(keys: RingKeys, lease: Lease) -> Mapping[str, int] | None:
    """What the shard counted; nothing before its caches are full: no object has its name yet."""
    marks = lease.metadata.annotations
    if keys.objects in marks:
        return read_counts(marks[keys.objects])
    return None if _works(keys, lease) else {}


def _works(keys: RingKeys, lease: Lease) -> bool:
    """Whether a shard says that its caches are full; one that does not speak our protocol says nothing."""
    marks = lease.metadata.annotations
    return marks.get(keys.synced) == "true" or keys.protocol not in marks


def _age_s(renewed: str | None, now: datetime) -> float | None:
    if not renewed:
        return None
    return (now - datetime.fromisoformat(renewed).astimezone(UTC)).total_seconds()


def is_tombstone(ring: Ring, lease: Lease) -> bool:
    """Whether the sharder made this Lease for a name that had none."""
    return (
        (lease.spec.holder_identity or "").startswith("sharder:")
        and not lease.spec.lease_transitions
        and lease.metadata.annotations.get(ring.keys.process) is None
    )


def ring_weights(ring: Ring, found: Iterable[Life], main: str = "") -> Mapping[str, float]:
    """Members with a place and their weights: live, not cordoned; only those that work *main*, if one is given."""
    places = {life.member for life in found if life.fills_place and life.works(main)}
    fields = {name: ring.spec.members.get(name, Member()) for name in sorted(places)}
    return {name: field.weight for name, field in fields.items() if not field.cordoned}


class Rings:
    """The hash rings of *ring*, one for all main resources that the same members work."""

    def __init__(self, ring: Ring, found: Sequence[Life]) -> None:
        nodes, eps = ring.spec.virtual_nodes, ring.spec.eps
        weights = {main: ring_weights(ring, found, main) for main in ("", *ring.mains)}
        self._by_main = by_weights(weights, lambda each: HashRing(each, virtual_nodes=nodes, eps=eps))

    @property
    def whole(self) -> HashRing:
        """The ring of all members, whatever they work."""
        return self._by_main[""]

    def of(self, main: str) -> HashRing:
        """The ring of those that work *main*."""
        return self._by_main.get(main, self.whole)

    @property
    def by_main(self) -> Mapping[str, HashRing]:
        """The ring of each main resource, in their order; the same one for those that the same members work."""
        return {main: ring for main, ring in self._by_main.items() if main} or self._by_main


def by_weights(
    weights: Mapping[str, Mapping[str, float]], make: Callable[[Mapping[str, float]], HashRing]
) -> dict[str, HashRing]:
    """What *make* makes of the weights of each name, made once for those that are the same."""
    made: dict[tuple[tuple[str, float], ...], HashRing] = {}
    found = {}
    for name, each in weights.items():
        made_of = tuple(sorted(each.items()))
        if made_of not in made:
            made[made_of] = make(each)
        found[name] = made[made_of]
    return found
