"""Runs of the controller, one after the other: what it is asked for and what arrived is handled between two of them.

Between two runs no process of the controller lives and every write of it is answered: whatever it knew is over. Each
run begins with complete lists: neither the proxy nor the controller goes on from what an earlier run believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.clock import Clock
from kubeio.errors import KubeError
from proxy.gate import Gate
from proxy.informers import TreeInformers
from proxy.object_writer import ObjectWriter
from proxy.restart import Cause, HandedOver, Pace, Restart, nodes_of
from proxy.trees import Node, Trees
from proxy.whole_trees import find_absent

log = structlog.get_logger("proxy")

_WRITES_AT_ONCE: Final = 32
_LOOK_EVERY_S: Final = 0.05
"""Changes are looked at so often at most: many come at once."""
_SEEN_WITHIN_S: Final = 5.0
"""Time for the events of the proxy's own writes."""
_LEAVING_AGAIN_S: Final = 1.0
"""What a leaving shard could not give up is tried again after so long: no controller runs that a restart would end."""
_LONG_RUN_S: Final = 60.0
"""A controller that ends by itself after so long has not crashed at its start."""


class ControllerProcess(Protocol):
    """The controller as a child of this process."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """End it; return when no process of it is left."""

    async def wait(self) -> int:
        """Its exit code, once it has ended."""


class Runs:
    """Keeps *process* running. Each run has *new_trees*, and *follow* gives the informers that fill them.

    *follow* gets the trees, and a function to be called after each change.
    """

    def __init__(
        self,
        process: ControllerProcess,
        gate: Gate,
        writer: ObjectWriter,
        *,
        new_trees: Callable[[], Awaitable[Trees]],
        follow: Callable[[Trees, Callable[[], None]], TreeInformers],
        pace: Pace,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._process: Final = process
        self._gate: Final = gate
        self._writer: Final = writer
        self._new_trees: Final = new_trees
        self._follow: Final = follow
        self._pace: Final = pace
        self._clock: Final = clock
        self._backoff: Final = ExponentialBackoff(base_s=1.0, max_s=60.0, healthy_s=_LONG_RUN_S, rng=rng)
        self._slots: Final = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._is_first = True
        self._restart_s = 0.0
        """How long the last restart took, without its calm."""
        self._torn: Final[set[str]] = set()
        """Visible roots whose trees may have been given up in part, because the API server failed meanwhile."""
        self._down: tuple[Cause, float] | None = None
        """Why the controller is down, and since when; None before its first start."""
        self.why_down: str | None = "objects are not listed yet"
        """Why the controller does not run now; None: it does."""

    async def run(
        self,
        stopping: asyncio.Event,
        *,
        over: asyncio.Event | None = None,
        on_synced: Callable[[], None] = lambda: None,
        on_restart: Callable[[Cause, float], None] = lambda cause, took_s: None,
    ) -> None:
        """Run the controller again and again, until *stopping*. *on_synced*: the first lists are complete.

        Between *stopping* and *over*, what is asked for is given up at once; without *over* it is not. *on_restart*
        gets the seconds without a controller.

        Raises: KubeError if a first list fails for good; OSError if the controller cannot be started.
        """
        over = over or stopping
        while not (stopping.is_set() and over.is_set()):
            exit_code = await self._run_once(stopping, over, on_synced, on_restart)
            self._is_first = False
            if exit_code is not None and not stopping.is_set():
                pause_s = self._backoff.failed(self._clock.now())
                log.warning("controller ended by itself", exit_code=exit_code, again_in_s=round(pause_s, 1))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), pause_s)

    async def _run_once(
        self,
        stopping: asyncio.Event,
        over: asyncio.Event,
        on_synced: Callable[[], None],
        on_restart: Callable[[Cause, float], None],
    ) -> int | None:
        """One run; its exit code if it ended by itself."""
        changed = asyncio.Event()
        trees = await self._new_trees()
        gc.collect()  # the trees of the run before are in cycles, and nothing else would ever collect them
        informers = self._follow(trees, changed.set)
        began_at = self._clock.now()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(informers.run(), name="informers")
            await informers.wait_synced()
            on_synced()
            self.why_down = "objects are handed over"
            calm_s = await self._wait_calm(trees, changed, stopping)
            exit_code = None
            if not stopping.is_set():
                due = Restart(trees, await self._hand_over(trees, informers), now=self._clock.now())
                self._gate.trees = trees
                await self._process.start()
                self._restart_s = self._clock.now() - began_at - calm_s
                self._note_start(on_restart)
                exit_code = await self._wait_due(due, changed, stopping)
                self._note_end(exit_code)
                await self._process.stop()
                await self._gate.wait_ended()
                self._gate.trees = None
            if stopping.is_set() and not over.is_set():
                await self._give_up_until(over, trees, changed)
            following.cancel()
        return exit_code

    def _note_start(self, on_restart: Callable[[Cause, float], None]) -> None:
        if self._down is not None:
            cause, since = self._down
            on_restart(cause, self._clock.now() - since)
        self.why_down = None

    def _note_end(self, exit_code: int | None) -> None:
        self._down = (Cause.HANDOFF if exit_code is None else Cause.EXIT, self._clock.now())
        self.why_down = (
            "it restarts for a handoff" if exit_code is None else f"it ended by itself with {exit_code}"
        )

    async def _wait_due(self, due: Restart, changed: asyncio.Event, stopping: asyncio.Event) -> int | None:
        """Make new roots visible, until the controller ends by itself (its exit code) or a restart is due (None)."""
        earliest_at = self._clock.now() + 10 * self._restart_s
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(self._process.wait(), name="controller")
            stop = tasks.create_task(stopping.wait(), name="stop")
            try:
                while not ended.done() and not stop.done():
                    if new := due.take_new():
                        tasks.create_task(self._show(new), name="new objects")
                    now = self._clock.now()
                    due_at = due.at(now, pace=self._pace)
                    if due_at is not None and now >= max(earliest_at, due_at):
                        log.info("controller restarts", asked=len(due.trees.due.asked), objects=due.size)
                        return None
                    changed.clear()
                    woken = tasks.create_task(changed.wait(), name="changes")
                    timeout_s = None if due_at is None else max(earliest_at, due_at) - now
                    await asyncio.wait(
                        {ended, stop, woken}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    woken.cancel()
                    await asyncio.sleep(_LOOK_EVERY_S)
                return ended.result() if ended.done() else None
            finally:
                ended.cancel()
                stop.cancel()

    async def _wait_calm(self, trees: Trees, changed: asyncio.Event, stopping: asyncio.Event) -> float:
        """While trees arrive, wait until no more do: they take one restart. How long that was, in seconds.

        A shard that has just begun gets its first objects now.
        """
        began_at = quiet_since = self._clock.now()
        seen = _size(trees)
        while (trees.due.arrived or self._is_first) and not stopping.is_set():
            until = min(quiet_since + self._pace.calm_s, began_at + self._pace.longest_calm_s)
            changed.clear()
            try:
                async with asyncio.timeout(until - self._clock.now()):
                    await changed.wait()
            except TimeoutError:
                break
            if seen != (seen := _size(trees)):  # objects that change do not count
                quiet_since = self._clock.now()
        return self._clock.now() - began_at

    async def _hand_over(self, trees: Trees, informers: TreeInformers) -> HandedOver:
        """Give up what is asked for, and make visible the trees that have arrived whole."""
        asked, arrived = nodes_of(trees, trees.due.asked), nodes_of(trees, trees.due.arrived)
        await self._give_up_all(trees, list(filter(trees.may_go, asked)))
        kept = [node for node in arrived if node.drain is None]
        torn = nodes_of(trees, self._torn)
        absent = await find_absent(trees, [*kept, *torn], informers)
        for node in torn:
            if node.uid in absent:
                trees.close(node.uid)
        self._torn.intersection_update(absent)
        shown = await self._show([node for node in kept if node.uid not in absent])
        await self._wait_seen(trees, shown)
        return HandedOver({node.uid: node.resource_version for node in (*asked, *arrived)}, absent)

    async def _wait_seen(self, trees: Trees, shown: Sequence[Node]) -> None:
        """Wait until the informers have seen what was *shown*: the controller's first list is as new as theirs."""
        until = self._clock.now() + _SEEN_WITHIN_S
        while self._clock.now() < until:
            nodes = [trees.get(node.uid) for node in shown]
            if all(node is None or trees.is_visible(node) for node in nodes):
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _give_up_until(self, over: asyncio.Event, trees: Trees, changed: asyncio.Event) -> None:
        """Give up what is asked for as it is asked for, until *over*; what failed is tried again after a while."""
        handled: dict[str, str] = {}
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(over.wait(), name="end")
            while not over.is_set():
                changed.clear()
                asked = [
                    node
                    for node in nodes_of(trees, trees.due.asked)
                    if handled.get(node.uid) != node.resource_version
                ]
                await self._give_up_all(trees, asked)
                handled |= {node.uid: node.resource_version for node in asked}
                woken = tasks.create_task(changed.wait(), name="changes")
                done, _ = await asyncio.wait(
                    {ended, woken}, timeout=_LEAVING_AGAIN_S, return_when=asyncio.FIRST_COMPLETED
                )
                woken.cancel()
                if not done:
                    handled.clear()
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _give_up_all(self, trees: Trees, nodes: Sequence[Node]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for node in nodes:
                tasks.create_task(self._give_up(trees, node), name="give up")

    async def _give_up(self, trees: Trees, node: Node) -> None:
        async with self._slots:
            self._torn.add(node.uid)
            try:
                if await self._writer.give_up(trees, node.uid):
                    self._torn.discard(node.uid)
            except KubeError as error:
                log.warning("object not given up", object=f"{node.resource} {node.key}", error=str(error))

    async def _show(self, nodes: Sequence[Node]) -> list[Node]:
        """Make *nodes* visible; those that are now. What fails is hidden until the next run."""
        shown: list[Node] = []

        async def show(node: Node) -> None:
            async with self._slots:
                try:
                    if await self._writer.show(node):
                        shown.append(node)
                except KubeError as error:
                    log.warning(
                        "object not made visible", object=f"{node.resource} {node.key}", error=str(error)
                    )

        async with asyncio.TaskGroup() as tasks:
            for node in nodes:
                tasks.create_task(show(node), name="show")
        return shown


def _size(trees: Trees) -> tuple[int, int]:
    """Objects, and those that are not visible yet."""
    return len(trees), len(trees.due.arrived)
