"""The fence of a ring as objects, for fleets that bring their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import yaml

from kubeio.fence import BINDINGS, POLICIES
from kubeio.protocol import RingEntry, RingKeys
from kubeio.resource import ApiResource
from ringleader.fence.documents import Identity, fence_documents
from ringleader.testing.client import Doc


def fence_objects(keys: RingKeys, entries: Iterable[RingEntry]) -> Iterator[tuple[ApiResource, Doc]]:
    """The policies of the ring of *keys* and their bindings, by lives."""
    for doc in yaml.safe_load_all(fence_documents(keys, entries, identity=Identity.LIFE)):
        yield (POLICIES if doc["kind"] == POLICIES.kind else BINDINGS), doc
