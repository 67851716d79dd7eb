"""One object as the dashboard shows it: its owner and desired owner, read as `ringleader describe` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kubeio.models import ObjectKey
from kubeio.rest.discovery import Discovery
from ring import HASH_SPACE
from ringleader.cluster.object_causes import cause_of
from ringleader.cluster.reader import ClusterReader
from ringleader.describe.object import read_placed
from ringleader.describe.object_view import why_desired

if TYPE_CHECKING:
    from kubeio.rest.client import Client


class FoundObject(msgspec.Struct, frozen=True, rename="camel"):
    """Owner and desired owner of one object. *position* is its place on the ring, from 0 to 1."""

    object: str
    owner: str
    owner_member: str
    owner_state: str
    desired_member: str
    desired_shard: str
    drain_to: str | None
    key: str
    hash: str
    position: float | None
    is_placed: bool
    why: list[str]
    main: str = ""
    """The main resource that the object is or follows, on whose circle *position* is."""


async def find_object(
    client: Client, ring: str, resource: str, key: ObjectKey, *, timeout_s: float
) -> FoundObject:
    """The object *key* of *resource*, on *ring*. Raises InputError, KubeError."""
    reader = ClusterReader(client, timeout_s=timeout_s)
    found = await read_placed(reader, Discovery(client), resource, key, ring_name=ring)
    row, cause = found.state.row, cause_of(found.state)
    return FoundObject(
        object=found.name,
        owner=row.owner,
        owner_member=row.owner_member,
        owner_state=row.owner_state,
        desired_member=row.desired_member,
        desired_shard=row.desired_shard,
        drain_to=row.drain_to,
        key=row.key,
        hash=row.hash,
        position=int(row.hash, 16) / HASH_SPACE if row.hash else None,
        is_placed=row.is_placed,
        why=[*why_desired(found.state), cause.text if cause else "is where it belongs"],
        main=row.main,
    )
