"""The one patch that a decision is. Pure; each is safe to send late, twice, or by a sharder that was deposed.

The turn comes and goes with the owner's name: it is the version that the patch which names the owner tests, so it
grows with every change of owner (protocol, section 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from kubeio.labels import json_pointer
from kubeio.patch import JsonPatch, MergePatch, Patch
from sharder.planning.decisions import Assign, Drain, ObjectWrite, ReleaseDrain, Strip, Touch, UpdateDrain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubeio.models import Meta
    from kubeio.protocol import RingKeys


def patch_of(decision: ObjectWrite, meta: Meta, *, keys: RingKeys) -> Patch:
    """The patch that carries out *decision* on the version of the object that *meta* is."""
    match decision:
        case Assign(to=to):
            labels = {keys.shard: to, **_removed(meta, keys.drain)}
            return _conditional(meta, labels, {keys.turn: meta.resource_version})
        case Strip():
            labels = {**_removed(meta, keys.shard), **_removed(meta, keys.drain)}
            return _conditional(meta, labels, {keys.turn: None})
        case Touch():
            return _conditional(meta, {keys.drain: ""}, {})
        case Drain(owner=owner, to=to):
            return _request(meta, owner, to, keys=keys)
        case ReleaseDrain(owner=owner):
            return _request(meta, owner, "", keys=keys)
        case UpdateDrain(owner=owner, to=to, was=was):
            return _request(meta, owner, to, keys=keys, was=was)
        case _:
            assert_never(decision)


def _conditional(
    meta: Meta, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
) -> MergePatch:
    """Only on exactly this version of exactly this object: 409 or 422 otherwise."""
    identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return MergePatch({"metadata": {**identity, "labels": labels, "annotations": annotations}})


def _removed(meta: Meta, key: str) -> dict[str, None]:
    return {key: None} if key in meta.labels else {}


def _request(meta: Meta, owner: str, to: str, *, keys: RingKeys, was: str | None = None) -> JsonPatch:
    """A request to the owner: as long as it owns this object, whatever else changed meanwhile."""
    shard, drain = (json_pointer("metadata", "labels", key) for key in (keys.shard, keys.drain))
    patch = JsonPatch().test(json_pointer("metadata", "uid"), meta.uid).test(shard, owner)
    if was is not None:
        patch = patch.test(drain, was)
    return patch.add(drain, to)
