"""Ownership in the mode of the process: by labels on a ring; without a ring every cached object is ours.

Joins the pure `decisions` with the cache, the gate and the `DrainAcknowledger`.
"""

from __future__ import annotations

from typing import Protocol

from kubeio.models import Meta, ObjectKey
from kubeio.protocol import RingKeys
from shard_controller.objects.caches import ResourceCache, version_of
from shard_controller.shard.decisions import (
    Acknowledge,
    Decision,
    Drop,
    Handoff,
    OwnershipState,
    Reconcile,
    decide,
    decide_handoff,
    state_of,
)
from shard_controller.shard.drain import DrainAcknowledger
from shard_controller.shard.gate import Gate


class Guard(Protocol):
    def decide(self, kind: ResourceCache, key: ObjectKey, meta: Meta | None) -> Decision:
        """Decision about *key*, whose newest known version is *meta*."""

    def decide_read(self, kind: ResourceCache, meta: Meta) -> Decision:
        """Decision about an object that a consistent read just returned; never `Reread`."""

    def is_draining(self, meta: Meta) -> bool:
        """Whether the object is ours and asked for."""

    def is_moved(self, old: Meta, new: Meta) -> bool:
        """Whether the labels by which objects are given out differ."""

    def left(self, kind: ResourceCache, key: ObjectKey) -> None:
        """The object is not in the cache any more: an acknowledgement without answer needs none now."""

    async def hand_over(self, kind: ResourceCache, meta: Meta, handoff: Handoff) -> None: ...


class RingGuard:
    """Ours is what carries our name, no drain label, and counts."""

    def __init__(self, handover: DrainAcknowledger, gate: Gate, *, keys: RingKeys, shard: str) -> None:
        self._handover = handover
        self._gate = gate
        self._keys = keys
        self._shard = shard

    def decide(self, kind: ResourceCache, key: ObjectKey, meta: Meta | None) -> Decision:
        state = state_of(meta, self._keys) if meta is not None else None
        min_versions, floor, unanswered = kind.min_versions, 0, False
        if min_versions:  # at rest there are none
            if state is not None:
                min_versions.shown(key, version=state.version)
            floor, unanswered = min_versions.floor(key), min_versions.is_unanswered(key)
        return decide(state, shard=self._shard, floor=floor, unanswered=unanswered, held=self._gate.is_open())

    def decide_read(self, kind: ResourceCache, meta: Meta) -> Decision:
        state = state_of(meta, self._keys)
        if state.version < kind.min_versions.floor(meta.key) and state.drain is not None:
            # the version whose acknowledgement got no answer still stands: send the same patch again
            return Acknowledge(state, decide_handoff(state.drain, shard=self._shard))
        return decide(state, shard=self._shard, floor=0, unanswered=False, held=self._gate.is_open())

    def is_draining(self, meta: Meta) -> bool:
        return self._keys.drain in meta.labels and meta.labels.get(self._keys.shard) == self._shard

    def is_moved(self, old: Meta, new: Meta) -> bool:
        labels = (self._keys.shard, self._keys.drain)
        return any(old.labels.get(label) != new.labels.get(label) for label in labels)

    def left(self, kind: ResourceCache, key: ObjectKey) -> None:
        kind.min_versions.gone(key)

    async def hand_over(self, kind: ResourceCache, meta: Meta, handoff: Handoff) -> None:
        await self._handover.hand_over(kind, meta, handoff)


class SoleGuard:
    """Without a ring everything in the cache is ours, unless a read showed that it is gone."""

    def decide(self, kind: ResourceCache, key: ObjectKey, meta: Meta | None) -> Decision:
        if meta is None:
            return Drop("absent")
        state = OwnershipState(version_of(meta), None, None)
        if kind.min_versions and state.version < kind.min_versions.floor(key):
            return Drop("superseded")
        return Reconcile(state)

    def decide_read(self, kind: ResourceCache, meta: Meta) -> Decision:
        return self.decide(kind, meta.key, meta)

    def is_draining(self, meta: Meta) -> bool:
        return False

    def is_moved(self, old: Meta, new: Meta) -> bool:
        return False

    def left(self, kind: ResourceCache, key: ObjectKey) -> None:
        kind.min_versions.gone(key)

    async def hand_over(self, kind: ResourceCache, meta: Meta, handoff: Handoff) -> None:
        raise AssertionError("without a ring nothing is handed over")
