"""The unowned watches: what needs an owner, seen without keeping what has one.

One `sharder.unowned.picture` per resource, with the selector `shard notin (names that are not dead)`. When that set
changes the pictures are switched: the next one lists and watches before the last watch ends, so nothing is missed,
and all feed the same `Waiting`, so nothing is done twice. Decides nothing; tells the mover what to look at.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from sharder.ringspec.scope import EVERYWHERE
from sharder.unowned.picture import Picture

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.labels import RingKeys
    from kubeio.resource import Resource
    from kubeio.rest.client import Client
    from sharder.ringspec.scope import Scope
    from sharder.unowned.denials import Denials
    from sharder.unowned.waiting import Waiting

log = structlog.get_logger("sharder")

OVERLAP_S: Final = 1.0
"""How long two watches of a resource run at a switch: what was created just before shows on the old one at once."""
ENOUGH_TO_DO: Final = 4_000
"""Objects on the agenda, seconds of work: no further page is asked for while there are more."""


def unowned_selector(keys: RingKeys, not_dead: Iterable[str]) -> str:
    """Selector of everything whose label names nobody who could still work; no names: everything."""
    names = ",".join(sorted(not_dead))
    return f"{keys.shard} notin ({names})" if names else ""


class Unowned:
    """Keeps *waiting* up to date for every resource of one ring.

    *on_work* hears of each object (by its name in *waiting*) that is new or changed. *controlled* are listed before
    the other resources, and *on_listed* is told when they were, and again when all were: only then is it known which
    parents still have controlled objects that wait. *to_do* counts what is on the agenda: much of it holds lists back,
    never watches.
    """

    def __init__(
        self,
        client: Client,
        resources: Iterable[Resource],
        *,
        keys: RingKeys,
        waiting: Waiting,
        on_work: Callable[[str], None],
        on_listed: Callable[[], None],
        to_do: Callable[[], int],
        controlled: Collection[Resource] = (),
        scope: Scope = EVERYWHERE,
        denials: Denials,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._resources = tuple(resources)
        self._controlled = frozenset(controlled)
        self._scope = scope
        self._denials = denials
        self._keys = keys
        self._waiting = waiting
        self._on_work = on_work
        self._on_listed = on_listed
        self._to_do = to_do
        self._clock = clock
        self._rng = rng
        self._selector: str | None = None
        self._switched = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._pictures: Sequence[Picture] = ()
        self.knows_controlled = False
        """Whether all controlled objects that wait are known, under the present selector."""
        self.listed_at: float | None = None
        """When every resource had been listed under the present selector; None while a switch is under way."""

    def select(self, not_dead: Iterable[str]) -> None:
        """Watch for objects that name none of *not_dead*; the running watches go on until the new ones stand."""
        selector = unowned_selector(self._keys, not_dead)
        if selector != self._selector:
            self._selector = selector
            self._begin_switch()

    def refresh(self) -> None:
        """List everything once more under the present selector: what was dismissed may be wanted now."""
        if self._selector is not None:
            self._begin_switch()

    def look_for_room(self) -> None:
        """Something was done: perhaps another page of a list can be taken."""
        if self._to_do() < ENOUGH_TO_DO and not self._waiting.is_full:
            self._has_room.set()
        else:
            self._has_room.clear()

    async def run(self) -> None:
        """Run until cancelled; raises what makes the first list of a resource impossible (403, 404)."""
        await self._switched.wait()
        async with asyncio.TaskGroup() as tasks:
            running: list[tuple[Picture, asyncio.Task[None]]] = []
            while True:
                self._switched.clear()
                for picture, _ in running:
                    picture.stop_listing()
                    self._waiting.overlap(picture.area, True)
                new = self._begin_pictures(tasks)
                for picture, _ in new:
                    await picture.begun.wait()
                if running:
                    await asyncio.sleep(OVERLAP_S)
                for picture, old in running:
                    old.cancel()
                    self._waiting.overlap(picture.area, False)
                running = new
                await self._switched.wait()

    def _begin_switch(self) -> None:
        self.listed_at = None
        self.knows_controlled = not self._controlled
        self._switched.set()

    def _begin_pictures(self, tasks: asyncio.TaskGroup) -> list[tuple[Picture, asyncio.Task[None]]]:
        self._pictures = [
            self._picture(resource, namespace)
            for namespace in self._scope.namespaces
            for resource in self._resources
        ]
        return [
            (picture, tasks.create_task(picture.run(), name=f"unowned {picture.resource.group_resource}"))
            for picture in self._pictures
        ]

    def _picture(self, resource: Resource, namespace: str) -> Picture:
        return Picture(
            self._client,
            resource,
            namespace=namespace,
            label_selector=self._selector or "",
            labels=self._keys,
            denials=self._denials,
            waiting=self._waiting,
            on_work=self._on_work,
            on_listed=self._one_was_listed,
            may_list=lambda: self._wait_for_room(resource),
            clock=self._clock,
            rng=self._rng,
        )

    async def _wait_for_room(self, resource: Resource) -> None:
        """Return when *resource* may be listed, or its next page asked for."""
        if resource not in self._controlled:
            for picture in self._pictures:
                if picture.resource in self._controlled:
                    await picture.listed.wait()
        self.look_for_room()
        await self._has_room.wait()

    def _one_was_listed(self) -> None:
        if self._switched.is_set():
            return  # a picture that is to be replaced
        controlled = (p.listed.is_set() for p in self._pictures if p.resource in self._controlled)
        if not self.knows_controlled and all(controlled):
            self.knows_controlled = True
            self._on_listed()
        if all(picture.listed.is_set() for picture in self._pictures):
            self.listed_at = self._clock.now()
            self._on_listed()
            log.info("unowned watch switched", selector=self._selector, waiting=len(self._waiting))
