"""Fences: `test` operations for every write of a reconcile, labels and annotations for its creates. Pure.

A fenced write is a JSON Patch whose `test` operations run inside the server's compare-and-swap (protocol, 5.5).
Each mode has its fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kubeio.labels import json_pointer
from kubeio.models import Meta
from kubeio.patch import JsonPatch
from kubeio.protocol import FIRST_TURN, RingKeys

_LONGEST_TURN: Final = 20
"""Digits of the largest resourceVersion; a longer annotation was not written by a sharder."""


class Fence(Protocol):
    def tests(self, meta: Meta) -> JsonPatch:
        """The `test` operations of a write to the object that *meta* describes."""

    def labels(self) -> Mapping[str, str]:
        """Labels that a controlled object is created with."""

    def annotations(self) -> Mapping[str, str]:
        """Annotations that a controlled object is created with."""

    def token(self, meta: Meta) -> int:
        """The turn that *meta* shows as a number, for systems that can refuse a smaller one; 0: none is known."""

    def guards(self, meta: Meta) -> bool:
        """Whether *meta* shows a version that this writer may change."""


@dataclass(frozen=True, slots=True)
class ShardFence:
    """The object must still carry this shard's name, in the same turn, and be the same object.

    An object without a turn got its owner from a sharder that writes none: name and uid are tested.
    """

    keys: RingKeys
    shard: str

    def tests(self, meta: Meta) -> JsonPatch:
        label = json_pointer("metadata", "labels", self.keys.shard)
        patch = JsonPatch().test(label, self.shard).test("/metadata/uid", meta.uid)
        turn = meta.annotations.get(self.keys.turn)
        if turn is None:
            return patch
        return patch.test(json_pointer("metadata", "annotations", self.keys.turn), turn)

    def labels(self) -> Mapping[str, str]:
        return {self.keys.shard: self.shard}

    def annotations(self) -> Mapping[str, str]:
        return {self.keys.turn: FIRST_TURN}

    def token(self, meta: Meta) -> int:
        turn = meta.annotations.get(self.keys.turn, FIRST_TURN)
        is_version = len(turn) <= _LONGEST_TURN and turn.isascii() and turn.isdecimal()
        return int(turn) if is_version else 0

    def guards(self, meta: Meta) -> bool:
        return meta.labels.get(self.keys.shard) == self.shard


@dataclass(frozen=True, slots=True)
class VersionFence:
    """Without a ring: nobody may have changed the object since it was read."""

    def tests(self, meta: Meta) -> JsonPatch:
        version = JsonPatch().test("/metadata/resourceVersion", meta.resource_version)
        return version.test("/metadata/uid", meta.uid)

    def labels(self) -> Mapping[str, str]:
        return {}

    def annotations(self) -> Mapping[str, str]:
        return {}

    def token(self, meta: Meta) -> int:
        return 0

    def guards(self, meta: Meta) -> bool:
        return bool(meta.uid)
