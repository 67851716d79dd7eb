"""One watch of a ring's objects in one namespace, or in all: it goes on when a right is missing and comes back.

Without this a right that is missing for one resource would end the work on all of them. Called by
`handoffs`, once per resource and namespace; `picture` does the same for itself.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING

import structlog

from kubeio.errors import BadRequest, Forbidden, Invalid, KubeError
from kubeio.watches.watch import Changed, Gap, ListDone, ListWatch, Removed, WatchEvent
from sharder.unowned.denials import TRY_AGAIN_S, Denials, Right, refused_verb

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from kubeio.clock import Clock
    from kubeio.resource import Resource
    from kubeio.rest.client import Client

log = structlog.get_logger("sharder")


async def watch_objects(
    client: Client,
    resource: Resource,
    *,
    namespace: str,
    label_selector: str,
    denials: Denials,
    on_denied: Callable[[], None],
    clock: Clock,
    rng: random.Random,
) -> AsyncGenerator[WatchEvent, None]:
    """Everything that happens to the metadata of *resource*, for ever; *on_denied*: nothing will be seen for a while.

    Raises: what makes the first list impossible, a missing right apart.
    """
    while True:
        watch = ListWatch(
            client,
            resource,
            namespace=namespace,
            label_selector=label_selector,
            metadata_only=True,
            clock=clock,
            rng=rng,
        )
        try:
            async with aclosing(watch.events()) as events:
                async for event in events:
                    _note(event, Right("watch", resource.group_resource, namespace), denials)
                    yield event
        except (BadRequest, Forbidden, Invalid) as error:
            _failed(error, Right("watch", resource.group_resource, namespace), denials)
            on_denied()
            await asyncio.sleep(TRY_AGAIN_S * rng.uniform(0.9, 1.1))


def _note(event: WatchEvent, right: Right, denials: Denials) -> None:
    match event:
        case Gap(error=error):
            _failed(error, right, denials)
        case ListDone() | Changed() | Removed():
            denials.granted(right)
        case _:
            pass


def _failed(error: KubeError, right: Right, denials: Denials) -> None:
    if isinstance(error, Forbidden):
        denials.denied(right._replace(verb=refused_verb(error, right.verb)), error)
    else:
        denials.failed(right, error)
