"""A cluster's rings at one moment: the ControllerRings, the Leases of their shards, the sharders' election. Pure.

Every age is by the API server's clock. What could not be read is a gap, with the right to add. Two snapshots show who
renews a Lease, whatever its clock says. `reader` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kubeio.errors import KubeError
from ringleader.cluster.managed_fields import seconds_since
from ringleader.cluster.ring import Ring, named_ring
from ringleader.cluster.shards import HashRings, Shard, duration_s
from ringleader.cluster.thresholds import SILENT_AFTER

if TYPE_CHECKING:
    from kubeio.models import Lease, Meta

ELECTION_LEASE: Final = "ringleader-sharder"
"""Name of the Lease by which sharders elect their leader. They choose its namespace."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of a cluster that could not be read, and what would help."""

    summary: str
    remedy: str
    error: KubeError | None = None


# ---- the sharders' election -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Election:
    """An election Lease of sharders."""

    lease: Lease
    now: datetime
    is_renewing: bool = False
    """Whether a second look has seen its holder renew it."""

    @property
    def where(self) -> str:
        return f"{self.lease.metadata.namespace}/{self.lease.metadata.name}"

    @property
    def holder(self) -> str:
        return self.lease.spec.holder_identity or ""

    @property
    def age_s(self) -> float:
        """Seconds since its last renewal."""
        renewed = self.lease.spec.renew_time or self.lease.metadata.creation_timestamp
        return seconds_since(renewed, self.now) or 0.0

    @property
    def leads(self) -> bool:
        """Whether its holder leads."""
        is_fresh = self.age_s < SILENT_AFTER * duration_s(self.lease)
        return bool(self.holder) and (self.is_renewing or is_fresh)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The sharders' elections; *is_known* is False if they may not be read."""

    elections: Sequence[Election] = ()
    is_known: bool = True

    @property
    def newest(self) -> Election | None:
        """The election of the sharder that leads, or led last."""
        return min(
            self.elections, key=lambda each: (not each.leads, not each.holder, each.age_s), default=None
        )

    @property
    def leads(self) -> bool | None:
        """Whether a sharder leads; None if that is not known."""
        if not self.is_known:
            return None
        return self.newest is not None and self.newest.leads

    @property
    def leader(self) -> str:
        """The sharder that leads; empty if none does, or if that is not known."""
        return self.newest.holder if self.newest is not None and self.newest.leads else ""


# ---- the snapshot ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RingState:
    """One ring with the shards of its Leases."""

    ring: Ring
    shards: Sequence[Shard] = ()
    strays: Sequence[Lease] = ()
    """Leases that name this ring in another namespace than the ring's."""
    former_holder: str = ""
    """Holder of the former controller's Lease, if the ring waits for it."""
    began_at: datetime = _NEVER
    """When the reading of its Leases began, by the server's clock."""
    read_at: datetime = _NEVER

    @property
    def name(self) -> str:
        return self.ring.name

    @cached_property
    def by_name(self) -> Mapping[str, Shard]:
        return {shard.name: shard for shard in self.shards}

    @cached_property
    def active(self) -> Mapping[str, Shard]:
        """The active shard of each member that has one."""
        return {shard.member: shard for shard in self.shards if shard.is_active}

    @property
    def held(self) -> list[Shard]:
        """Shards whose Leases are held by themselves, by name."""
        return sorted((shard for shard in self.shards if shard.is_held), key=lambda shard: shard.name)

    @property
    def working(self) -> list[Shard]:
        """Those that renew their Leases, by name."""
        return [shard for shard in self.held if shard.is_working]

    @cached_property
    def hash_rings(self) -> HashRings:
        return HashRings(self.ring, self.shards)

    def active_shard(self, member: str) -> str:
        """Name of the active shard of *member*; empty if it has none."""
        return self.active[member].name if member in self.active else ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rings of a cluster at *now*."""

    now: datetime
    rings: Sequence[RingState] = ()
    leadership: Leadership = field(default_factory=Leadership)
    namespaces: Mapping[str, Mapping[str, str]] | None = None
    """Labels by name; None if no ring selects namespaces, or if they could not be read."""
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    clock_ahead_s: float = 0.0
    """This machine's clock minus the server's."""

    def of(self, name: str) -> RingState:
        """The ring *name*. Raises: InputError if it was not read."""
        named_ring([each.ring for each in self.rings], name)
        return next(each for each in self.rings if each.name == name)

    def require(self, *parts: str) -> Snapshot:
        """This snapshot. Raises the error of the first gap in *parts*, given by the beginnings of their names."""
        for part, gap in self.gaps.items():
            if part.startswith(parts) and gap.error is not None:
                raise gap.error
        return self

    def selects(self, ring: Ring, namespace: str) -> bool:
        """Whether *ring* selects *namespace* (empty: of an object that has none); True if that is not known."""
        if ring.spec.namespace_selector is None or not namespace or self.namespaces is None:
            return True
        labels = self.namespaces.get(namespace)
        return labels is not None and ring.spec.selects_namespace(labels)

    def wants(self, ring: Ring, meta: Meta) -> bool:
        """Whether an object is the ring's business: its namespace is selected, or it still has the ring's label."""
        return self.selects(ring, meta.namespace) or ring.keys.shard in meta.labels

    def after(self, first: Snapshot) -> Snapshot:
        """The rings of *first* as this later snapshot shows them, and who has renewed in between."""
        later = {each.name: each for each in self.rings}
        rings = [self._ring_after(each, later.get(each.name)) for each in first.rings]
        leadership = self.leadership
        if leadership.is_known:
            before = {each.where: each.lease.spec.renew_time for each in first.leadership.elections}
            leadership = Leadership(
                [
                    replace(
                        each, is_renewing=before.get(each.where, "") not in ("", each.lease.spec.renew_time)
                    )
                    for each in leadership.elections
                ]
            )
        namespaces = first.namespaces if self.namespaces is None else self.namespaces
        return replace(
            self,
            rings=rings,
            leadership=leadership if leadership.is_known else first.leadership,
            namespaces=namespaces,
            gaps={**first.gaps, **self.gaps},
        )

    def _ring_after(self, before: RingState, later: RingState | None) -> RingState:
        if later is None:
            return before
        if f"leases:{before.name}" in self.gaps:
            return replace(before, ring=later.ring)
        renewed = {shard.name: shard.lease.spec.renew_time for shard in before.shards}
        shards = [
            replace(shard, is_renewing=renewed.get(shard.name, "") not in ("", shard.lease.spec.renew_time))
            for shard in later.shards
        ]
        return replace(later, shards=shards, began_at=before.began_at)
