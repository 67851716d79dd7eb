"""How a shard gives an object up: what a drain label asks for, the patch, and its evidence (protocol, 5.4)."""

from __future__ import annotations

import msgspec

from kubeio.errors import ApiError, ServerFailure, Unreachable
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import Meta
from kubeio.patch import MergePatch
from kubeio.protocol import RingKeys


class Directed(msgspec.Struct, frozen=True, gc=False):
    """Pass the object on to the shard *to*."""

    to: str


class Plain(msgspec.Struct, frozen=True, gc=False):
    """Remove both labels: the sharder assigns the object anew."""


class KeepOwner(msgspec.Struct, frozen=True, gc=False):
    """The drain label names its owner: remove only the drain label."""


HandoffMode = Directed | Plain | KeepOwner


def decide_handoff(drain: str, *, shard: str) -> HandoffMode:
    """HandoffMode that a drain label with the value *drain* requests from *shard*."""
    if drain == shard:
        return KeepOwner()
    return Directed(drain) if drain else Plain()


def acknowledgement(meta: Meta, handoff: HandoffMode, keys: RingKeys) -> MergePatch:
    """The patch that gives up exactly the version that *meta* shows: 409 or 422 otherwise. Pure.

    The version is stricter than a turn: it is tested alone. A merge patch does not depend on the annotations that the
    cache drops.
    """
    metadata: dict[str, object] = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    match handoff:
        case Directed(to=to):
            metadata["labels"] = {keys.shard: to, keys.drain: None}
            metadata["annotations"] = {keys.turn: meta.resource_version}
        case Plain():
            metadata["labels"] = {keys.shard: None, keys.drain: None}
            metadata["annotations"] = {keys.turn: None}
        case KeepOwner():
            metadata["labels"] = {keys.drain: None}
    return MergePatch({"metadata": metadata})


async def is_held(leases: SharedLeaseReads, shard: str, keys: RingKeys) -> bool:
    """Whether the Lease of *shard* is held, by a read that begins after this call.

    Raises what the read raises, but for refusals: without an answer there is no evidence.
    """
    try:
        lease = await leases.get(shard)
    except (ServerFailure, Unreachable):
        raise
    except ApiError:
        return False
    is_of_this_ring = lease.metadata.labels.get(keys.ring_label) == keys.ring
    return is_of_this_ring and lease.spec.holder_identity == shard
