"""One object of a ring with all that its cause depends on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringleader.cluster.managed_fields import seconds_since

if TYPE_CHECKING:
    from kubeio.models import Lease, ObjectKey
    from kubeio.protocol import RingKeys
    from ringleader.cluster.managed_fields import DatedMeta
    from ringleader.cluster.placement import Row
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.shards import Shard
    from ringleader.cluster.snapshot import RingState, Snapshot


@dataclass(frozen=True, slots=True)
class Controller:
    """The controller of a controlled object, and the shard in its label."""

    name: str
    key: ObjectKey
    owner: str = ""
    exists: bool = True


@dataclass(frozen=True, slots=True)
class ObjectState:
    """One object of a ring, with the snapshot in which it is judged."""

    snapshot: Snapshot
    state: RingState
    row: Row
    meta: DatedMeta
    controller: Controller | None = None
    foreign_lease: Lease | None = None
    """The Lease of its owner's name, if it is not of this ring."""
    other_owners: Mapping[str, str] = field(default_factory=dict)
    """By further ring: the owner there."""
    is_lasting: bool = False
    """Whether two looks found it in the same state: it is not just new."""

    @property
    def ring(self) -> Ring:
        return self.state.ring

    @property
    def keys(self) -> RingKeys:
        return self.state.ring.keys

    @property
    def owner(self) -> Shard | None:
        return self.state.by_name.get(self.row.owner)

    @property
    def desired(self) -> Shard | None:
        return self.state.by_name.get(self.row.desired_shard)

    def since(self, instant: str | None) -> float | None:
        """Seconds since *instant*; None if it is not known."""
        return seconds_since(instant, self.snapshot.now)

    def written_s(self, label: str) -> float | None:
        """Seconds since *label* was written; None if the server does not say."""
        entry = self.meta.label_written(label)
        return self.since(entry.time) if entry is not None else None
