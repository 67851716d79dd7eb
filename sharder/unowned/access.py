"""Access to the objects of one ring: the client, the missing permissions, and a watch that survives their loss.

Without this a permission that is missing for one resource would end the work on all of them.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeio.errors import BadRequest, Forbidden, Invalid
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Changed, Gap, ListDone, Reflector, Removed, WatchEvent
from sharder.unowned.permissions import TRY_AGAIN_S, MissingPermissions, Permission

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from kubeio.clock import Clock
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client


@dataclass(frozen=True, slots=True)
class ObjectAccess:
    """Client, permissions, clock and rng that lists and watches of a ring's objects share."""

    client: Client
    permissions: MissingPermissions
    clock: Clock
    rng: random.Random

    def list_watch(
        self, resource: ApiResource, *, namespace: str, label_selector: str, since: str = ""
    ) -> Reflector:
        """A list and watch of metadata."""
        source = ListerWatcher(
            self.client, resource, namespace=namespace, label_selector=label_selector, metadata_only=True
        )
        return Reflector(source, since=since, clock=self.clock, rng=self.rng)

    async def watch(
        self,
        resource: ApiResource,
        *,
        namespace: str,
        label_selector: str,
        on_denied: Callable[[], None],
    ) -> AsyncGenerator[WatchEvent, None]:
        """Everything that happens to the metadata of *resource*, for ever; *on_denied*: nothing is seen for a while.

        Raises: what makes the first list impossible, a missing permission apart.
        """
        permission = Permission("watch", resource.group_resource, namespace)
        while True:
            watch = self.list_watch(resource, namespace=namespace, label_selector=label_selector)
            try:
                async with aclosing(watch.events()) as events:
                    async for event in events:
                        self._note(event, permission)
                        yield event
            except (BadRequest, Forbidden, Invalid) as error:
                self.permissions.failed(permission, error)
                on_denied()
                await asyncio.sleep(TRY_AGAIN_S * self.rng.uniform(0.9, 1.1))

    def _note(self, event: WatchEvent, permission: Permission) -> None:
        match event:
            case Gap(error=error):
                self.permissions.failed(permission, error)
            case ListDone() | Changed() | Removed():
                self.permissions.granted(permission)
            case _:
                pass
