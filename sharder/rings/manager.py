"""Every ring of the cluster (or those named on the command line): one `RingController` each, while the ring exists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from kubeio.errors import NotFound
from kubeio.program.failures import failure
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.suggestions import nearest
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import (
    Changed,
    Gap,
    ListDone,
    Listed,
    ListStarted,
    Reflector,
    Removed,
    WatchEvent,
)
from sharder.rings.controller import RingController
from sharder.rings.store import ClusterRingStore, Ring
from sharder.ringspec.scope import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Collection

    from kubeio.models import Object
    from sharder.sharder_context import SharderContext

log = structlog.get_logger("sharder")

CRD_RETRY_S = 5.0


class RingManager:
    """Follows the ControllerRings until cancelled. *names*: only these; empty: all."""

    def __init__(self, context: SharderContext, *, names: Collection[str]) -> None:
        self._context = context
        self._names = frozenset(names)
        self._controllers: dict[str, tuple[RingController, asyncio.Task[None]]] = {}
        self._listing: set[str] = set()
        self._is_leading = False
        self.synced = asyncio.Event()
        self.ended = asyncio.Event()
        """Never set: another ring may come."""

    def lead(self) -> None:
        """This sharder acts from now on, on every ring."""
        self._is_leading = True
        for controller, _ in self._controllers.values():
            controller.lead()

    def why_not_alive(self) -> str | None:
        """Problem of one ring that a restart would cure; None if there is none."""
        return next(
            filter(None, (controller.why_not_alive() for controller, _ in self._controllers.values())), None
        )

    async def run(self) -> None:
        """Raises the errors of a ring's controller that are no Kubernetes answers: faults of ours."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    await self._follow(tasks)
                except NotFound:
                    log.error(
                        "the ControllerRing resource is not installed",
                        remedy="ringleader crds | kubectl apply --server-side -f -, or install the chart",
                    )
                    await asyncio.sleep(CRD_RETRY_S)

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        context = self._context
        source = ListerWatcher(context.client, CONTROLLER_RINGS)
        watch = Reflector(source, clock=context.clock, rng=context.rng)
        async for event in watch.events():
            self._handle(event, tasks)

    def _handle(self, event: WatchEvent, tasks: asyncio.TaskGroup) -> None:
        match event:
            case ListStarted():
                self._listing = set()
            case Listed(objects=objects):
                for item in objects:
                    self._listing.add(item.meta.name)
                    self._seen(item, tasks)
            case ListDone():
                for name in self._controllers.keys() - self._listing:
                    self._gone(name)
                for name in sorted(self._names - self._listing):
                    log.warning("ring does not exist", ring=name, remedy=nearest(name, self._listing))
                self.synced.set()
            case Changed(object=item):
                self._seen(item, tasks)
            case Removed(object=item):
                self._gone(item.meta.name)
            case Gap(error=error):
                log.warning("ring watch interrupted", error=failure(error).message)
            case _:
                pass

    def _seen(self, item: Object, tasks: asyncio.TaskGroup) -> None:
        name = item.meta.name
        if self._names and name not in self._names:
            return
        ring = msgspec.json.decode(item.raw, type=Ring)
        known = self._controllers.get(name)
        if known is not None and known[0].uid == item.meta.uid:
            known[0].change(ring)
            return
        self._gone(name)  # deleted, and created again between two lists
        controller = RingController(
            self._context,
            ring,
            store=ClusterRingStore(self._context.client, name, uid=item.meta.uid),
            scope=EVERYWHERE,
        )
        if self._is_leading:
            controller.lead()
        self._controllers[name] = (controller, tasks.create_task(controller.run(), name=f"ring {name}"))
        log.info("ring found", ring=name)

    def _gone(self, name: str) -> None:
        found = self._controllers.pop(name, None)
        if found is not None:
            found[1].cancel()
            context = self._context
            context.metrics.forget(name)
            if context.webhook is not None:
                context.webhook.forget(name)
            context.live.forget(name)
            log.info("ring gone", ring=name)
