"""The fence: what every write of a reconcile tests on the server, and what its creates carry. Pure.

A fenced write is a JSON Patch whose `test` operations run inside the server's compare-and-swap (protocol, 5.5).
Used by `writes`; chosen by `replica` according to the mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kubeio.labels import RingKeys, json_pointer
from kubeio.models import Meta
from kubeio.patch import JsonPatch


class Fence(Protocol):
    def tests(self, meta: Meta) -> JsonPatch:
        """The `test` operations of a write to the object that *meta* describes."""

    def labels(self) -> Mapping[str, str]:
        """What a controlled object is created with."""

    def guards(self, meta: Meta) -> bool:
        """Whether *meta* shows a version that this writer may change."""


@dataclass(frozen=True, slots=True)
class ShardFence:
    """The object must still carry this shard's name, and be the same object."""

    keys: RingKeys
    shard: str

    def tests(self, meta: Meta) -> JsonPatch:
        label = json_pointer("metadata", "labels", self.keys.shard)
        return JsonPatch().test(label, self.shard).test("/metadata/uid", meta.uid)

    def labels(self) -> Mapping[str, str]:
        return {self.keys.shard: self.shard}

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

    def guards(self, meta: Meta) -> bool:
        return bool(meta.uid)


@dataclass(frozen=True, slots=True)
class Unfenced:
    """Demonstration of what breaks: labels as *inner* has them, nothing tested."""

    inner: Fence

    def tests(self, meta: Meta) -> JsonPatch:
        return JsonPatch()

    def labels(self) -> Mapping[str, str]:
        return self.inner.labels()

    def guards(self, meta: Meta) -> bool:
        return True
