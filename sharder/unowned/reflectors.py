"""The unowned watches of a ring: one `UnownedReflector` for each resource and namespace. Owned objects are not kept.

All use the selector that `sharder.unowned.selector` plans. When it changes, each resource is switched by itself: the
next reflector lists and watches before the last one ends, so nothing is missed. All feed the same `PendingObjects`, so
nothing is done twice. A resource that cannot be listed keeps its last watch and holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from kubeio.errors import KubeError
from sharder.unowned.reflector import ListScope, UnownedReflector
from sharder.unowned.selector import SelectorPlan, plan_selection, selectors_of

if TYPE_CHECKING:
    from kubeio.protocol import RingKeys
    from kubeio.resource import ApiResource
    from sharder.ringspec.scope import Scope
    from sharder.unowned.access import ObjectAccess
    from sharder.unowned.pending import PendingObjects

log = structlog.get_logger("sharder")

OVERLAP_S: Final = 1.0
"""Time for which two watches of a resource run at a switch: the old one shows objects created just before."""
ENOUGH_TO_DO: Final = 4_000
"""Objects in the work queue, seconds of work: no further page is asked for while there are more."""
LIST_ORPHANS_S: Final = 30.0
"""Interval of the lists for dead names that the watch leaves out: writes may land late. A dead Lease stands for
60 s at least."""

RunningReflector = tuple[UnownedReflector, asyncio.Task[None]]


class Sink(Protocol):
    """Receiver of pending objects, by their names: `sharder.writing.assignment_queue.AssignmentQueue`."""

    def enqueue_name(self, name: str) -> None:
        """An object is new or changed."""

    def controlled_listed(self) -> None:
        """It is known by now which parents still have controlled objects that wait."""

    def enqueue_all(self) -> None:
        """Every resource was listed."""

    def backlog(self) -> int:
        """Objects of a first assignment that wait in the queue."""


class UnownedReflectors:
    """Keeps *pending* up to date for every resource of one ring, and *sink* informed.

    *controlled* are listed before the other resources. Much of a first assignment holds lists back, never watches. The
    objects of dead shards are listed whole: those that changed are to go first.
    """

    def __init__(
        self,
        access: ObjectAccess,
        resources: Iterable[ApiResource],
        pending: PendingObjects,
        sink: Sink,
        *,
        keys: RingKeys,
        scope: Scope,
        controlled: Collection[ApiResource] = (),
    ) -> None:
        self._access = access
        self._controlled = frozenset(controlled)
        self._places: tuple[ListScope, ...] = tuple(
            (resource, namespace)
            for resource in sorted(resources, key=lambda resource: resource not in self._controlled)
            for namespace in scope.namespaces
        )
        self._keys = keys
        self._pending = pending
        self._sink = sink
        self._selection: SelectorPlan | None = None
        self._switch = 0
        """The number of the present switch; 0 before anything was selected."""
        self._switched = asyncio.Event()
        """Set when the next switch begins; each has its own."""
        self._capacity = {resource: asyncio.Event() for resource, _ in self._places}
        """Event of each resource, set while a page of its lists may be taken in."""
        self._listed: dict[ListScope, int] = {}
        """The switch under which each was last listed."""
        self._orphans_listed: set[ListScope] = set()
        self._orphans_due = asyncio.Event()
        self._knows_controlled = asyncio.Event()
        self.listed_at: float | None = None
        """Time at which every resource had been listed under the present selector; None during a switch."""

    @property
    def knows_controlled(self) -> bool:
        """Whether all controlled objects that wait are known, under the present selector."""
        return self._knows_controlled.is_set()

    def select(self, not_dead: Iterable[str], dead: Iterable[str] = ()) -> None:
        """Watch for objects that name none of *not_dead*; the running watches go on until the new ones stand.

        Objects of *dead* are listed where that selector would be too long.
        """
        before, self._selection = self._selection, plan_selection(self._keys, not_dead, dead)
        if before is None or before.selector != self._selection.selector:
            self._begin_switch()
        elif self._selection.orphans - before.orphans:
            self._forget_listed()

    def refresh(self) -> None:
        """List everything once more under the present selector: objects that were dropped may be wanted now."""
        if self._selection is not None:
            self._begin_switch()

    def resume_lists(self) -> None:
        """Resume lists that wait for capacity in the work queue."""
        is_little = self._sink.backlog() < ENOUGH_TO_DO
        for resource, has_capacity in self._capacity.items():
            if is_little and not self._is_full(resource):
                has_capacity.set()
            else:
                has_capacity.clear()
        if is_little and not self.knows_controlled and any(map(self._is_full, self._controlled)):
            self._note_listed()

    async def run(self) -> None:
        """Run until cancelled; raises what makes the first list of a resource impossible (401), and any 404."""
        async with asyncio.TaskGroup() as tasks:
            for place in self._places:
                tasks.create_task(self._follow(place), name=f"unowned {place[0].group_resource}")
            tasks.create_task(self._list_orphans(), name="orphans")

    # ---- switches ---------------------------------------------------------------------------------------------

    def _begin_switch(self) -> None:
        self._switch += 1
        self._forget_listed()
        self._switched.set()
        self._switched = asyncio.Event()

    def _forget_listed(self) -> None:
        self.listed_at = None
        self._orphans_listed.clear()
        self._orphans_due.set()
        if self._controlled:
            self._knows_controlled.clear()
        else:
            self._knows_controlled.set()

    async def _wait_switched(self, seen: int) -> None:
        while self._switch == seen:
            await self._switched.wait()

    async def _follow(self, place: ListScope) -> None:
        """Run one reflector after the other: the last one goes on until the next one shows everything."""
        running: list[RunningReflector] = []
        seen = 0
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wait_switched(seen)
                seen = self._switch
                for old, _ in running:
                    old.stop_listing()
                    self._pending.overlap(old.area, True)
                reflector = self._reflector(place, seen, partial(self._wait_to_list, place[0]))
                task = tasks.create_task(reflector.run(), name=f"unowned {place[0].group_resource}")
                await reflector.begun.wait()
                if running:
                    await asyncio.sleep(OVERLAP_S)
                for old, old_task in running:
                    old_task.cancel()
                    self._pending.overlap(old.area, False)
                running = [(reflector, task)]

    def _reflector(
        self, place: ListScope, switch: int, may_list: Callable[[], Awaitable[None]]
    ) -> UnownedReflector:
        return UnownedReflector(
            self._access,
            place,
            self._pending,
            label_selector=self._selection.selector if self._selection is not None else "",
            shard_label=self._keys.shard,
            on_pending=self._sink.enqueue_name,
            on_listed=lambda: self._one_was_listed(place, switch),
            may_list=may_list,
        )

    # ---- lists ------------------------------------------------------------------------------------------------

    async def _wait_to_list(self, resource: ApiResource) -> None:
        """Return when *resource* may be listed, or its next page asked for: what is controlled comes first."""
        if resource not in self._controlled:
            await self._knows_controlled.wait()
        await self._wait_for_capacity(resource)

    async def _wait_for_capacity(self, resource: ApiResource) -> None:
        self.resume_lists()
        await self._capacity[resource].wait()

    def _one_was_listed(self, place: ListScope, switch: int) -> None:
        if switch != self._switch:
            return  # of a reflector that is to be replaced
        self._listed[place] = switch
        self._orphans_due.set()
        self._note_listed()

    def _note_listed(self) -> None:
        known = [place for place in self._places if self._is_listed(place)]
        # a kind that is full, since it cannot be written perhaps, stops no other kind
        if not self.knows_controlled and all(
            place in known or self._is_full(place[0])
            for place in self._places
            if place[0] in self._controlled
        ):
            self._knows_controlled.set()
            self._orphans_due.set()
            self._sink.controlled_listed()
        if self.listed_at is None and len(known) == len(self._places):
            self.listed_at = self._access.clock.now()
            self._sink.enqueue_all()
            selector = self._selection.selector if self._selection is not None else ""
            log.info("unowned watch switched", selector=selector, pending=len(self._pending))

    def _is_full(self, resource: ApiResource) -> bool:
        return self._pending.is_full(resource.group_resource)

    def _is_listed(self, place: ListScope) -> bool:
        if self._listed.get(place) != self._switch:
            return False
        return not self._orphans() or place in self._orphans_listed

    def _orphans(self) -> frozenset[str]:
        return self._selection.orphans if self._selection is not None else frozenset()

    async def _list_orphans(self) -> None:
        """Objects of dead names that the watch leaves out: after each death, and every so often.

        Behind the watch's own list, which forgets whatever it does not show.
        """
        while True:
            try:
                async with asyncio.timeout(LIST_ORPHANS_S if self._orphans() else None):
                    await self._orphans_due.wait()
            except TimeoutError:
                self._orphans_listed.clear()
            self._orphans_due.clear()
            for place in self._places:
                if self._may_list_orphans(place):
                    await self._list_orphans_at(place)

    def _may_list_orphans(self, place: ListScope) -> bool:
        is_next = self.knows_controlled or place[0] in self._controlled
        is_wanted = bool(self._orphans()) and place not in self._orphans_listed
        return is_wanted and is_next and self._listed.get(place) == self._switch

    async def _list_orphans_at(self, place: ListScope) -> None:
        names, switch = self._orphans(), self._switch
        try:
            # it waits for no other list: this task makes all of them, in their order
            reflector = self._reflector(place, switch, partial(self._wait_for_capacity, place[0]))
            await reflector.list_orphans(selectors_of(self._keys, names))
        except KubeError as error:
            log.warning(
                "objects of dead shards could not be listed",
                resource=place[0].group_resource,
                error=str(error),
            )
        if names >= self._orphans() and switch == self._switch:
            self._orphans_listed.add(place)
            self._note_listed()
