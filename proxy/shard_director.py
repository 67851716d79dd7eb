"""Decides about a controller's requests for one shard: what it sees, and which of its writes pass.

Knows the kinds of the ring and the labels; the gate knows trees and the Lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from kubeio.fence import policies_of
from kubeio.models import ObjectKey
from kubeio.protocol import RingKeys
from kubeio.rest.request_info import RequestInfo
from proxy.alias import Alias
from proxy.companions import Companions
from proxy.director import Admitted, Selection, Write
from proxy.gate import Gate
from proxy.kinds import TreeKind
from proxy.refusals import Refusal

log = structlog.get_logger("proxy")

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
        companions: Companions,
        refused: Callable[[Refusal], None] = lambda refusal: None,
    ) -> None:
        self._gate: Final = gate
        self._kinds: Final = {kind.name: kind for kind in kinds}
        self._keys: Final = keys
        self._shard: Final = shard
        self._alias: Final = Alias(shard, keys)
        self._newest: Final = newest
        self._companions: Final = companions
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
        """The bodies of the ring's objects get labels; what is created below one of them is another kind's."""
        if self._companions.has(write.group_resource):
            return write.verb == "create" and not write.subresource  # its name
        is_object = not write.subresource or write.verb != "create"
        return write.group_resource in self._kinds and is_object

    def alias(self, request: RequestInfo) -> Alias | None:
        """In all that is said of the ring's objects."""
        return self._alias if request.group_resource in self._kinds else None

    async def admit(self, write: Write) -> Admitted | Refusal:
        """Writes to trees and to companions pass if those are visible, all others while the Lease is young."""
        verdict = await self._verdict(write)
        if isinstance(verdict, Refusal):
            self._refused(verdict)
        return verdict

    async def _verdict(self, write: Write) -> Admitted | Refusal:
        info = write.info
        kind = self._kinds.get(info.group_resource)
        if info.subresource in _UNFENCED and (kind is not None or info.subresource != "scale"):
            return Refusal(403, f"ringleader: {info.subresource} of {info.group_resource} is not passed on")
        if self._companions.has(info.group_resource):
            return await self._companions.admit(write) or Admitted()
        if kind is None or info.verb == "deletecollection":
            return self._gate.admit_any() or Admitted()
        if info.verb == "create" and not info.subresource:
            return await self._admit_create(write, kind)
        key = ObjectKey(info.namespace, info.name)
        if info.verb == "patch" and write.body is not None and await self._gate.creates(kind.name, key):
            return await self._admit_create(write, kind)
        refusal = await self._gate.admit(kind.name, key)
        if refusal is not None:
            return refusal
        return self._kept(kind, key, write)

    def begin(self, write: Write) -> None:
        self._gate.begin(write)

    def instead_of(self, write: Write, answer: bytes) -> Refusal | None:
        """A refusal of the fence is a conflict: a controller reads the object again."""
        policy = next((name for name in policies_of(self._keys.ring) if f"'{name}'".encode() in answer), "")
        if not policy:
            return None
        what = f"{write.info.group_resource} {ObjectKey(write.info.namespace, write.info.name)}"
        log.warning("write refused by the fence", object=what, policy=policy)
        return Refusal(409, f"ringleader: {what} is not this shard's any more, by {policy}")

    def end(self, write: Write, status: int | None) -> None:
        self._gate.end(write, is_answered=status is not None and status < _SERVER_FAILED)

    async def _admit_create(self, write: Write, kind: TreeKind) -> Admitted | Refusal:
        """A controlled object is born with its owner's name; the sharder assigns a root."""
        head, info = write.body, write.info
        if head is None or not head.controller_uid or kind.is_root(head.controller):
            return self._gate.admit_any() or self._copied(head.labels if head is not None else {})
        key = ObjectKey(info.namespace, info.name or head.name or head.generate_name)
        refusal = await self._gate.admit(kind.name, key, controller=head.controller_uid)
        return refusal or Admitted(
            self._labels(), {self._keys.turn: _BORN if info.verb == "create" else None}
        )

    def _labels(self) -> dict[str, str]:
        return {self._keys.shard: self._shard, self._keys.visible: self._shard}

    def _kept(self, kind: TreeKind, key: ObjectKey, write: Write) -> Admitted:
        """The ring's labels and the turn as they are: the fence, or the guard, refuses a change.

        A leaf that arrived bears an earlier name as `visible`. The drain label is hidden: an update without it would
        take it off. The controller sees no turn either, and may have copied the empty one of another object.
        """
        node = self._gate.find(kind.name, key)
        is_update = write.info.verb == "update"
        turn = node.turn if node is not None and is_update else None
        if node is None:
            return Admitted(self._labels(), {self._keys.turn: turn})
        found = {self._keys.shard: self._shard}
        if node.visible is not None:
            found[self._keys.visible] = node.visible
        if node.drain is not None and is_update:
            found[self._keys.drain] = node.drain
        return Admitted(found, {self._keys.turn: turn})

    def _copied(self, labels: dict[str, str]) -> Admitted:
        """Labels of a root that was made with those of another object: it stays here, and is not asked for."""
        if self._keys.shard not in labels:
            return Admitted()
        asked = {self._keys.drain: self._shard} if self._keys.drain in labels else {}
        return Admitted(self._labels() | asked, {self._keys.turn: _BORN})


_BORN: Final = "0"
"""The turn of an object that is created with its label."""
_SERVER_FAILED: Final = 500
"""A server that gives up on a write may still have stored it."""
