"""Writes each object without an owner once when the ring gives it up: an assignment decided before cannot land after.

Another controller may work on a namespace or a resource that is deselected. Owned objects get a new version by their
release. The others would keep a version that an assignment still on its way may test. So they get an empty drain label,
which the assigner (for a removed resource, the handoffs) takes off again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import KubeError
from sharder.planning.decisions import Touch
from sharder.planning.keys import Outsider
from sharder.writing.object_writer import WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Collection

    from kubeio.models import Meta
    from kubeio.resource import ApiResource
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

PAGE: Final = 500
RETRY_S: Final = 5.0
_WRITTEN: Final = (WriteOutcome.DONE, WriteOutcome.STALE, WriteOutcome.GONE, WriteOutcome.REFUSED)
"""The object has another version by now, or none at all, or none that a patch may change."""


class Touching:
    """Touches what the ring gives up, until cancelled."""

    def __init__(self, context: RingContext) -> None:
        self._context = context
        self.former_done = not context.kinds.former
        """Whether every object without an owner of a resource that the ring gave up was touched."""

    async def run(self) -> None:
        state = self._context.states.current
        if not self.former_done:
            await self._touch(self._context.kinds.former, self._context.scope.namespaces)
            self.former_done = True
        while True:
            before, state = state, await self._context.states.wait_newer(state)
            left = sorted((before.selected or frozenset()) - (state.selected or frozenset()))
            if left:
                await self._touch(self._context.kinds.resources, left)

    async def _touch(self, resources: Collection[ApiResource], namespaces: Collection[str]) -> None:
        for resource in resources:
            for namespace in namespaces if resource.namespaced else ("",):
                await self._touch_all(resource, namespace)

    async def _touch_all(self, resource: ApiResource, namespace: str) -> None:
        """Until it is done."""
        while True:
            try:
                await self._touch_listed(resource, namespace)
            except KubeError as error:
                log.warning(
                    "objects could not be touched",
                    resource=resource.group_resource,
                    namespace=namespace,
                    error=str(error),
                )
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _touch_listed(self, resource: ApiResource, namespace: str) -> None:
        context = self._context
        unowned = context.client.pages(
            resource,
            namespace=namespace,
            label_selector=f"!{context.keys.shard}",
            limit=PAGE,
            metadata_only=True,
        )
        async for page in unowned:
            for item in page.objects:
                is_ours = not isinstance(context.kinds.role(resource, item.meta), Outsider)
                if is_ours and context.keys.drain not in item.meta.labels:
                    await self._touch_one(resource, item.meta)

    async def _touch_one(self, resource: ApiResource, meta: Meta) -> None:
        while await self._context.objects.write(resource, meta, Touch()) not in _WRITTEN:  # noqa: ASYNC110 - a retry
            await asyncio.sleep(RETRY_S)
