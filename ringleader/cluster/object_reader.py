"""Reads what the cause of one object depends on: its place, its controller, the Lease that its label names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeio.errors import Forbidden, NotFound
from kubeio.models import GroupResource, HasMeta, ObjectKey
from kubeio.protocol import is_shard_name
from ringleader.cluster.object_state import Controller, ObjectState
from ringleader.cluster.placement import Placer, key_of, main_of, row
from sharder.planning.keys import Controlled, Role

if TYPE_CHECKING:
    from kubeio.models import Lease, Meta
    from kubeio.resource import ApiResource
    from ringleader.cluster.managed_fields import DatedMeta
    from ringleader.cluster.reader import ClusterReader
    from ringleader.cluster.snapshot import RingState, Snapshot


async def read_state(
    reader: ClusterReader,
    snapshot: Snapshot,
    placer: Placer,
    resource: ApiResource,
    meta: DatedMeta,
    *,
    is_lasting: bool = False,
) -> ObjectState | None:
    """The object with *meta* on the ring of *placer*; None if that does not distribute it. Raises KubeError."""
    (role,) = await placer.roles(resource, [meta])
    ring, key = placer.state, key_of(role)
    if key is None:
        return None
    placed = row(ring, resource.group_resource, meta, key, main_of(role))
    return ObjectState(
        snapshot,
        ring,
        placed,
        meta,
        controller=await _controller(reader, role, ring),
        foreign_lease=await _foreign_lease(reader, ring, placed.owner),
        other_owners=_other_owners(snapshot, ring, resource, meta),
        is_lasting=is_lasting,
    )


async def _controller(reader: ClusterReader, role: Role, ring: RingState) -> Controller | None:
    """The object that controls one of *role*, if one of the ring does."""
    if not isinstance(role, Controlled):
        return None
    name = role.controller
    key = ObjectKey(name.namespace, name.name)
    shown = f"{name.resource.group_resource}/{key}"
    try:
        found = await reader.client.get(
            name.resource,
            name.name,
            namespace=name.namespace,
            type=HasMeta,
            metadata_only=True,
            timeout_s=reader.timeout_s,
        )
    except NotFound:
        return Controller(shown, key, exists=False)
    owner = found.metadata.labels.get(ring.ring.keys.shard, "")
    return Controller(shown, key, owner, exists=found.metadata.uid == name.uid)


async def _foreign_lease(reader: ClusterReader, ring: RingState, name: str) -> Lease | None:
    """The Lease called *name* where the ring's Leases are, if it is not the ring's."""
    from kubeio.leases.lease import Leases

    where = ring.ring.spec.lease_namespace
    if not where or not is_shard_name(name) or name in ring.by_name:
        return None
    try:
        return await Leases(reader.client, where, timeout_s=reader.timeout_s).get(name)
    except (NotFound, Forbidden):
        return None


def _other_owners(snapshot: Snapshot, ring: RingState, resource: ApiResource, meta: Meta) -> dict[str, str]:
    """Owners in further rings of the same label domain, by ring."""
    kind = GroupResource(resource.group, resource.plural)
    return {
        other.name: meta.labels[other.ring.keys.shard]
        for other in snapshot.rings
        if other.name != ring.name
        and other.ring.spec.label_domain == ring.ring.spec.label_domain
        and kind in other.ring.kinds
        and other.ring.keys.shard in meta.labels
    }
