"""Decides about a controller's requests for one shard: what it sees, and which of its writes pass.

Knows the kinds of the ring and the labels; the gate knows trees and the Lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubeio.models import ObjectKey
from kubeio.protocol import RingKeys
from kubeio.rest.request_info import RequestInfo
from proxy.director import Admitted, Selection, Write
from proxy.gate import Gate
from proxy.informers import TreeKind
from proxy.refusals import Refusal

_UNFENCED: Final = frozenset({"scale", "eviction", "binding"})
"""Subresources whose objects have no labels: nothing in the API server could tell whose they are."""


class ShardDirector:
    """Director of the controller behind *shard*. *newest*: the newest version of a kind that was seen, by its name.

    *refused* is called with each refusal of a write.
    """

    def __init__(
        self,
        gate: Gate,
        kinds: Sequence[TreeKind],
        *,
        keys: RingKeys,
        shard: str,
        newest: Callable[[str], str],
        refused: Callable[[Refusal], None] = lambda refusal: None,
    ) -> None:
        self._gate: Final = gate
        self._kinds: Final = {kind.name: kind for kind in kinds}
        self._keys: Final = keys
        self._shard: Final = shard
        self._newest: Final = newest
        self._refused: Final = refused

    def selection(self, request: RequestInfo) -> Selection | None:
        """What carries the shard's name, and is visible if its kind controls others."""
        kind = self._kinds.get(request.group_resource)
        if kind is None or request.subresource:
            return None
        terms = f"{self._keys.shard}={self._shard}"
        if not kind.is_leaf:
            terms = f"{terms},{self._keys.visible}={self._shard}"
        return Selection(terms, self._newest(kind.name))

    def reads_body(self, write: RequestInfo) -> bool:
        """The bodies of the ring's objects get labels."""
        return write.group_resource in self._kinds and not write.subresource

    async def admit(self, write: Write) -> Admitted | Refusal:
        """Writes to the ring's objects pass to visible trees, all others while the Lease is young."""
        verdict = await self._verdict(write)
        if isinstance(verdict, Refusal):
            self._refused(verdict)
        return verdict

    async def _verdict(self, write: Write) -> Admitted | Refusal:
        info = write.info
        kind = self._kinds.get(info.group_resource)
        if info.subresource in _UNFENCED and (kind is not None or info.subresource != "scale"):
            return Refusal(403, f"ringleader: {info.subresource} of {info.group_resource} is not passed on")
        if kind is None or info.verb == "deletecollection":
            return self._gate.admit_any() or Admitted()
        if info.verb == "create" and not info.subresource:
            return await self._admit_create(write, kind)
        key = ObjectKey(info.namespace, info.name)
        refusal = await self._gate.admit(kind.name, key)
        if refusal is not None:
            return refusal
        return Admitted(self._labels(kind)) if write.body is not None else Admitted()

    def begin(self, write: Write) -> None:
        self._gate.begin(write)

    def end(self, write: Write, status: int | None) -> None:
        self._gate.end(write, is_answered=status is not None and status < _SERVER_FAILED)

    async def _admit_create(self, write: Write, kind: TreeKind) -> Admitted | Refusal:
        """A controlled object is born with its owner's name; the sharder assigns a root."""
        head, info = write.body, write.info
        if head is None or not head.controller_uid:
            return self._gate.admit_any() or Admitted(self._copied(head.labels if head is not None else {}))
        key = ObjectKey(info.namespace, head.name or head.generate_name)
        refusal = await self._gate.admit(kind.name, key, controller=head.controller_uid)
        return refusal if refusal is not None else Admitted(self._labels(kind))

    def _labels(self, kind: TreeKind) -> dict[str, str]:
        own = {self._keys.shard: self._shard}
        return own if kind.is_leaf else own | {self._keys.visible: self._shard}

    def _copied(self, labels: dict[str, str]) -> dict[str, str]:
        """Labels of a root that was made with those of another object: it stays here, and is not asked for."""
        if self._keys.shard not in labels:
            return {}
        kept = {self._keys.shard: self._shard, self._keys.visible: self._shard}
        return kept | ({self._keys.drain: self._shard} if self._keys.drain in labels else {})


_SERVER_FAILED: Final = 500
"""A server that gives up on a write may still have stored it."""
