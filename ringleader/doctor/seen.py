"""What the doctor has read of a cluster: rings, two looks at their Leases, counts of objects with a few samples. Pure.

Owns the shapes. Memory follows the number of replicas and of troubles, not of objects: names are counted up to
`MAX_NAMES`, and of each trouble `SAMPLES` objects are kept. Filled by `gathering`, read by the checks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubeio.models import Lease, Meta
from kubeio.resource import ApiResource
from ringleader.inspect.cluster.rings import Life, Ring, RingFields, lives, ring_weights

if TYPE_CHECKING:
    from sharder.ringspec.spec import LabelSelector

SAMPLES: Final = 5
MAX_NAMES: Final = 1000
"""Distinct names that are counted one by one; further ones are counted together."""
OTHER_NAMES: Final = "(other names)"
ELECTION_LEASE: Final = "ringleader-sharder"


class RingSpec(RingFields, frozen=True, rename="camel"):
    """The fields of a ring that the doctor reads besides those of `status`."""

    paused: bool = False
    settle_seconds: float = 2.0
    min_members: int = 1
    drain_timeout_seconds: float = 60.0
    max_lease_duration_seconds: float = 60.0
    assign_at_admission: bool = False
    namespace_selector: dict[str, Any] | None = None


class FullRing(Ring, frozen=True):
    spec: RingSpec

    def why_not(self, kind: str) -> tuple[str, str]:
        """Reason and message of the condition *kind*; empty if it is absent."""
        for condition in self.status.get("conditions") or []:
            if condition.get("type") == kind:
                return str(condition.get("reason", "")), str(condition.get("message", ""))
        return "", ""


class Written(msgspec.Struct, rename="camel", gc=False):
    """One entry of managedFields."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))

    @property
    def at(self) -> datetime | None:
        return instant(self.time)


class WrittenMeta(Meta, rename="camel"):
    managed_fields: list[Written] = msgspec.field(default_factory=list)


class Item(msgspec.Struct):
    metadata: WrittenMeta


class Trouble(StrEnum):
    """What may be wrong with one object, as its labels and the Leases of the first look show it."""

    UNOWNED = "has no owner"
    DEAD = "names a dead shard"
    CONTESTED = "names a contested shard"
    UNKNOWN = "names nobody"
    UNWATCHED = "is not watched by its owner"
    LEAVING = "is being handed over"


@dataclass(slots=True)
class Sample:
    """One object in trouble, as it was seen first."""

    resource: ApiResource
    meta: Meta
    owner: str
    trouble: Trouble
    drain: str | None = None
    drain_since: datetime | None = None
    persists: bool = True
    """False when a second look found it well again."""

    @property
    def named(self) -> str:
        return named(self.resource, self.meta)


@dataclass(slots=True)
class Group:
    """All objects of one resource with one trouble and one name."""

    count: int = 0
    samples: list[Sample] = field(default_factory=list)


@dataclass(slots=True)
class Hand:
    """A field manager that wrote objects or their status as a controller does; *owners*: the shards these belong to."""

    count: int = 0
    owners: set[str] = field(default_factory=set)
    sample: str = ""
    sample_owner: str = ""
    last: datetime | None = None


@dataclass(slots=True)
class Tally:
    """Objects of one resource of one ring, counted page by page."""

    resource: ApiResource
    is_main: bool
    controllers: frozenset[tuple[str, str]] = frozenset()
    """Group and kind of what may control these objects; empty for mains."""
    objects: int = 0
    owners: Counter[str] = field(default_factory=Counter)
    one_of: dict[str, str] = field(default_factory=dict)
    """An object of each owner."""
    groups: dict[tuple[Trouble, str], Group] = field(default_factory=dict)
    hands: dict[str, Hand] = field(default_factory=dict)
    ours: set[str] = field(default_factory=set)
    """Managers that wrote the ring's own labels: sharders and shards."""
    bytes_each: float = 0.0

    def trouble(self, kind: Trouble) -> dict[str, Group]:
        """The groups of *kind*, by the name on their objects."""
        return {name: group for (found, name), group in self.groups.items() if found is kind}


@dataclass(slots=True)
class SeenShard:
    """A Lease of a ring as it was seen first, and *now*, in the second look; one that is new is the same twice."""

    first: Lease
    now: Lease

    @property
    def is_renewing(self) -> bool:
        """Whether it was renewed between both looks."""
        return self.now.spec.renew_time != self.first.spec.renew_time


@dataclass(slots=True)
class Behind:
    """Of *looked_at* objects of a shard, those whose status is behind their spec in both looks."""

    resource: ApiResource
    looked_at: int
    behind: list[str]
    is_told: bool
    """Whether any object of the resource tells observedGeneration at all."""


@dataclass(slots=True)
class RingSeen:
    """One ring with its Leases and objects."""

    ring: FullRing
    first_at: datetime
    """When the first look at the Leases began, by the server's clock; *second_at*: when the second one ended."""
    second_at: datetime
    selector: LabelSelector | None = None
    shards: dict[str, SeenShard] = field(default_factory=dict)
    strays: list[Lease] = field(default_factory=list)
    """Leases that name this ring in another namespace than the ring's."""
    strangers: dict[str, Lease] = field(default_factory=dict)
    """Leases that bear a name found on objects, and are not this ring's."""
    tallies: list[Tally] = field(default_factory=list)
    behind: dict[str, Behind] = field(default_factory=dict)
    """By shard."""

    @property
    def name(self) -> str:
        return self.ring.name

    def member(self, lease: Lease) -> str:
        return lease.metadata.annotations.get(self.ring.keys.member, lease.metadata.name)

    def lease(self, name: str) -> str:
        """The Lease *name* of this ring, in the words that kubectl takes."""
        return f"lease/{name} -n {self.ring.spec.lease_namespace}"

    def lives(self) -> list[Life]:
        """The lives of the second look."""
        return lives(self.ring, (shard.now for shard in self.shards.values()), now=self.second_at)

    def mains_of(self, tally: Tally) -> list[str]:
        """The main resource that *tally* counts, or those that may control what it counts."""
        if tally.is_main:
            return [tally.resource.group_resource]
        mains = (each.resource for each in self.tallies if each.is_main)
        return [each.group_resource for each in mains if (each.group, each.kind) in tally.controllers]

    def unworked(self, tally: Tally) -> str:
        """The main resource of what *tally* counts, if the ring has members and none of them works it; else empty."""
        found = self.lives()
        if not ring_weights(self.ring, found):
            return ""
        mains = self.mains_of(tally)
        return mains[0] if mains and not any(ring_weights(self.ring, found, main) for main in mains) else ""

    def held(self) -> list[SeenShard]:
        """The shards whose Leases are held by their own names, by name."""
        return [shard for name, shard in sorted(self.shards.items()) if is_held(shard.now)]

    def is_silent(self, shard: SeenShard) -> bool:
        """Whether a held Lease has not been renewed for more than its duration, by the server's clock."""
        if shard.is_renewing:
            return False
        renewed = instant(shard.now.spec.renew_time)
        return renewed is None or (self.second_at - renewed).total_seconds() > duration_s(shard.now)

    def working(self) -> list[SeenShard]:
        return [shard for shard in self.held() if not self.is_silent(shard)]

    def objects_of(self, shard: str) -> int:
        return sum(tally.owners[shard] for tally in self.tallies)

    def one_of(self, shard: str) -> str:
        """An object that bears the name *shard*; empty if none does."""
        return next((tally.one_of[shard] for tally in self.tallies if shard in tally.one_of), "")


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of the picture that could not be had, and what would help."""

    summary: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Right:
    """A right that an account needs, and whether it has it."""

    account: str
    role: str
    ring: str
    verb: str
    group: str
    resource: str
    subresource: str
    name: str
    namespace: str
    is_granted: bool


@dataclass(slots=True)
class Hook:
    """The webhook of one ring as the server and the network show it."""

    ring: str
    configuration: dict[str, Any] | None
    target: str = ""
    unreachable: str = ""
    """Why it does not answer; empty if it does, or could not be asked."""
    not_after: datetime | None = None
    """When the first of its certificates ends."""
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class UnfitReport:
    """An object that a replica could not decode as its controller's model, and the report of it."""

    named: str
    ring: str
    note: str
    reporter: str
    reported_at: datetime | None


@dataclass(slots=True)
class Seen:
    """Everything."""

    now: datetime
    rings: list[RingSeen] = field(default_factory=list)
    gaps: dict[str, Gap] = field(default_factory=dict)
    server: str = ""
    version: str = ""
    local_skew_s: float = 0.0
    """This machine's clock minus the server's."""
    elections: list[SeenShard] = field(default_factory=list)
    """The sharders' election Leases."""
    crd: dict[str, Any] | None = None
    wanted_crd: dict[str, Any] = field(default_factory=dict)
    features: dict[str, bool] = field(default_factory=dict)
    rights: list[Right] = field(default_factory=list)
    accounts: dict[str, list[str]] = field(default_factory=dict)
    """`sharder` and `shard`: the accounts that were asked about."""
    hooks: list[Hook] = field(default_factory=list)
    unfit: list[UnfitReport] = field(default_factory=list)
    flow_schemas: list[dict[str, Any]] | None = None
    """None: the server does not serve them."""
    policies: dict[str, dict[str, Any]] | None = None
    """Validating admission policies by name; None: the server does not serve them."""
    policy_bindings: dict[str, dict[str, Any]] = field(default_factory=dict)
    wildcards: list[tuple[str, str]] = field(default_factory=list)
    """Role and account of those who have the verb that no role grants by name."""
    namespaces: dict[str, dict[str, str]] | None = None
    """Labels by name; None if no ring selects namespaces."""
    managers: frozenset[str] = frozenset()
    """Field managers that the user vouches for."""


def named(resource: ApiResource, meta: Meta) -> str:
    """*meta*'s object in the words that `ringleader where` takes: `website/blog -n sites`."""
    tail = f" -n {meta.namespace}" if meta.namespace else ""
    return f"{resource.kind.lower()}/{meta.name}{tail}"


def instant(text: str | None) -> datetime | None:
    """An instant of the API; None if it is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def is_held(lease: Lease) -> bool:
    return lease.spec.holder_identity == lease.metadata.name


def duration_s(lease: Lease) -> float:
    return float(lease.spec.lease_duration_seconds or 15)
