"""One watch of a ring's objects in one namespace, or in all: it goes on when a right is missing and comes back.

Without this a right that is missing for one resource would end the work on all of them. `reflector` does the same for
itself.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING

import structlog

from kubeio.errors import BadRequest, Forbidden, Invalid, KubeError
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.watch import Changed, Gap, ListDone, ListWatch, Removed, WatchEvent
from sharder.unowned.permissions import TRY_AGAIN_S, MissingPermissions, Permission, refused_verb

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from kubeio.clock import Clock
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client

log = structlog.get_logger("sharder")


async def watch_objects(
    client: Client,
    resource: ApiResource,
    *,
    namespace: str,
    label_selector: str,
    permissions: MissingPermissions,
    on_denied: Callable[[], None],
    clock: Clock,
    rng: random.Random,
) -> AsyncGenerator[WatchEvent, None]:
    """Everything that happens to the metadata of *resource*, for ever; *on_denied*: nothing will be seen for a while.

    Raises: what makes the first list impossible, a missing right apart.
    """
    while True:
        watch = ListWatch(
            ListerWatcher(
                client, resource, namespace=namespace, label_selector=label_selector, metadata_only=True
            ),
            clock=clock,
            rng=rng,
        )
        try:
            async with aclosing(watch.events()) as events:
                async for event in events:
                    _note(event, Permission("watch", resource.group_resource, namespace), permissions)
                    yield event
        except (BadRequest, Forbidden, Invalid) as error:
            _failed(error, Permission("watch", resource.group_resource, namespace), permissions)
            on_denied()
            await asyncio.sleep(TRY_AGAIN_S * rng.uniform(0.9, 1.1))


def _note(event: WatchEvent, right: Permission, permissions: MissingPermissions) -> None:
    match event:
        case Gap(error=error):
            _failed(error, right, permissions)
        case ListDone() | Changed() | Removed():
            permissions.granted(right)
        case _:
            pass


def _failed(error: KubeError, right: Permission, permissions: MissingPermissions) -> None:
    if isinstance(error, Forbidden):
        permissions.denied(right._replace(verb=refused_verb(error, right.verb)), error)
    else:
        permissions.failed(right, error)
