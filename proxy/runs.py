"""Runs of the controller, one after the other: what it is asked for and what arrived is handled between two of them.

Between two runs no process of the controller lives and every write of it is answered: whatever it knew is over. Each
run begins with complete lists: neither the proxy nor the controller goes on from what an earlier run believed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.clock import Clock
from kubeio.errors import KubeError
from proxy.gate import Gate
from proxy.informers import TreeInformers
from proxy.object_writer import ObjectWriter
from proxy.trees import Node, Trees

log = structlog.get_logger("proxy")

_WRITES_AT_ONCE: Final = 32
_LOOK_EVERY_S: Final = 0.05
"""Changes are looked at so often at most: many come at once."""
_AGAIN_S: Final = 60.0
"""What could not be given up or made visible is tried again in a restart after so long."""
_SEEN_WITHIN_S: Final = 5.0
"""Time for the events of the proxy's own writes."""
_LONG_RUN_S: Final = 60.0
"""A controller that ends by itself after so long has not crashed at its start."""


class ControllerProcess(Protocol):
    """The controller as a child of this process."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """End it; return when no process of it is left."""

    async def wait(self) -> int:
        """Its exit code, once it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When a restart is due: *settle_s* after the last change that needs one, at most *longest_s* after the first.

    A run lasts ten times as long as the restart before it at least, without its calm. *calm_s*: before a start nothing
    has arrived for so long, but for *longest_calm_s* at most: it spares restarts, and proves nothing.
    """

    settle_s: float = 2.0
    longest_s: float = 10.0
    calm_s: float = 2.0
    longest_calm_s: float = 10.0


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

    async def run(self, stopping: asyncio.Event, *, on_synced: Callable[[], None] = lambda: None) -> None:
        """Run the controller again and again, until *stopping*. *on_synced*: the first lists are complete.

        Raises: KubeError if a first list fails for good; OSError if the controller cannot be started.
        """
        while not stopping.is_set():
            exit_code = await self._run_once(stopping, on_synced)
            self._is_first = False
            if exit_code is not None and not stopping.is_set():
                pause_s = self._backoff.failed(self._clock.now())
                log.warning("controller ended by itself", exit_code=exit_code, again_in_s=round(pause_s, 1))
                await asyncio.sleep(pause_s)

    async def _run_once(self, stopping: asyncio.Event, on_synced: Callable[[], None]) -> int | None:
        """One run; its exit code if it ended by itself."""
        changed = asyncio.Event()
        trees = await self._new_trees()
        informers = self._follow(trees, changed.set)
        began_at = self._clock.now()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(informers.run(), name="informers")
            await informers.wait_synced()
            on_synced()
            calm_s = await self._wait_calm(trees, changed, stopping)
            due = _Restart(trees, await self._hand_over(trees, informers), now=self._clock.now())
            exit_code = None
            if not stopping.is_set():
                self._gate.trees = trees
                await self._process.start()
                self._restart_s = self._clock.now() - began_at - calm_s
                exit_code = await self._wait_due(due, changed, stopping)
                await self._process.stop()
                await self._gate.wait_ended()
                self._gate.trees = None
            following.cancel()
        return exit_code

    async def _wait_due(self, due: _Restart, changed: asyncio.Event, stopping: asyncio.Event) -> int | None:
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

    async def _hand_over(self, trees: Trees, informers: TreeInformers) -> _HandedOver:
        """Give up what is asked for, and make visible the trees that have arrived whole."""
        asked, arrived = _nodes(trees, trees.due.asked), _nodes(trees, trees.due.arrived)
        async with asyncio.TaskGroup() as tasks:
            for node in filter(trees.may_go, asked):
                tasks.create_task(self._give_up(trees, node), name="give up")
        kept = [node for node in arrived if node.drain is None]
        absent = await self._absent(trees, kept, informers)
        shown = await self._show([node for node in kept if node.uid not in absent])
        await self._wait_seen(trees, shown)
        return _HandedOver({node.uid: node.resource_version for node in (*asked, *arrived)}, absent)

    async def _absent(
        self, trees: Trees, nodes: Sequence[Node], informers: TreeInformers
    ) -> dict[str, frozenset[str]]:
        """What is missing of the trees of *nodes*, by the uid of each node of a tree that is not whole.

        Nothing by name if it could not be read.
        """
        if not nodes:
            return {}
        members = {top: trees.tree(top) for top in {trees.top_of(node.uid) for node in nodes}}
        try:
            elsewhere = await informers.elsewhere({each.uid for tree in members.values() for each in tree})
        except KubeError as error:
            log.warning("not read what arrived trees control", error=str(error))
            return {node.uid: frozenset() for node in nodes}
        absent: dict[str, frozenset[str]] = {}
        for tree in members.values():
            missing = frozenset(uid for each in tree for uid in elsewhere.get(each.uid, ()))
            if missing:
                absent |= dict.fromkeys((each.uid for each in tree), missing)
        if absent:
            log.info("trees wait for what they control", objects=sum(node.uid in absent for node in nodes))
        return absent

    async def _wait_seen(self, trees: Trees, shown: Sequence[Node]) -> None:
        """Wait until the informers have seen what was *shown*: the controller's first list is as new as theirs."""
        until = self._clock.now() + _SEEN_WITHIN_S
        while self._clock.now() < until:
            nodes = [trees.get(node.uid) for node in shown]
            if all(node is None or trees.is_visible(node) for node in nodes):
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _give_up(self, trees: Trees, node: Node) -> None:
        async with self._slots:
            try:
                await self._writer.give_up(trees, node.uid)
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


@dataclass(frozen=True, slots=True)
class _HandedOver:
    """What was done before a run. *versions*: of what was handled; *absent*: what its tree waits for; by uid."""

    versions: Mapping[str, str]
    absent: Mapping[str, frozenset[str]]


class _Restart:
    """Whether a restart is due for *trees*. *before*: what was handled before this run."""

    def __init__(self, trees: Trees, before: _HandedOver, *, now: float) -> None:
        self.trees: Final = trees
        self.size = 0
        """Objects that wait for a restart."""
        self._before: Final = before
        self._again_at: Final = now + _AGAIN_S
        self._shown: Final[set[str]] = set()
        self._first_at = self._last_at = 0.0

    def take_new(self) -> list[Node]:
        """Roots that can become visible now; each once."""
        new = [node for node in _nodes(self.trees, self.trees.due.arrived) if self.trees.is_new(node)]
        taken = [node for node in new if node.uid not in self._shown]
        self._shown.update(node.uid for node in taken)
        return taken

    def at(self, now: float, *, pace: Pace) -> float | None:
        """When a restart is due by what waits *now*; None if nothing does."""
        due = self.trees.due
        waiting = [node for node in _nodes(self.trees, due.arrived | due.asked) if self._waits(node, now)]
        if len(waiting) != self.size:
            self._first_at, self._last_at = (self._first_at if self.size else now), now
            self.size = len(waiting)
        if not waiting:
            return self._again_at if due and now < self._again_at else None
        return min(self._first_at + pace.longest_s, self._last_at + pace.settle_s)

    def _waits(self, node: Node, now: float) -> bool:
        """What could not be handled before this run is tried again after a while."""
        if node.drain is not None and not self.trees.may_go(node):
            return False
        is_handled = self._before.versions.get(node.uid) == node.resource_version and now < self._again_at
        absent = self._before.absent.get(node.uid)
        has_come = bool(absent) and all(self.trees.get(uid) is not None for uid in absent or ())
        return (has_come or not is_handled) and not self.trees.is_new(node)


def _size(trees: Trees) -> tuple[int, int]:
    """Objects, and those that are not visible yet."""
    return len(trees), len(trees.due.arrived)


def _nodes(trees: Trees, uids: Iterable[str]) -> list[Node]:
    return [node for uid in list(uids) if (node := trees.get(uid)) is not None]
