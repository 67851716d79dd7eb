"""Everything that `ringleader check` has read: two snapshots, counts of objects with a few samples, the environment.

Memory follows the number of replicas and of troubles, not of objects: names are counted up to `MAX_NAMES`, and of each
trouble `SAMPLES` objects are kept. Filled by `collect` and `environment`, read by the checks. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from ringleader.cluster.objects import named
from ringleader.cluster.shards import ring_weights

if TYPE_CHECKING:
    from datetime import datetime

    from kubeio.resource import ApiResource
    from ringleader.cluster.causes import Cause
    from ringleader.cluster.managed_fields import DatedMeta
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.shards import Shard
    from ringleader.cluster.snapshot import Gap, RingState, Snapshot
    from sharder.planning.keys import RingKinds

SAMPLES: Final = 5
MAX_NAMES: Final = 1000
"""Distinct names that are counted one by one; further ones are counted together."""
OTHER_NAMES: Final = "(other names)"


class Trouble(StrEnum):
    """Trouble of one object, as its labels and the Leases of a snapshot show it."""

    UNOWNED = "has no owner"
    DEAD = "names a dead shard"
    CONTESTED = "names a contested shard"
    UNKNOWN = "names no shard"
    UNWATCHED = "is not watched by its owner"
    LEAVING = "is being handed over"


@dataclass(slots=True)
class Sample:
    """One object in trouble. *cause*: that of the second look; None if it was well again."""

    resource: ApiResource
    meta: DatedMeta
    owner: str
    trouble: Trouble
    drain: str | None = None
    cause: Cause | None = None

    @property
    def named(self) -> str:
        return named(self.resource, self.meta)


@dataclass(slots=True)
class Group:
    """All objects of one resource with one trouble and one name."""

    count: int = 0
    samples: list[Sample] = field(default_factory=list)

    @property
    def lasting(self) -> Sample | None:
        """An object that the second look found in the same trouble, and with which something is wrong."""
        return next((each for each in self.samples if each.cause is not None and each.cause.is_wrong), None)


@dataclass(slots=True)
class ForeignWriter:
    """A field manager that wrote objects or their status as a controller does; *owners*: the shards of these."""

    count: int = 0
    owners: set[str] = field(default_factory=set)
    sample: str = ""
    sample_owner: str = ""
    last: datetime | None = None


@dataclass(slots=True)
class ResourceCount:
    """Objects of one resource of one ring, counted page by page."""

    resource: ApiResource
    is_main: bool
    objects: int = 0
    owners: Counter[str] = field(default_factory=Counter)
    one_of: dict[str, str] = field(default_factory=dict)
    """An object of each owner."""
    groups: dict[tuple[Trouble, str], Group] = field(default_factory=dict)
    writers: dict[str, ForeignWriter] = field(default_factory=dict)
    ours: set[str] = field(default_factory=set)
    """Managers that wrote the ring's own labels: sharders and shards."""
    bytes_each: float = 0.0

    def trouble(self, kind: Trouble) -> dict[str, Group]:
        """The groups of *kind*, by the name on their objects."""
        return {name: group for (found, name), group in self.groups.items() if found is kind}


@dataclass(slots=True)
class Behind:
    """Of *looked_at* objects of a shard, those whose status is behind their spec in both looks."""

    resource: ApiResource
    looked_at: int
    behind: list[str]
    is_reported: bool
    """Whether any object of the resource has an observedGeneration at all."""


@dataclass(slots=True)
class RingEvidence:
    """One ring as the last snapshot shows it, with the counts of its objects."""

    state: RingState
    kinds: RingKinds | None = None
    """None if no object was read, because its Leases could not be."""
    counts: list[ResourceCount] = field(default_factory=list)
    behind: dict[str, Behind] = field(default_factory=dict)
    """By shard."""

    @property
    def ring(self) -> Ring:
        return self.state.ring

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def proxies(self) -> list[Shard]:
        """Its shards that are proxies of unmodified controllers and hold their Leases."""
        return [shard for shard in self.state.held if shard.is_proxy]

    def lease(self, name: str) -> str:
        """The Lease *name* of this ring, in the words that kubectl takes."""
        return f"lease/{name} -n {self.ring.spec.lease_namespace}"

    def is_unworked(self, main: str) -> bool:
        """Whether the ring has members, and none of them works the main resource *main*."""
        has_members = bool(ring_weights(self.ring, self.state.shards))
        return has_members and not any(shard.works(main) for shard in self.state.active.values())

    def groups(self, *kinds: Trouble) -> Iterator[tuple[ResourceCount, str, Group]]:
        """Every group of objects in a trouble of *kinds*: its resource, the name on the objects, the group."""
        for count in self.counts:
            for kind in kinds:
                for name, group in count.trouble(kind).items():
                    yield count, name, group

    def objects_of(self, shard: str) -> int:
        return sum(count.owners[shard] for count in self.counts)

    def one_of(self, shard: str) -> str:
        """An object that bears the name *shard*; empty if none does."""
        return next((count.one_of[shard] for count in self.counts if shard in count.one_of), "")


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
class Evidence:
    """Everything."""

    snapshot: Snapshot
    """The last one, which knows of the first one who renewed a Lease."""
    rings: list[RingEvidence] = field(default_factory=list)
    gaps: dict[str, Gap] = field(default_factory=dict)
    server: str = ""
    version: str = ""
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
    managers: frozenset[str] = frozenset()
    """Field managers that the user vouches for."""

    @property
    def now(self) -> datetime:
        return self.snapshot.now
