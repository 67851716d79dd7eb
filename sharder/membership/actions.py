"""Actions of the membership on Leases, as frozen values: take, clear, create, delete, mark.

`sharder.membership.lease_writes` turns them into Lease objects. The controller writes those and shows the answers to
`Membership.observe_one` (or `gone`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeio.models import Lease
    from sharder.membership.shards import ShardState


@dataclass(frozen=True, slots=True)
class Take:
    """Become the holder of *lease* by compare-and-swap on exactly this version.

    Contested: it may still be worked under, or is no Lease of ours; the annotation goes into the same write.
    On Conflict: GET it and `observe_one`; on NotFound: `gone`.
    """

    lease: Lease
    contested: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CreateTombstone:
    """CREATE a Lease for a name that has none, held by the sharder and contested.

    On AlreadyExists: GET it and `observe_one`; on Invalid and Forbidden: `tombstone_refused`.
    """

    name: str
    member: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class ClearContested:
    """Remove the contested annotation by compare-and-swap on exactly this version: the name is dead."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class NeedOrphanCheck:
    """Ask whether any object of the ring carries *name* (consistent list, limit 1, every resource of the ring).

    None: `orphan_confirmed(name, begun_at=...)`; some: `orphan_refuted(name, at=...)`.
    """

    name: str


@dataclass(frozen=True, slots=True)
class DeleteOrphan:
    """Delete *lease* with its uid and resourceVersion as preconditions; then `gone`."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class MarkState:
    """Write the state label of *lease*, for people. Losing this write to a conflict is fine."""

    lease: Lease
    state: ShardState


LeaseWrite = Take | CreateTombstone | ClearContested | DeleteOrphan | MarkState
"""Actions that are one request each."""
Intent = LeaseWrite | NeedOrphanCheck
