"""One run on a target: objects, observer and fleet once; then load, actions, settling and audit of each scenario.

Owns the order of these; each of them is a module of its own. Prints progress on stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kubeio.clock import Clock
from kubeio.errors import Forbidden, KubeError
from kubeio.program.failures import failure
from kubeio.resource import NAMESPACES, ApiResource
from kubeio.rest.client import Client
from loadtest.inputs.scenario import Action, Schedule
from loadtest.inputs.template import Template, prefilled_name
from loadtest.load import LoadFailed, Locust, LocustOptions, start_locust
from loadtest.objects import RunObjects
from loadtest.observing.histograms import ApiPage, MetricsPage
from loadtest.observing.observer import ASSIGNED, CHANGED, READY, MeasuredWait, Observer
from loadtest.observing.sampler import Sampler, read_api_metrics
from loadtest.plan import LoadPlan
from loadtest.progress import Console
from loadtest.targets.target import ActionFailed, Target, Testimony
from ringleader.cluster.reader import read_rings, read_shards
from ringleader.cluster.ring import Ring, named_ring

_POLL_S: Final = 0.2
_OWNERS_POLL_S: Final = 1.0
_BATCH_S: Final = 0.25
_STALLED_S: Final = 90.0
"""How long the fleet may make no progress with what existed before the load."""
_SETTLE_S: Final = 60.0
"""How long the fleet may make no progress, after the load."""
_SETTLE_AT_MOST_S: Final = 600.0
"""How long it may take at most, after a load that was shorter."""
CALM_S: Final = 15.0
"""Longer than a place is held and a ring settles: if nothing moved for so long, nothing will."""
_CALM_WITHIN_S: Final = 1800.0
_SURPLUS: Final = 0.05
"""Part by which loads may have added objects."""
_SILENT_S: Final = 20.0
"""How long assigned objects may say nothing of readiness until the kind counts as one that never does."""
_RING_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is asked of a run."""

    run: str
    objects: int
    template: Template
    locust: LocustOptions


@dataclass(slots=True)
class Happened:
    """An action, when it began and ended, in seconds of load, and what was done or went wrong."""

    action: str
    began_s: float
    ended_s: float
    text: str
    has_failed: bool = False


@dataclass(slots=True)
class Prepared:
    """What there was before the first load, and how long it took."""

    resource: ApiResource
    replicas: int = 0
    prefill_s: float = 0.0
    first_assigned_s: float | None = None
    first_ready_s: float | None = None
    measures_ready: bool = True


@dataclass(slots=True)
class Found:
    """Everything that was found by one load, for verdict and report. Instants are those of the clock."""

    prepared: Prepared
    schedule: Schedule
    objects: int = 0
    """When the load began."""
    started_at: float = 0.0
    load_ended_at: float = 0.0
    ended_at: float = 0.0
    happened: list[Happened] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    waits: list[MeasuredWait] = field(default_factory=list)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    unowned: int = 0
    unready: int = 0
    objects_at_end: int = 0
    testimony: Testimony = field(default_factory=Testimony)
    api: tuple[ApiPage, ApiPage] | None = None
    api_reason: str = ""


class Run:
    """One run on *target*."""

    def __init__(
        self, options: RunOptions, target: Target, client: Client, *, clock: Clock, console: Console
    ) -> None:
        self.options = options
        self.target = target
        self.sampler = Sampler(target, clock)
        self.locust: Locust | None = None
        self._client = client
        self._clock = clock
        self._console = console
        self._observer: Observer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._waiting: list[MeasuredWait] = []
        self._testified = Testimony()

    @property
    def observer(self) -> Observer:
        if self._observer is None:
            raise RuntimeError("the run has not begun")
        return self._observer

    @asynccontextmanager
    async def prepared(self, removal: AbstractAsyncContextManager[None]) -> AsyncIterator[Prepared]:
        """Objects, observer and a fleet that has every object assigned and ready.

        *removal* is entered before the first object is created, and left after the last use.
        Raises: InputError, KubeError, LoadFailed and what keeps the fleet from starting."""
        options, target = self.options, self.target
        resource = await target.resolve(self._client, options.template)
        await self._check_namespace(resource)
        prepared = Prepared(resource)
        objects = self._objects_of(prepared)
        async with removal:
            await self._fill(objects, prepared)
            self._observer = await self._new_observer(resource, objects.selector)
            async with _beside(self._observer.run(), "observer") as self._watching:
                await _first(self._observer.listed.wait(), self._watching)
                await self.target.start()
                await self.wait_worked(prepared)
                prepared.replicas = await self.target.size()
                yield prepared

    async def restore(self, prepared: Prepared, replicas: int, *, calm_s: float = CALM_S) -> None:
        """So many replicas, about the objects of before the first load, each worked, and no change for *calm_s*.

        Raises: ActionFailed, LeftOver and as `prepared`."""
        await self.target.scale(replicas)
        surplus = len(self.observer) - self.options.objects
        if surplus > self.options.objects * _SURPLUS:
            options = self.options
            kept = {
                prefilled_name(options.template.prefix, options.run, index)
                for index in range(options.objects)
            }
            with self._console.counting("deleting objects of the last load", surplus) as tick:
                await self._objects_of(prepared).delete(tick=tick, but=kept)
        await self._wait_calm(prepared, calm_s)

    async def _wait_calm(self, prepared: Prepared, calm_s: float) -> None:
        """Wait until each object is ready and has a live owner, and nothing has changed for *calm_s*, no queue either.

        A queue that grows no shorter, though no object changes, is the controller's own way. Raises: LoadFailed."""
        now = self._clock.now
        began = busy_at = changed_at = now()
        seen, shortest = -1, math.inf
        while now() < min(busy_at + calm_s, changed_at + 4 * CALM_S):
            self._check_observer()
            if self.observer.seen != seen or (self.target.shares and await self._count_unowned()):
                seen, shortest = self.observer.seen, math.inf
                busy_at = changed_at = now()
            elif queued := sum(MetricsPage(text).queued for text in (await self.target.metrics()).values()):
                busy_at = now()
                if queued < shortest:
                    shortest, changed_at = queued, busy_at
            if now() - began > _CALM_WITHIN_S:
                raise LoadFailed(f"objects still change without load after {_CALM_WITHIN_S:g} s")
            await asyncio.sleep(calm_s / 10)
        if self.target.shares:
            await self._wait_assigned()
        if prepared.measures_ready:
            await self._wait_ready()

    def _objects_of(self, prepared: Prepared) -> RunObjects:
        return RunObjects(
            self._client, prepared.resource, namespace=self.target.namespace, run=self.options.run
        )

    def _check_observer(self) -> None:
        """Raises: what ended the observer."""
        if self._watching is not None and self._watching.done():
            self._watching.result()

    async def _check_namespace(self, resource: ApiResource) -> None:
        """Raises KubeError for a namespace that does not exist: before anything is created."""
        if resource.namespaced:
            with contextlib.suppress(Forbidden):  # it may be there all the same
                await self._client.get(NAMESPACES, self.target.namespace, type=bytes)

    async def _fill(self, objects: RunObjects, prepared: Prepared) -> None:
        began = self._clock.now()
        with self._console.counting("creating objects", self.options.objects) as tick:
            await objects.create(self.options.template, self.options.objects, tick=tick)
        prepared.prefill_s = self._clock.now() - began
        rate = self.options.objects / max(prepared.prefill_s, 1e-9)
        self._console.say(
            f"{self.options.objects:,} objects in {prepared.prefill_s:.1f} s, {rate:.0f} a second"
        )

    async def _new_observer(self, resource: ApiResource, selector: str) -> Observer:
        return Observer(
            self._client,
            resource,
            namespace=self.target.namespace,
            selector=selector,
            shard_label=await self._shard_label(),
            clock=self._clock,
        )

    async def _shard_label(self) -> str:
        from kubeio.protocol import RingKeys

        rings = await read_rings(self._client, timeout_s=_RING_TIMEOUT_S)
        known = [ring for ring in rings if ring.name == self.target.ring]
        return known[0].keys.shard if known else RingKeys(self.target.ring).shard

    # -- the fleet before the load --------------------------------------------------------------------------

    async def wait_worked(self, prepared: Prepared) -> None:
        """Wait until the fleet has every object assigned and ready. Raises: LoadFailed when it stands still."""
        began = self._clock.now()
        if self.target.shares:
            await self._wait_assigned()
            prepared.first_assigned_s = self._clock.now() - began
        await self._wait_says_ready(prepared)
        if not prepared.measures_ready:
            self._console.say(
                f"{prepared.resource.kind} shows neither status.observedGeneration nor a Ready condition:"
                " only assignment is measured"
            )
            return
        await self._wait_ready()
        prepared.first_ready_s = self._clock.now() - began
        assigned = f"assigned after {prepared.first_assigned_s:.1f} s, " if prepared.first_assigned_s else ""
        self._console.say(f"all {assigned}ready after {prepared.first_ready_s:.1f} s")

    async def _wait_assigned(self) -> None:
        total = len(self.observer)
        with self._console.counting("assigned by the fleet", total) as tick:
            await self._wait_for(lambda: total - self.observer.unassigned, total, tick)

    async def _wait_ready(self) -> None:
        total = len(self.observer)
        with self._console.counting("ready", total) as tick:
            await self._wait_for(lambda: total - self.observer.unready, total, tick)

    async def _wait_says_ready(self, prepared: Prepared) -> None:
        deadline = self._clock.now() + _SILENT_S
        while not self.observer.says_ready:
            self._check_observer()
            if self._clock.now() > deadline:
                prepared.measures_ready = False
                return
            await asyncio.sleep(_POLL_S)

    async def _wait_for(self, done: Callable[[], int], total: int, tick: Callable[[int], None]) -> None:
        """Wait until *done* gives *total*. Raises: LoadFailed when it stands still."""
        reached, moved_at = 0, self._clock.now()
        while (now_done := done()) < total:
            self._check_observer()
            if now_done != reached:
                tick(now_done - reached)
                reached, moved_at = now_done, self._clock.now()
            elif self._clock.now() - moved_at > _STALLED_S:
                raise LoadFailed(
                    f"{total - now_done} of {total} objects are not done, and nothing changed for"
                    f" {_STALLED_S:.0f} s: does a sharder lead, do replicas run? (ringleader check)"
                )
            await asyncio.sleep(_POLL_S)
        tick(total - reached)

    # -- the load -------------------------------------------------------------------------------------------

    async def load(self, found: Found, *, out: Path | None = None) -> None:
        """One load from its first request until the fleet has done what it asked for; locust's files go to *out*.

        Raises: LoadFailed, KubeError."""
        options, resource, schedule = self.options, found.prepared.resource, found.schedule
        options_of_locust = options.locust if out is None else replace(options.locust, out=out)
        plan = LoadPlan(
            options.run,
            resource.path(namespace=self.target.namespace if resource.namespaced else ""),
            options.template.document(),
            options.objects,
            schedule,
        )
        api_before, found.api_reason = await read_api_metrics(self._client)
        async with start_locust(plan, options_of_locust) as locust:
            self.locust = locust
            found.started_at = await locust.wait_started(within_s=600 if options.locust.workers else 60)
            found.objects = len(self.observer)
            self.observer.start_over()
            self._waiting.clear()
            self.observer.expected = [
                *([ASSIGNED] if self.target.shares else []),
                *([READY, CHANGED] if found.prepared.measures_ready else []),
            ]
            await self.sampler.begin()
            self._console.say(f"load began: {schedule.scenario}, {schedule.duration_s:g} s")
            async with (
                _beside(self.sampler.run(), "sampler"),
                _beside(self._forward(locust), "waits"),
                asyncio.TaskGroup() as actions,
            ):
                for action in schedule.fleet_actions:
                    actions.create_task(self._act(action, found), name=action.do)
                await self._until_load_ends(found, locust, schedule.duration_s)
            found.load_ended_at = self._clock.now()
            await self._settle(found)
            self.observer.cut_short()
            found.waits = list(self.observer.waits)
            self._forward_once(locust)
            found.requests = await locust.finish()
            found.notices += [*locust.seen.notices, *locust.errors(), *self._outages(found)]
        api_after, _ = await read_api_metrics(self._client)
        if api_before is not None and api_after is not None:
            found.api = api_before, api_after

    async def _until_load_ends(self, found: Found, locust: Locust, duration_s: float) -> None:
        with self._console.counting("seconds of load", int(duration_s)) as tick:
            shown = 0
            while (passed_s := self._clock.now() - found.started_at) < duration_s:
                locust.check()
                self._check_observer()
                tick(int(passed_s) - shown)
                shown = int(passed_s)
                await asyncio.sleep(_POLL_S)

    async def _act(self, action: Action, found: Found) -> None:
        await asyncio.sleep(max(0.0, found.started_at + action.at - self._clock.now()))
        happened = Happened(action.do, self._clock.now() - found.started_at, 0.0, "under way")
        found.happened.append(happened)
        try:
            happened.text = await self.target.act(action)
        except (ActionFailed, KubeError) as error:
            happened.text = failure(error).message if isinstance(error, KubeError) else str(error)
            happened.has_failed = True
        happened.ended_s = self._clock.now() - found.started_at
        self._console.say(f"{happened.began_s:.0f} s: {action.do}: {happened.text}")

    def _outages(self, found: Found) -> Iterator[str]:
        for outage in self.observer.outages:
            began_s, lasted_s = outage.began_at - found.started_at, outage.ended_at - outage.began_at
            yield (
                f"the API server did not answer the watch for {lasted_s:.1f} s,"
                f" {began_s:.0f} s after the load began: {outage.reason}"
            )

    async def _settle(self, found: Found) -> None:
        """Wait, while the fleet makes progress, until nothing is behind the load and every object has a live owner."""
        left, moved_at = await self._count_left(found), self._clock.now()
        deadline = moved_at + max(_SETTLE_AT_MOST_S, moved_at - found.started_at)
        while left and self._clock.now() < min(deadline, moved_at + _SETTLE_S):
            self._check_observer()
            await asyncio.sleep(_OWNERS_POLL_S)
            if (now_left := await self._count_left(found)) != left:
                left, moved_at = now_left, self._clock.now()
        found.ended_at = self._clock.now()

    async def _count_left(self, found: Found) -> int:
        """Objects that are behind the load, those without a live owner, and what the sharder says still waits for one.

        A take-over begins with controlled objects, which the observer does not see.
        """
        behind = self.observer.unready if found.prepared.measures_ready else 0
        if not self.target.shares:
            return behind
        waiting = int((await self._read_ring()).status.get("unassigned", 0))
        return behind + await self._count_unowned() + waiting

    async def _forward(self, locust: Locust) -> None:
        self.observer.on_wait = self._waiting.append
        while True:
            await asyncio.sleep(_BATCH_S)
            self._forward_once(locust)

    def _forward_once(self, locust: Locust) -> None:
        batch = [(wait.name, wait.took_s * 1000) for wait in self._waiting]
        self._waiting.clear()
        locust.add(batch)

    # -- the end --------------------------------------------------------------------------------------------

    async def audit(self, found: Found) -> None:
        """Owners at the end, by a consistent read of the Leases beside the watch; results of the checks."""
        if self.target.shares:
            found.unowned = await self._count_unowned()
        found.unready = self.observer.unready
        found.objects_at_end = len(self.observer)
        testimony = await self.target.testimony()
        found.testimony, self._testified = testimony.since(self._testified), testimony

    async def _read_ring(self) -> Ring:
        return named_ring(await read_rings(self._client, timeout_s=_RING_TIMEOUT_S), self.target.ring)

    async def _count_unowned(self) -> int:
        ring = await self._read_ring()
        held = {shard.name for shard in await read_shards(self._client, ring) if shard.is_held}
        return sum(count for owner, count in self.observer.owners().items() if owner not in held)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[asyncio.Task[None]]:
    """*work* during the block, cancelled at its end. What it raises is raised by `result` of the task."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _first(event: Coroutine[Any, Any, object], watching: asyncio.Task[None]) -> None:
    """Wait for *event*. Raises: what ended *watching* before."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait({waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    if watching.done():
        watching.result()
