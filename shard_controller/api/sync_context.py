"""The context of functions that run in a thread: the names of `Context`, each call blocks.

Owns the way from a thread to the event loop and back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import structlog

from kubeio.rest.client import Client
from kubeio.rest.events import Type
from shard_controller.api.conditions import Conditions
from shard_controller.api.context import Context
from shard_controller.declare.errors import Overrun
from shard_controller.declare.resource import Resource

M = TypeVar("M")
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class SyncContext(Generic[M]):
    """A `Context` for functions that run in a thread: the same names, each call blocks.

    Every call raises once the reconcile is cancelled (`timeout_s`, a Lease too old, the process stops).
    """

    def __init__(self, inner: Context[M], loop: asyncio.AbstractEventLoop, *, over: threading.Event) -> None:
        self._inner = inner
        self._loop = loop
        self._over = over
        self.object = inner.object
        self.meta = inner.meta
        self.status = inner.status
        self.name = inner.name
        self.namespace = inner.namespace
        self.uid = inner.uid
        self.generation = inner.generation
        self.is_deleting = inner.is_deleting
        self.ring = inner.ring
        self.shard = inner.shard
        self.fencing_token = inner.fencing_token

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """See `Context.log`."""
        return self._inner.log

    @property
    def conditions(self) -> Conditions:
        """See `Context.conditions`."""
        return self._inner.conditions

    @property
    def unfenced(self) -> BlockingClient:
        """The plain client, for objects outside the ring: nothing keeps a former owner from writing through it."""
        return BlockingClient(self._inner.unfenced, self._wait)

    @property
    def is_over(self) -> bool:
        """Whether the reconcile was cancelled: a long computation checks now and then, and returns."""
        return self._over.is_set()

    def get_owned(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """See `Context.get_owned`."""
        return self._call(lambda: self._inner.get_owned(resource, name, namespace=namespace))

    def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """See `Context.get`."""
        return self._call(lambda: self._inner.get(resource, name, namespace=namespace))

    def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[T]:
        """See `Context.list`."""
        return self._call(lambda: self._inner.list(resource, namespace=namespace, index=index))

    def apply(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """See `Context.apply`."""
        return self._wait(self._inner.apply(resource, name, body, namespace=namespace))

    def create(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """See `Context.create`."""
        return self._wait(self._inner.create(resource, name, body, namespace=namespace))

    def delete(self, resource: Resource[Any], name: str, *, namespace: str | None = None) -> None:
        """See `Context.delete`."""
        self._wait(self._inner.delete(resource, name, namespace=namespace))

    def delete_self(self) -> None:
        """See `Context.delete_self`."""
        self._wait(self._inner.delete_self())

    def event(
        self,
        reason: str,
        note: str,
        type: Type = "Normal",  # noqa: A002 - the API's name
        *,
        action: str = "Reconcile",
    ) -> None:
        """See `Context.event`."""
        self._call(lambda: self._inner.event(reason, note, type, action=action))

    def patch(self, change: Mapping[str, object]) -> None:
        """See `Context.patch`."""
        self._wait(self._inner.patch(change))

    def patch_status(self, change: Mapping[str, object]) -> None:
        """See `Context.patch_status`."""
        self._wait(self._inner.patch_status(change))

    def _call(self, function: Callable[[], R]) -> R:
        """The result of *function*, called on the process's event loop. Raises: Overrun."""

        async def call() -> R:
            return function()

        return self._wait(call())

    def _wait(self, call: Coroutine[Any, Any, R]) -> R:
        """The result of the coroutine *call*, run on the process's event loop. Raises: Overrun."""
        if self._over.is_set():
            call.close()
            raise Overrun("the reconcile was cancelled: return")
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


class BlockingClient:
    """The requests of `kubeio.rest.client.Client` for functions that run in a thread."""

    def __init__(self, client: Client, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._wait = wait
        self.request = self._blocking(client.request)
        self.get = self._blocking(client.get)
        self.create = self._blocking(client.create)
        self.replace = self._blocking(client.replace)
        self.patch = self._blocking(client.patch)
        self.delete = self._blocking(client.delete)
        self.list_page = self._blocking(client.list_page)

    def _blocking(self, call: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
        def blocking(*args: P.args, **kwargs: P.kwargs) -> R:
            answer: R = self._wait(call(*args, **kwargs))
            return answer

        return blocking
