"""Gate of the controller's writes: to which objects they may go now, and which are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kubeio.clock import Clock
from kubeio.models import ObjectKey, OwnerReference
from kubeio.shard.lease_validity import LeaseValidity
from proxy.trees import Trees, TreeState

_WAITS_S: Final = 1.0
"""An object that the controller has just created may not be seen yet."""
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Refusal:
    """Answer of the proxy instead of the API server's: a Kubernetes Status. 409: read again; 429: wait."""

    status: int
    reason: str
    message: str
    retry_after_s: int | None = None


class Gate:
    """Admits writes of the controller while the Lease is young and the tree is visible.

    *is_gone*: whether the object that a reference in a namespace names does not exist any more, by a consistent read.
    What it controlled is free: the controller may clean up after it.
    """

    def __init__(
        self,
        validity: LeaseValidity,
        *,
        clock: Clock,
        is_gone: Callable[[OwnerReference, str], Awaitable[bool]],
    ) -> None:
        self.trees: Trees | None = None
        self._validity: Final = validity
        self._clock: Final = clock
        self._is_gone: Final = is_gone
        self._under_way = 0
        self._ended: Final = asyncio.Event()
        self._ended.set()

    async def admit(
        self, resource: str, key: ObjectKey, *, controller: OwnerReference | None
    ) -> Refusal | None:
        """Why a write to *key* of *resource*, which *controller* controls if it is a create, may not pass now."""
        if not self._validity.holds(self._clock.now()):
            return Refusal(
                429, "TooManyRequests", "ringleader: the shard's Lease is too old", retry_after_s=1
            )
        if self._state(resource, key, controller) is TreeState.VISIBLE:
            return None
        deadline = self._clock.now() + _WAITS_S
        while self._clock.now() < deadline:
            await asyncio.sleep(_POLL_S)
            if self._state(resource, key, controller) is TreeState.VISIBLE:
                return None
        above = controller or self._controller_of(resource, key)
        if above is not None and await self._is_gone(above, key.namespace):
            return None
        what = f"{resource} {key}"
        return Refusal(
            409, "Conflict", f"ringleader: the tree of {what} is not this shard's, or not yet visible"
        )

    def began(self) -> None:
        """A write that was admitted is on its way."""
        self._under_way += 1
        self._ended.clear()

    def ended(self) -> None:
        """It is answered, or its connection broke and it cannot arrive any more."""
        self._under_way -= 1
        if not self._under_way:
            self._ended.set()

    async def wait_ended(self) -> None:
        """Return when no write is under way."""
        await self._ended.wait()

    def _state(self, resource: str, key: ObjectKey, controller: OwnerReference | None) -> TreeState:
        if self.trees is None:
            return TreeState.UNKNOWN
        if controller is not None:
            return self.trees.state(controller.uid)
        node = self.trees.find(resource, key)
        return TreeState.UNKNOWN if node is None else self.trees.state(node.uid)

    def _controller_of(self, resource: str, key: ObjectKey) -> OwnerReference | None:
        node = self.trees.find(resource, key) if self.trees is not None else None
        return None if node is None else node.owner
