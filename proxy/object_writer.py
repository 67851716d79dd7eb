"""Writes of the proxy itself: it makes objects visible to its controller, and gives up what it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from kubeio.errors import Conflict, Invalid, NotFound
from kubeio.labels import json_pointer
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import HasMeta, Meta
from kubeio.patch import JsonPatch, MergePatch
from kubeio.protocol import PROXY_MANAGER, RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.shard.handoff import (
    Directed,
    HandoffMode,
    KeepOwner,
    Plain,
    acknowledgement,
    decide_handoff,
    is_held,
)
from proxy.trees import Node, Trees

log = structlog.get_logger("proxy")

_ATTEMPTS: Final = 10
"""Reads and patches of one object in a row, if it changes meanwhile."""


class ObjectWriter:
    """Patches objects of *shard*. *resources*: by `resource.group`. *leases*: evidence for directed handoffs."""

    def __init__(
        self,
        client: Client,
        leases: SharedLeaseReads,
        *,
        keys: RingKeys,
        shard: str,
        resources: Mapping[str, ApiResource],
    ) -> None:
        self._client: Final = client
        self._leases: Final = leases
        self._keys: Final = keys
        self._shard: Final = shard
        self._resources: Final = resources

    async def show(self, node: Node) -> bool:
        """Make *node* visible to the controller, unless it is gone; False if it is not the shard's any more.

        One that left and came back since is not shown either: its turn is another. Raises: KubeError.
        """
        keys = self._keys
        patch = JsonPatch().test("/metadata/uid", node.uid)
        patch = patch.test(json_pointer("metadata", "labels", keys.shard), self._shard)
        if node.turn is not None:
            patch = patch.test(json_pointer("metadata", "annotations", keys.turn), node.turn)
        try:
            await self._patch(node, patch.add(json_pointer("metadata", "labels", keys.visible), self._shard))
        except Invalid:
            return False
        except NotFound:
            return True
        return True

    async def give_up(self, trees: Trees, uid: str) -> bool:
        """Give up *uid* and all that it controls, children first, as its drain label asks; whether all of it went.

        Raises: KubeError, also after a part of it.
        """
        asked = trees.get(uid)
        if asked is None or asked.drain is None:
            return True
        handoff = decide_handoff(asked.drain, shard=self._shard)
        if isinstance(handoff, Directed) and not await is_held(self._leases, handoff.to, self._keys):
            handoff = Plain()
        nodes = [asked] if isinstance(handoff, KeepOwner) else trees.tree(uid)
        for node in nodes:
            if not await self._acknowledge(node, handoff):
                log.warning("object changed meanwhile: the next restart decides about it", object=_what(node))
                return False  # what is above it stays too
        return True

    async def _acknowledge(self, node: Node, handoff: HandoffMode) -> bool:
        """Whether *node* is given up, or is the shard's no longer. What is asked for otherwise by now is not."""
        meta: Meta | None = Meta(
            name=node.key.name,
            namespace=node.key.namespace,
            uid=node.uid,
            resource_version=node.resource_version,
        )
        for _ in range(_ATTEMPTS):
            if meta is None:
                return True
            patch = acknowledgement(meta, handoff, self._keys)
            try:
                await self._patch(node, patch if isinstance(handoff, KeepOwner) else self._hidden(patch))
            except (Conflict, Invalid):
                meta = await self._read(node)
                if meta is not None and node.drain not in (None, meta.labels.get(self._keys.drain)):
                    return False
            except NotFound:
                return True
            else:
                return True
        return False

    def _hidden(self, patch: MergePatch) -> MergePatch:
        """*patch* that also empties the label of visibility: the object may come back to the same name."""
        metadata = patch.doc["metadata"]
        if not isinstance(metadata, dict):
            raise TypeError("an acknowledgement patches metadata")
        labels = {**metadata["labels"], self._keys.visible: ""}
        return MergePatch({"metadata": {**metadata, "labels": labels}})

    async def _read(self, node: Node) -> Meta | None:
        """The newest version; None if it is gone or is not the shard's."""
        try:
            found = await self._client.get(
                self._resources[node.resource],
                node.key.name,
                namespace=node.key.namespace,
                type=HasMeta,
                metadata_only=True,
            )
        except NotFound:
            return None
        is_ours = found.metadata.labels.get(self._keys.shard) == self._shard
        return found.metadata if is_ours and found.metadata.uid == node.uid else None

    async def _patch(self, node: Node, patch: JsonPatch | MergePatch) -> None:
        await self._client.patch(
            self._resources[node.resource],
            node.key.name,
            patch,
            namespace=node.key.namespace,
            type=bytes,
            metadata_only=True,
            field_manager=PROXY_MANAGER,
        )


def _what(node: Node) -> str:
    return f"{node.resource} {node.key}"
