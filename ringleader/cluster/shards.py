"""Shards of a ring as their Leases show them, and the hash rings of their members. Pure.

Owns no decision of the sharder: a shard's state is what the sharder wrote beside it, or what the Lease itself says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.protocol import PROXY_MANAGER, read_counts
from ring import HashRing
from ringleader.cluster.managed_fields import seconds_since
from ringleader.cluster.thresholds import SILENT_AFTER
from sharder.membership.shards import watched_kinds

if TYPE_CHECKING:
    from kubeio.models import Lease
    from kubeio.protocol import RingKeys
    from ringleader.cluster.ring import Ring

SILENT: Final = ("expired", "uncertain")
"""States that a sharder gives a shard that does not renew its Lease."""
LEAVING: Final = "leaving"
"""State of a shard that works and whose replica was scaled away."""
DEFAULT_DURATION_S: Final = 15.0


class Pod(NamedTuple):
    """Namespace and name of a replica's pod."""

    namespace: str = ""
    name: str = ""


def duration_s(lease: Lease) -> float:
    """Seconds for which a renewal of *lease* counts."""
    return float(lease.spec.lease_duration_seconds or DEFAULT_DURATION_S)


@dataclass(frozen=True)
class Shard:
    """One Lease of a ring as read at *now*, by the API server's clock."""

    lease: Lease
    keys: RingKeys
    now: datetime
    is_active: bool = False
    """Whether it has its member's place on the ring: of several live ones with full caches that stay the latest."""
    is_renewing: bool = False
    """Whether a second look has seen it renew its Lease, whatever its clock says."""

    @property
    def name(self) -> str:
        return self.lease.metadata.name

    @property
    def member(self) -> str:
        return self.lease.metadata.annotations.get(self.keys.member, self.name)

    @property
    def holder(self) -> str:
        return self.lease.spec.holder_identity or ""

    @property
    def is_held(self) -> bool:
        """Whether its Lease is held by itself: neither released nor taken."""
        return self.holder == self.name

    @property
    def is_contested(self) -> bool:
        """Whether its Lease was taken, and its process may still work."""
        return self.keys.contested in self.lease.metadata.annotations

    @property
    def is_live(self) -> bool:
        """Whether its objects are still its own: its Lease was not taken, or is contested."""
        return self.is_held or not self.holder or self.is_contested

    @property
    def is_placeholder(self) -> bool:
        """Whether the sharder made this Lease for a name that had none."""
        return (
            self.holder.startswith("sharder:")
            and not self.lease.spec.lease_transitions
            and self.lease.metadata.annotations.get(self.keys.process) is None
        )

    @cached_property
    def state(self) -> str:
        if self.is_leaving and self.is_working:
            return LEAVING
        return self._marked_state

    @property
    def _marked_state(self) -> str:
        """What the sharder wrote beside it, or what the Lease itself says."""
        own = "held" if self.is_held else "taken" if self.holder else "released"
        return self.lease.metadata.labels.get(self.keys.state, own)

    @property
    def is_leaving(self) -> bool:
        """Whether its replica was scaled away: it gets no object any more, and hands its own over."""
        return self.lease.metadata.annotations.get(self.keys.leaving) == "true"

    @cached_property
    def age_s(self) -> float | None:
        """Seconds since its last renewal."""
        return seconds_since(self.lease.spec.renew_time, self.now)

    @property
    def duration_s(self) -> float:
        return duration_s(self.lease)

    @property
    def field_manager(self) -> str:
        """The name under which it writes objects; empty: its Lease does not say."""
        return self.lease.metadata.annotations.get(self.keys.field_manager, "")

    @property
    def is_proxy(self) -> bool:
        """Whether it is the proxy of an unmodified controller."""
        return self.field_manager == PROXY_MANAGER

    @property
    def probes_port(self) -> int:
        """Where its pod serves probes and metrics, if the chart made it."""
        return 8091 if self.is_proxy else 8081

    @cached_property
    def resources(self) -> frozenset[str] | None:
        """The kinds whose objects it watches; None: its Lease does not say, so everything."""
        return watched_kinds(self.lease.metadata.annotations.get(self.keys.resources, ""))

    @cached_property
    def objects(self) -> Mapping[str, int] | None:
        """Its objects by resource at its last renewal; None: its Lease does not say.

        None are counted before its caches are full: no object has its name yet.
        """
        marks = self.lease.metadata.annotations
        if self.keys.objects in marks:
            return read_counts(marks[self.keys.objects])
        return None if self.is_synced else {}

    def count(self, resources: Iterable[str]) -> int | None:
        """Its objects of *resources* together; None: its Lease does not say."""
        return None if self.objects is None else sum(self.objects.get(each, 0) for each in resources)

    @property
    def is_synced(self) -> bool:
        """Whether its caches are full; a shard that does not speak our protocol does not say."""
        marks = self.lease.metadata.annotations
        return marks.get(self.keys.synced) == "true" or self.keys.protocol not in marks

    @property
    def pod(self) -> Pod:
        """Its pod, as its Lease says; else the pod called like the member beside the Lease."""
        namespace, _, name = self.lease.metadata.annotations.get(self.keys.pod, "").partition("/")
        if namespace and name and "/" not in name:
            return Pod(namespace, name)
        return Pod(self.lease.metadata.namespace, self.member)

    @property
    def created(self) -> str:
        return self.lease.metadata.creation_timestamp or ""

    @property
    def is_silent(self) -> bool:
        """Whether it holds its Lease and does not renew it, by the sharder's word or by the Lease's age.

        A state beside the Lease may be that of a sharder that is gone. Only a second look shows a clock that is behind.
        """
        if not self.is_held or self.is_renewing:
            return False
        if self._marked_state in SILENT:
            return True
        return self.age_s is None or self.age_s > SILENT_AFTER * self.duration_s

    @property
    def is_working(self) -> bool:
        """Whether it holds and renews its Lease."""
        return self.is_held and not self.is_silent

    def works(self, kind: str) -> bool:
        """Whether it watches objects of *kind*, a main resource or a controlled one; empty: of any."""
        return self.resources is None or not kind or kind in self.resources

    def ignores(self, kind: str) -> bool:
        """Whether it holds its Lease and does not watch objects of *kind*: those that bear its name wait."""
        return self.is_held and not self.works(kind)


def shards_of(ring: Ring, leases: Iterable[Lease], *, now: datetime) -> list[Shard]:
    """Every shard of *ring*, by member: the active one first."""
    latest: dict[str, tuple[str, str]] = {}
    found = [Shard(lease, ring.keys, now) for lease in leases]
    for shard in found:
        if shard.is_held and shard.is_synced and not shard.is_leaving:
            rank = (shard.created, shard.name)
            latest[shard.member] = max(latest.get(shard.member, rank), rank)
    marked = [
        replace(shard, is_active=latest.get(shard.member, ("", ""))[1] == shard.name) for shard in found
    ]
    return sorted(marked, key=lambda shard: (shard.member, not shard.is_active, shard.name))


def ring_weights(ring: Ring, shards: Iterable[Shard], main: str = "") -> Mapping[str, float]:
    """Members with a place and their weights: active, not cordoned; only those that work *main*, if one is given."""
    active = sorted({shard.member for shard in shards if shard.is_active and shard.works(main)})
    settings = {name: ring.spec.member(name) for name in active}
    return {name: each.weight for name, each in settings.items() if not each.cordoned}


class HashRings:
    """The hash rings of *ring*, one for all main resources that the same members work."""

    def __init__(self, ring: Ring, shards: Sequence[Shard]) -> None:
        nodes, eps = ring.spec.virtual_nodes, ring.spec.eps
        weights = {main: ring_weights(ring, shards, main) for main in ("", *ring.mains)}
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
    """The result of *make* for the weights of each name, made once for equal weights."""
    made: dict[tuple[tuple[str, float], ...], HashRing] = {}
    found = {}
    for name, each in weights.items():
        made_of = tuple(sorted(each.items()))
        if made_of not in made:
            made[made_of] = make(each)
        found[name] = made[made_of]
    return found
