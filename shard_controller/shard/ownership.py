"""Ownership of objects, one strategy per mode: which keys may be worked on now, and the fence of every write. No I/O.

`ShardOwnership`: objects that carry this shard's name, while its Lease is held. `ExclusiveOwnership`: every cached
object, for modes without a ring. Both own the min versions of their objects: nothing else writes them.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from kubeio.clock import Clock
from kubeio.labels import json_pointer
from kubeio.models import Meta, ObjectKey
from kubeio.patch import JsonPatch
from kubeio.protocol import FIRST_TURN, RingKeys
from kubeio.shard.handoff import decide_handoff
from kubeio.shard.lease_validity import LeaseValidity, Phase
from shard_controller.objects.caches import ResourceCache, version_of
from shard_controller.objects.min_versions import MinVersions
from shard_controller.shard.ownership_decisions import (
    Acknowledge,
    Drop,
    OwnershipDecision,
    OwnershipState,
    Reconcile,
    decide,
    state_of,
)

_LONGEST_TURN: Final = 20
"""Digits of the largest resourceVersion; a longer annotation was not written by a sharder."""


class Ownership(ABC):
    """Objects of one process. *shard*: its name in writes and logs; *keys*: the ring's labels, None without a ring."""

    selector: str = ""
    """Label selector of every list and watch of the tree."""
    create_labels: Mapping[str, str] = {}
    create_annotations: Mapping[str, str] = {}

    def __init__(self, shard: str, keys: RingKeys | None = None) -> None:
        self.shard = shard
        self.keys = keys
        self.ring = keys.ring if keys is not None else ""
        self._min_versions: dict[ResourceCache, MinVersions] = {}

    # -- the right to work at all

    def is_held(self) -> bool:
        """Whether work may start now."""
        return True

    async def wait_held(self) -> None:
        """Return once work may start."""
        return

    def start(self) -> bool:
        """Count one more key as running, if work may start; then `end` must follow."""
        return True

    def end(self) -> None:
        """A key that `start` counted is done."""
        return

    # -- objects

    @abstractmethod
    def decide(self, kind: ResourceCache, key: ObjectKey, meta: Meta | None) -> OwnershipDecision:
        """OwnershipDecision about *key*, whose newest known version is *meta*."""

    def decide_read(self, kind: ResourceCache, meta: Meta) -> OwnershipDecision:
        """OwnershipDecision about an object that a consistent read just returned; never `Reread`."""
        return self.decide(kind, meta.key, meta)

    def is_draining(self, meta: Meta) -> bool:
        """Whether the object is ours and asked for."""
        return False

    def is_moved(self, old: Meta, new: Meta) -> bool:
        """Whether the object was given out anew, or is asked for."""
        return False

    # -- the fence: `test` operations run inside the server's compare-and-swap (protocol, 5.5)

    @abstractmethod
    def fence(self, meta: Meta) -> JsonPatch:
        """The `test` operations of every write to the object that *meta* describes."""

    @abstractmethod
    def may_write(self, meta: Meta) -> bool:
        """Whether *meta* shows a version that this process may change."""

    def token(self, meta: Meta) -> int:
        """The turn that *meta* shows as a number, for systems that can refuse a smaller one; 0: none is known."""
        return 0

    # -- min versions: what the server answered counts before the watch shows it

    def floor(self, kind: ResourceCache, key: ObjectKey) -> int:
        """The smallest version of *key* that still counts."""
        return self._versions(kind).floor(key)

    def is_unanswered(self, kind: ResourceCache, key: ObjectKey) -> bool:
        """Whether an acknowledgement of *key* is under way or its answer was lost."""
        return self._versions(kind).is_unanswered(key)

    def was_read(self, kind: ResourceCache, meta: Meta) -> None:
        """A consistent read showed *meta*."""
        self._versions(kind).read(meta.key, version=version_of(meta))

    def was_missing(self, kind: ResourceCache, key: ObjectKey, *, shown: Meta | None) -> None:
        """The server has no object *key*: what the cache had *shown* when it was asked does not count any more.

        What the cache shows since then counts: the object was made anew while the answer was under way.
        """
        known = kind.meta(key)
        if known is not None and (shown is None or version_of(known) > version_of(shown)):
            return
        kind.removed(key)
        if known is not None:
            self._versions(kind).ignore_up_to(key, version=version_of(known))
        self.left(kind, key)

    def left(self, kind: ResourceCache, key: ObjectKey) -> None:
        """The object is not in the cache any more: an acknowledgement without answer needs none now."""
        if kind in self._min_versions:
            self._min_versions[kind].gone(key)

    def acknowledging(self, kind: ResourceCache, meta: Meta) -> None:
        """An acknowledgement that tests the version *meta* is about to be sent: it counts from now on."""
        self._versions(kind).acknowledging(meta.key, tested=version_of(meta))

    def acknowledged(self, kind: ResourceCache, answer: Meta) -> None:
        """The answer to an acknowledgement came: the object stands at *answer*."""
        self._versions(kind).acknowledged(answer.key, version=version_of(answer))

    def forget(self, kind: ResourceCache, streamed: int) -> None:
        """Forget what the stream of *kind*, by now at the version *streamed*, has passed."""
        if kind in self._min_versions:
            self._min_versions[kind].forget(streamed)

    def _versions(self, kind: ResourceCache) -> MinVersions:
        return self._min_versions.setdefault(kind, MinVersions())


class ShardOwnership(Ownership):
    """Ours is what carries our name and no drain label, in a version that counts, while the Lease is younger than 2/3.

    The Lease's age is read off the clock, not from messages of the heartbeat.
    """

    keys: RingKeys

    def __init__(self, keys: RingKeys, shard: str, *, validity: LeaseValidity, clock: Clock) -> None:
        super().__init__(shard, keys)
        self.selector = f"{keys.shard}={shard}"
        self.create_labels = {keys.shard: shard}
        self.create_annotations = {keys.turn: FIRST_TURN}
        self._validity = validity
        self._clock = clock
        self._held = asyncio.Event()

    def is_held(self) -> bool:
        return self._validity.holds(self._clock.now())

    async def wait_held(self) -> None:
        while not self.is_held():
            self._held.clear()
            # Polls too: a pause shorter than the heartbeat's interval sends no wake-up.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._validity.duration_s / 10):
                    await self._held.wait()

    def follow(self, phase: Phase) -> None:
        """The heartbeat saw *phase*."""
        if phase is Phase.HELD:
            self._held.set()

    def start(self) -> bool:
        return self._validity.start(self._clock.now())

    def end(self) -> None:
        self._validity.end()

    def decide(self, kind: ResourceCache, key: ObjectKey, meta: Meta | None) -> OwnershipDecision:
        state = state_of(meta, self.keys) if meta is not None else None
        versions, floor, unanswered = self._min_versions.get(kind), 0, False
        if versions:  # at rest there are none
            if state is not None:
                versions.shown(key, version=state.version)
            floor, unanswered = versions.floor(key), versions.is_unanswered(key)
        return decide(state, shard=self.shard, floor=floor, unanswered=unanswered, held=self.is_held())

    def decide_read(self, kind: ResourceCache, meta: Meta) -> OwnershipDecision:
        state = state_of(meta, self.keys)
        if state.version < self.floor(kind, meta.key) and state.drain is not None:
            # the version whose acknowledgement got no answer still stands: send the same patch again
            return Acknowledge(state, decide_handoff(state.drain, shard=self.shard))
        return decide(state, shard=self.shard, floor=0, unanswered=False, held=self.is_held())

    def is_draining(self, meta: Meta) -> bool:
        return self.keys.drain in meta.labels and meta.labels.get(self.keys.shard) == self.shard

    def is_moved(self, old: Meta, new: Meta) -> bool:
        labels = (self.keys.shard, self.keys.drain)
        return any(old.labels.get(label) != new.labels.get(label) for label in labels) or (
            # it left and came back between two lists, and carries the same labels again
            old.annotations.get(self.keys.turn) != new.annotations.get(self.keys.turn)
        )

    def fence(self, meta: Meta) -> JsonPatch:
        """This shard's name, the uid and the turn.

        An object without a turn got its owner from a sharder that writes none: name and uid are tested.
        """
        label = json_pointer("metadata", "labels", self.keys.shard)
        patch = JsonPatch().test(label, self.shard).test("/metadata/uid", meta.uid)
        turn = meta.annotations.get(self.keys.turn)
        if turn is None:
            return patch
        return patch.test(json_pointer("metadata", "annotations", self.keys.turn), turn)

    def may_write(self, meta: Meta) -> bool:
        return meta.labels.get(self.keys.shard) == self.shard

    def token(self, meta: Meta) -> int:
        turn = meta.annotations.get(self.keys.turn, FIRST_TURN)
        is_version = len(turn) <= _LONGEST_TURN and turn.isascii() and turn.isdecimal()
        return int(turn) if is_version else 0


class ExclusiveOwnership(Ownership):
    """Without a ring everything in the cache is ours, unless a read showed that it is gone."""

    def decide(self, kind: ResourceCache, key: ObjectKey, meta: Meta | None) -> OwnershipDecision:
        if meta is None:
            return Drop("absent")
        state = OwnershipState(version_of(meta), None, None)
        versions = self._min_versions.get(kind)
        if versions and state.version < versions.floor(key):
            return Drop("superseded")
        return Reconcile(state)

    def fence(self, meta: Meta) -> JsonPatch:
        """The resourceVersion and the uid: the object must not have changed since it was read."""
        version = JsonPatch().test("/metadata/resourceVersion", meta.resource_version)
        return version.test("/metadata/uid", meta.uid)

    def may_write(self, meta: Meta) -> bool:
        return bool(meta.uid)
