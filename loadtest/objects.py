"""The run's objects on the server, all of them at once: created before the load, deleted after it.

Only objects with the run's label are ever deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from typing import Any, Final

from kubeio.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    KubeError,
    NotFound,
    ServerFailure,
    TooManyRequests,
    Unreachable,
)
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from loadtest.inputs.template import RUN_LABEL, Template, prefilled_name

FIELD_MANAGER: Final = "ringleader-loadtest"
_AT_ONCE: Final = 64
_PASSING: Final = (ServerFailure, TooManyRequests, Unreachable)
_PATIENCE_S: Final = 120.0
"""How long one request is repeated while the server is away or overloaded."""
_PAUSE_S: Final = 1.0
_FINALIZED_S: Final = 120.0
"""How long deleted objects may wait for their finalizers while none of them goes."""

Tick = Callable[[int], None]


class LeftOver(Exception):
    """Objects of the run are still there."""


class RunObjects:
    """The objects of run *run* of *resource* in one namespace."""

    def __init__(self, client: Client, resource: ApiResource, *, namespace: str, run: str) -> None:
        self._client = client
        self._resource = resource
        self._namespace = namespace if resource.namespaced else ""
        self._run = run

    @property
    def selector(self) -> str:
        return f"{RUN_LABEL}={self._run}"

    async def create(self, template: Template, count: int, *, tick: Tick) -> None:
        """Create *count* objects; *tick* hears how many more exist. Raises: KubeError."""
        left = iter(range(count))

        async def creator() -> None:
            for index in left:
                name = prefilled_name(template.prefix, self._run, index)
                await self._create_one(template.object(name, run=self._run))
                tick(1)

        await _at_once(creator, min(_AT_ONCE, count))

    async def delete(self, *, tick: Tick, but: Collection[str] = ()) -> int:
        """Delete every object with the run's label *but* those of these names, wait until all are gone; their number.

        Raises: LeftOver if finalizers keep some; KubeError.
        """
        deleted: set[str] = set()
        loop = asyncio.get_running_loop()
        left, changed_at = -1, loop.time()
        while remaining := [name async for name in self._names() if name not in but]:
            await self._delete_all([name for name in remaining if name not in deleted], tick)
            deleted.update(remaining)
            if len(remaining) != left:
                left, changed_at = len(remaining), loop.time()
            elif loop.time() - changed_at > _FINALIZED_S:
                raise LeftOver(f"{left} deleted objects such as {remaining[0]} stay: their finalizers wait")
            await asyncio.sleep(_PAUSE_S / 5)
        return len(deleted)

    async def _delete_all(self, names: Iterable[str], tick: Tick) -> None:
        left = iter(names)

        async def deleter() -> None:
            for name in left:
                await self._delete_one(name)
                tick(1)

        await _at_once(deleter, _AT_ONCE)

    async def _names(self) -> AsyncIterator[str]:
        pages = self._client.pages(
            self._resource, namespace=self._namespace, label_selector=self.selector, metadata_only=True
        )
        async for page in pages:
            for item in page.objects:
                yield item.meta.name

    async def _create_one(self, document: dict[str, object]) -> None:
        async def create() -> None:
            await self._client.create(
                self._resource,
                document,
                namespace=self._namespace,
                type=bytes,
                field_manager=FIELD_MANAGER,
            )

        try:
            await _patiently(create)
        except AlreadyExists:
            return  # an earlier attempt without an answer was carried out

    async def _delete_one(self, name: str) -> None:
        async def delete() -> None:
            await self._client.delete(
                self._resource, name, namespace=self._namespace, propagation="Background"
            )

        try:
            await _patiently(delete)
        except (NotFound, Conflict, Expired):
            return


async def _patiently(attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Repeat *attempt* while the server is away or overloaded. Raises: KubeError."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            await attempt()
        except _PASSING as error:
            if loop.time() - began > _PATIENCE_S:
                raise
            asked_s = error.retry_after_s if isinstance(error, ApiError) else None
            await asyncio.sleep(asked_s or _PAUSE_S)
        else:
            return


async def _at_once(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """*count* times *work* side by side. Raises: the first KubeError."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(work(), name=f"objects-{number}")
    except BaseExceptionGroup as group:
        for error in group.exceptions:
            if isinstance(error, KubeError):
                raise error from None
        raise
