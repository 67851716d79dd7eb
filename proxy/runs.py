"""Runs of the controller, one after the other: what it is asked for and what arrived is handled between two of them.

Between two runs no process of the controller lives and every write of it is answered: whatever it knew is over. Each
run begins with complete lists: neither the proxy nor the controller goes on from what an earlier run believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.clock import Clock
from proxy.gate import Gate
from proxy.handover import Handover
from proxy.informers import TreeInformers
from proxy.restart import Cause, Pace, Restart
from proxy.trees import Trees

log = structlog.get_logger("proxy")

_LOOK_EVERY_S: Final = 0.05
"""Changes are looked at so often at most: many come at once."""
_LONGEST_REST_S: Final = 120.0
"""A run lasts no longer than this for the sake of a long restart: an outage may have met that."""
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
        handover: Handover,
        *,
        new_trees: Callable[[], Awaitable[Trees]],
        follow: Callable[[Trees, Callable[[], None]], TreeInformers],
        pace: Pace,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._process: Final = process
        self._gate: Final = gate
        self._handover: Final = handover
        self._new_trees: Final = new_trees
        self._follow: Final = follow
        self._pace: Final = pace
        self._clock: Final = clock
        self._backoff: Final = ExponentialBackoff(base_s=1.0, max_s=60.0, healthy_s=_LONG_RUN_S, rng=rng)
        self._is_first = True
        self._restart_s = 0.0
        """How long the last restart took, without its calm."""
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
            exit_code, calm_s = None, 0.0
            if await _unless(stopping, informers.wait_synced()):
                on_synced()
                self.why_down = "objects are handed over"
                calm_s = await self._wait_calm(trees, changed, stopping)
            if not stopping.is_set():
                before = await self._handover.between_runs(trees, informers)
                due = Restart(trees, before, now=self._clock.now())
                self._gate.trees = trees
                if await _unless(stopping, self._process.start()):
                    self._restart_s = self._clock.now() - began_at - calm_s
                    self._note_start(on_restart)
                    exit_code = await self._wait_due(due, changed, stopping)
                    self._note_end(exit_code)
                    await self._process.stop()
                await self._gate.wait_ended()
                self._gate.trees = None
            if stopping.is_set() and not over.is_set():
                await self._handover.give_up_until(over, trees, changed)
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
        earliest_at = self._clock.now() + min(10 * self._restart_s, _LONGEST_REST_S)
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(self._process.wait(), name="controller")
            stop = tasks.create_task(stopping.wait(), name="stop")
            showing: set[asyncio.Task[object]] = set()
            try:
                while not ended.done() and not stop.done():
                    now = self._clock.now()
                    if new := due.take_new(now):
                        task = tasks.create_task(self._handover.show(new), name="new objects")
                        showing.add(task)
                        task.add_done_callback(showing.discard)
                    due_at = due.at(now, pace=self._pace)
                    if due_at is not None and now >= max(earliest_at, due_at):
                        log.info("controller restarts", asked=len(due.trees.due.asked), objects=due.size)
                        return None
                    changed.clear()
                    woken = tasks.create_task(changed.wait(), name="changes")
                    times = [] if due_at is None else [max(earliest_at, due_at)]
                    times += [] if due.new_again_at is None else [due.new_again_at]
                    timeout_s = min(times) - now if times else None
                    await asyncio.wait(
                        {ended, stop, woken}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    woken.cancel()
                    await asyncio.sleep(_LOOK_EVERY_S)
                return ended.result() if ended.done() else None
            finally:
                for each in (ended, stop, *showing):  # a write that hangs holds up no end
                    each.cancel()

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


async def _unless(stopping: asyncio.Event, wait: Coroutine[Any, Any, None]) -> bool:
    """Whether *wait* came to its end; *stopping* cancels it. Raises, in a group, what it raises."""
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(wait, name="wait")
        stop = tasks.create_task(stopping.wait(), name="stop")
        await asyncio.wait({waiting, stop}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        stop.cancel()
    return not waiting.cancelled()


def _size(trees: Trees) -> tuple[int, int]:
    """Objects, and those that are not visible yet."""
    return len(trees), len(trees.due.arrived)
