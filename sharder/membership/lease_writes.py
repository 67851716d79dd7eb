"""The Leases that membership's intents write. Pure; the I/O half sends them by compare-and-swap or CREATE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from kubeio.clock import micro_time
from kubeio.leases import record
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import SHARDER_HOLDER
from sharder.membership.shards import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kubeio.protocol import RingKeys


def sharder_holder(identity: str) -> str:
    """The holder of a taken Lease."""
    return f"{SHARDER_HOLDER}{identity}"


def taken(lease: Lease, *, identity: str, contested: bool, keys: RingKeys, wall: datetime) -> Lease:
    """*lease* held by the sharder. The ring's label is restored if it was lost: a new leader must see the wait."""
    state = ShardState.CONTESTED if contested else ShardState.DEAD
    annotations = dict(lease.metadata.annotations)
    if contested:
        annotations[keys.contested] = micro_time(wall)
    spec = record.claimed(lease.spec, sharder_holder(identity), wall=wall)
    labels = {**lease.metadata.labels, keys.ring_label: keys.ring, keys.state: state.value}
    return _with(lease, labels=labels, annotations=annotations, spec=spec)


def tombstone(
    name: str,
    *,
    member: str,
    namespace: str,
    duration_s: float,
    identity: str,
    keys: RingKeys,
    wall: datetime,
) -> Lease:
    """A new Lease for a name that has none: held by the sharder, contested.

    It keeps what is known of the lost one: its member, and its duration, which is how long a contest lasts at least.
    """
    meta = Meta(
        name=name,
        namespace=namespace,
        labels={keys.ring_label: keys.ring, keys.state: ShardState.CONTESTED.value},
        annotations={keys.member: member, keys.contested: micro_time(wall)},
    )
    whole_s = max(1, math.ceil(duration_s))
    return Lease(meta, record.claimed(None, sharder_holder(identity), wall=wall, duration_s=whole_s))


def cleared(lease: Lease, *, keys: RingKeys) -> Lease:
    """*lease* without the contested annotation: its name is dead."""
    meta = lease.metadata
    annotations = {key: value for key, value in meta.annotations.items() if key != keys.contested}
    labels = {**meta.labels, keys.state: ShardState.DEAD.value}
    return _with(lease, labels=labels, annotations=annotations, spec=lease.spec)


def marked(lease: Lease, *, state: ShardState, keys: RingKeys) -> Lease:
    """*lease* with the state label that people see."""
    labels = {**lease.metadata.labels, keys.state: state.value}
    return _with(lease, labels=labels, annotations=lease.metadata.annotations, spec=lease.spec)


def _with(
    lease: Lease, *, labels: Mapping[str, str], annotations: Mapping[str, str], spec: LeaseSpec
) -> Lease:
    meta = msgspec.structs.replace(lease.metadata, labels=dict(labels), annotations=dict(annotations))
    return msgspec.structs.replace(lease, metadata=meta, spec=spec)
