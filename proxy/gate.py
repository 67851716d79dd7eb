"""Gate of the controller's writes: to which objects they may go now, and which are under way."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from kubeio.clock import Clock
from kubeio.models import ObjectKey, OwnerReference
from kubeio.shard.lease_validity import LeaseValidity
from proxy.refusals import Refusal
from proxy.server_side import ANSWER_WITHIN_S
from proxy.trees import Node, Trees, TreeState

log = structlog.get_logger("proxy")

_WAITS_S: Final = 1.0
"""An object that the controller has just created may not be seen yet."""
_POLL_S: Final = 0.02


class ReadsExistence(Protocol):
    """`proxy.existence.Existence`, as it is needed here."""

    async def is_gone(self, reference: OwnerReference, namespace: str) -> bool: ...

    async def is_free(self, name: str, key: ObjectKey) -> bool: ...


class Gate:
    """Admits writes of the controller while the Lease is young and the tree is visible.

    What an object controlled that is gone is free: the controller may clean up after it.
    """

    def __init__(self, validity: LeaseValidity, existence: ReadsExistence, *, clock: Clock) -> None:
        self.trees: Trees | None = None
        """Those of the present run; None between two runs."""
        self._validity: Final = validity
        self._clock: Final = clock
        self._existence: Final = existence
        self._under_way: Final[set[object]] = set()
        self._lost_until = 0.0
        """Until when a write that got no answer may be carried out."""
        self._ended: Final = asyncio.Event()

    def admit_any(self) -> Refusal | None:
        """Why no write may pass now, to whatever object."""
        if self._validity.holds(self._clock.now()):
            return None
        return Refusal(429, "ringleader: the shard's Lease is too old", retry_after_s=1)

    async def admit(self, resource: str, key: ObjectKey, *, controller: str = "") -> Refusal | None:
        """Why a write to *key* of *resource* may not pass now. *controller*: of a create, its controller's uid."""
        if (refusal := self.admit_any()) is not None:
            return refusal
        if await self._is_free(resource, key, controller):
            return self.admit_any()  # time has passed
        return Refusal(
            409, f"ringleader: {resource} {key} belongs to a tree that this controller does not see"
        )

    async def creates(self, resource: str, key: ObjectKey) -> bool:
        """Whether an apply to *key* of *resource* creates it: there is no such object yet."""
        return self.find(resource, key) is None and await self._existence.is_free(resource, key)

    def find(self, resource: str, key: ObjectKey) -> Node | None:
        """That object as the informers have seen it; None if it is not the shard's."""
        return None if self.trees is None else self.trees.find(resource, key)

    def begin(self, write: object) -> None:
        """*write* was admitted and is on its way."""
        self._under_way.add(write)

    def end(self, write: object, *, is_answered: bool) -> None:
        """It is answered, or no answer will come: then it may be carried out for `ANSWER_WITHIN_S` from now on."""
        self._under_way.remove(write)
        if not is_answered:
            self._lost_until = self._clock.now() + ANSWER_WITHIN_S
        self._ended.set()

    async def wait_ended(self) -> None:
        """Return when every write is answered, or too old to be carried out."""
        while self._under_way:
            self._ended.clear()
            await self._ended.wait()
        left_s = self._lost_until - self._clock.now()
        if left_s > 0:
            log.warning("waiting for writes without an answer", seconds=round(left_s, 1))
            await asyncio.sleep(left_s)

    async def _is_free(self, resource: str, key: ObjectKey, controller: str) -> bool:
        """Whether the tree of *key* is visible, or becomes so in a moment, or what controlled it is gone."""
        deadline = self._clock.now() + _WAITS_S
        while self._state(resource, key, controller) is not TreeState.VISIBLE:
            if self._clock.now() >= deadline:
                above = None if controller else self._controller_of(resource, key)
                return above is not None and await self._existence.is_gone(above, key.namespace)
            await asyncio.sleep(_POLL_S)
        return True

    def _state(self, resource: str, key: ObjectKey, controller: str) -> TreeState:
        if self.trees is None:
            return TreeState.UNKNOWN
        if controller:
            return self.trees.state(controller)
        node = self.find(resource, key)
        return TreeState.UNKNOWN if node is None else self.trees.state(node.uid)

    def _controller_of(self, resource: str, key: ObjectKey) -> OwnerReference | None:
        node = self.find(resource, key)
        return None if node is None else node.owner
