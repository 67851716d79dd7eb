"""The unowned watches: what needs an owner, seen without keeping what has one.

One list+watch session per resource with the selector `shard notin (names that are not dead)`. When that set
changes the session is switched: the next one starts and lists before the last one ends, so nothing is missed,
and both feed the same `Waiting`, so nothing is done twice. Decides nothing; tells the mover what to look at.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

import structlog

from kubeio.client import Client
from kubeio.clock import Clock
from kubeio.labels import RingKeys
from kubeio.models import Object
from kubeio.resource import Resource
from kubeio.watch import Changed, Gap, ListDone, Listed, ListStarted, ListWatch, Removed, WatchEvent
from sharder.waiting import Waiting, WorkKey

log = structlog.get_logger("sharder")


def unowned_selector(keys: RingKeys, not_dead: Iterable[str]) -> str:
    """Selector of everything whose label names nobody who could still work; no names: everything."""
    names = ",".join(sorted(not_dead))
    return f"{keys.shard} notin ({names})" if names else ""


class _Session:
    """One selector's session over one resource: feeds *waiting* and says when its first list is complete."""

    def __init__(self, watch: ListWatch, resource: Resource, owner: Unowned) -> None:
        self.listed = asyncio.Event()
        self._watch = watch
        self._resource = resource
        self._owner = owner
        self._seen: set[WorkKey] = set()

    async def run(self) -> None:
        async for event in self._watch.events():
            self._handle(event)

    def _handle(self, event: WatchEvent) -> None:
        match event:
            case ListStarted():
                self._seen = set()
            case Listed(objects=objects):
                for item in objects:
                    self._seen.add(self._owner.put(self._resource, item))
            case ListDone(resource_version=version):
                self._owner.keep_only(self._resource, self._seen, int(version or 0))
                self._seen = set()
                self.listed.set()
            case Changed(object=item):
                self._owner.put(self._resource, item)
            case Removed(object=item):
                self._owner.remove(self._resource, item)
            case Gap(error=error, retry_in_s=retry_in_s):
                log.warning(
                    "unowned watch interrupted",
                    resource=self._resource.group_resource,
                    error=str(error),
                    retry_in_s=round(retry_in_s, 2),
                )
            case _:
                pass


class Unowned:
    """Keeps *waiting* up to date for every resource of one ring.

    *on_work* hears of each object that is new or changed, *on_listed* when all resources were listed after a switch:
    only then is it known which parents still have controlled objects that wait.
    """

    def __init__(
        self,
        client: Client,
        resources: Iterable[Resource],
        *,
        keys: RingKeys,
        waiting: Waiting,
        on_work: Callable[[WorkKey], None],
        on_listed: Callable[[], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._resources = tuple(resources)
        self._keys = keys
        self._waiting = waiting
        self._on_work = on_work
        self._on_listed = on_listed
        self._clock = clock
        self._rng = rng
        self._selector: str | None = None
        self._switched = asyncio.Event()
        self.listed_at: float | None = None
        """When every resource had been listed under the present selector; None while a switch is under way."""

    def select(self, not_dead: Iterable[str]) -> None:
        """Watch for objects that name none of *not_dead*; the running sessions go on until the new ones listed."""
        selector = unowned_selector(self._keys, not_dead)
        if selector != self._selector:
            self._selector = selector
            self.listed_at = None
            self._switched.set()

    def refresh(self) -> None:
        """List everything once more under the present selector: what was dismissed may be wanted now."""
        if self._selector is not None:
            self.listed_at = None
            self._switched.set()

    async def run(self) -> None:
        """Run until cancelled; raises what makes the first list of a resource impossible (403, 404)."""
        await self._switched.wait()
        running: list[asyncio.Task[None]] = []
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._switched.clear()
                selector = self._selector or ""
                sessions = [self._session(resource, selector) for resource in self._resources]
                started = [
                    tasks.create_task(session.run(), name=f"unowned {resource.group_resource}")
                    for session, resource in zip(sessions, self._resources, strict=True)
                ]
                for session in sessions:
                    await session.listed.wait()
                for old in running:
                    old.cancel()
                running = started
                if selector == self._selector:
                    self.listed_at = self._clock.now()
                    self._on_listed()
                    log.info("unowned watch switched", selector=selector, waiting=len(self._waiting))
                await self._switched.wait()

    def put(self, resource: Resource, item: Object) -> WorkKey:
        work = WorkKey(resource.group_resource, item.meta.key)
        if self._waiting.put(work, item.meta, at=self._clock.now()):
            self._on_work(work)
        return work

    def remove(self, resource: Resource, item: Object) -> None:
        work = WorkKey(resource.group_resource, item.meta.key)
        self._waiting.drop_up_to(work, int(item.meta.resource_version or 0))

    def keep_only(self, resource: Resource, seen: set[WorkKey], version: int) -> None:
        """A list at *version* is complete: what it did not show no longer waits."""
        for work in self._waiting.of_resource(resource):
            if work not in seen:
                self._waiting.drop_up_to(work, version)

    def _session(self, resource: Resource, selector: str) -> _Session:
        watch = ListWatch(
            self._client,
            resource,
            label_selector=selector,
            metadata_only=True,
            clock=self._clock,
            rng=self._rng,
        )
        return _Session(watch, resource, self)
