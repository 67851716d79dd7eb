"""Takes keys from the queue, asks whether they are ours, and reconciles or hands over.

Owns which reconciles run, how they end, and what happens to the key then. One `Worker` per controller, with as
many consumers as the controller has workers. Knows nothing of processes and Leases: the gate does. Built by `replica`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, Literal, Never, TypeVar, assert_never

import msgspec
import structlog

from kubeio.clock import Clock
from kubeio.errors import Conflict, Forbidden, Invalid, KubeError
from kubeio.models import Object
from kubeio.queues.workqueue import Priority, QueueClosed, WorkQueue
from shard_controller import finalizers
from shard_controller.api import Controller
from shard_controller.cache import Cache, Kind, Task, version_of
from shard_controller.context import Context, Surroundings, SyncContext
from shard_controller.drain import NotAcknowledged
from shard_controller.errors import Elsewhere, LeaseNotHeld, PermanentError, Refused, StatusMissing
from shard_controller.gate import Gate
from shard_controller.guard import Guard
from shard_controller.history import History
from shard_controller.intake import Intake
from shard_controller.journal import Journal, Outcome
from shard_controller.metrics import ControllerMetrics
from shard_controller.overrun import Running, end_process, find_overrun
from shard_controller.ownership import Acknowledge, Drop, Reconcile, Reread, Wait
from shard_controller.results import Done, RequeueAfter, Result
from shard_controller.resync import Resync
from shard_controller.signatures import is_async
from shard_controller.tracing import Tracing
from shard_controller.writes import Writer

log = structlog.get_logger("shard_controller")
M = TypeVar("M")

Interruption = Literal["lease", "stop"]

TURN_S = 0.005
"""Functions that never wait for anything give the loop to others after this long."""
HANDOFFS = 64
"""Objects given up at the same time, beside the reconciles: each waits for two answers of the server."""


class Worker(Generic[M]):
    """The consumers of one queue. `paused` and `stop` come from the same loop."""

    def __init__(
        self,
        controller: Controller[M],
        cache: Cache,
        around: Surroundings,
        guard: Guard,
        *,
        workers: int,
        writer: Writer,
        gate: Gate,
        queue: WorkQueue[Task],
        journal: Journal,
        history: History,
        tracing: Tracing,
        metrics: ControllerMetrics,
        clock: Clock,
        rng: random.Random,
        end_process: Callable[[str, Running], None] = end_process,
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._around = around
        self._guard = guard
        self._writer = writer
        self._gate = gate
        self._queue = queue
        self._journal = journal
        self._history = history
        self._tracing = tracing
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._end_process = end_process
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"reconcile-{controller.name}")
        functions = (controller.reconciler, *controller.finalizers.values())
        self._blocking = {id(function) for function in functions if not is_async(function)}
        self._running: dict[Task, _Run] = {}
        self._handoffs: set[asyncio.Task[None]] = set()
        self.intake = Intake(controller, cache, around.kinds, guard, queue)
        self._gives_way_at = 0.0
        self.handed_over = 0
        """Keys taken from the queue so far: progress."""

    # -- consumers

    async def run(self) -> None:
        """Work until the queue is closed and empty."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._consume(group), name=f"{self._controller.name} worker {number}")
        finally:
            self._threads.shutdown(wait=False)
            self._around.compute.close()

    def interrupt(self, why: Interruption) -> None:
        """Cancel what runs: the Lease is too old, or the process stops."""
        for run in list(self._running.values()):
            run.interrupt(why)

    def beside(self) -> list[tuple[str, Coroutine[Any, Any, Never]]]:
        """What runs beside the consumers as long as the process works, by name; for when the caches are filled."""
        primary, resync_s = self._cache.primary, self._controller.resync_s
        running = [("events", self._around.events.run())]
        if resync_s is not None:
            resync = Resync(
                primary.store.keys,
                lambda key: self._queue.add(Task(primary.name, key), priority=Priority.RESYNC),
                period_s=resync_s,
                is_idle=lambda: len(self._queue) == 0,
                clock=self._clock,
                rng=self._rng,
            )
            running.append(("resync", resync.run()))
        return running

    def check_overruns(self) -> None:
        """End the process if a reconcile has gone on for `timeout_s` after it was told to end. Called every second."""
        timeout_s = self._controller.timeout_s
        overrun = find_overrun(
            self._running.values(),
            now=asyncio.get_running_loop().time(),
            patience_s=timeout_s,
            on_overrun=self._metrics.overruns.inc,
        )
        if overrun is not None:
            key = next(task.key for task, run in self._running.items() if run is overrun)
            self._end_process(f"reconcile of {key} cannot be stopped, timeout_s is {timeout_s:g}", overrun)

    async def _consume(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._gate.wait_open()
            try:
                task = await self._queue.get()
            except QueueClosed:
                return
            if time.monotonic() >= self._gives_way_at:
                await asyncio.sleep(0)
                self._gives_way_at = time.monotonic() + TURN_S
            self.handed_over += 1
            if self._is_asked_for(task) and len(self._handoffs) < HANDOFFS:
                handoff = group.create_task(self._serve(task), name="handoff")
                self._handoffs.add(handoff)
                handoff.add_done_callback(self._handoffs.discard)
            else:
                await self._serve(task)

    def _is_asked_for(self, task: Task) -> bool:
        """Whether the object is to be handed over: two round trips and no work, so no worker waits for it."""
        meta = self._cache.kind(task.resource).meta(task.key)
        return meta is not None and self._guard.is_draining(meta)

    async def _serve(self, task: Task) -> None:
        """Handle *task*, unless the gate has closed meanwhile, and give its key back."""
        try:
            if self._gate.start():
                try:
                    await self._handle(task)
                finally:
                    self._gate.end()
            else:
                self._queue.add(task)
        finally:
            self._queue.done(task)

    async def _handle(self, task: Task) -> None:
        try:
            for child in self.intake.take_drained(task):
                await self._give_up(child)
            await self._look_at(task)
        except (KubeError, NotAcknowledged) as error:
            self._note(task, error)
            # an unfinished child was put back, and waits as long as its root
            log.warning("handoff not finished", object=str(task), error=str(error))
            self._queue.add_rate_limited(task)

    async def _give_up(self, task: Task) -> None:
        """Acknowledge the drain of a controlled object whose root is not being drained."""
        try:
            await self._look_at(task)
        except BaseException:
            self.intake.put_back(task)
            raise

    async def _look_at(self, task: Task) -> None:
        """Decide about one object, and act."""
        kind = self._cache.kind(task.resource)
        meta = kind.meta(task.key)
        decision = self._guard.decide(kind, task.key, meta)
        was_read = isinstance(decision, Reread)
        if was_read:
            found = await self._writer.read(kind, task.key)
            if found is None:
                self._queue.forget(task)
                return
            meta = found.meta
            decision = self._guard.decide_read(kind, meta)
        match decision:
            case Drop(reason=reason):
                self._drop(task, reason)
            case Wait():
                self._queue.add(self.intake.put_back(task))
            case Acknowledge(handoff=handoff) if meta is not None:
                await self._guard.hand_over(kind, meta, handoff)
                self._history.recovered(task)
                self._queue.forget(task)
            case Reconcile(state=state) if was_read:
                self.intake.await_news(task, state.version)  # newer than the cache: its event is on the way
            case Reconcile():
                if kind is self._cache.primary and not self.intake.has_given_up(task):
                    await self._reconcile(task, kind)
            case _:
                raise AssertionError(f"{task}: {decision} of {meta}")

    def _drop(self, task: Task, reason: str) -> None:
        kind = self._cache.kind(task.resource)
        if reason == "absent":
            self._guard.left(kind, task.key)
        else:
            self._metrics.foreign.inc()
            if reason == "superseded":
                self.intake.await_news(task, kind.floors.floor(task.key))
        self._history.recovered(task)
        self._queue.forget(task)

    # -- one reconcile

    async def _reconcile(self, task: Task, kind: Kind) -> None:
        current = kind.get(task.key)
        if current is None:
            return
        bound = log.bind(controller=self._controller.name, object=str(task.key))
        try:
            model = self._controller.resource.decode(current.raw)
        except msgspec.ValidationError as error:
            # no retry until the object changes: it cannot become readable by itself
            self._metrics.results["error"].inc()
            self._metrics.errors.inc()
            self._metrics.terminal.inc()
            bound.error(
                "object does not fit the model",
                error=str(error),  # the field and its type; never the value: it may be a Secret's
                version=current.meta.resource_version,
                remedy="correct the object, or give the model's field a default",
            )
            self._note(task, error)
            self._queue.forget(task)
            self.intake.give_up(task, version_of(current.meta))
            return
        context = Context(model, current, self._around, bound)
        await self._run(task, kind, current, context, bound)

    async def _run(
        self,
        task: Task,
        kind: Kind,
        current: Object,
        context: Context[M],
        bound: structlog.stdlib.BoundLogger,
    ) -> None:
        run = self._running[task] = _Run()
        self.intake.begins(task)
        self._journal.begin(kind.name, current.meta)
        traced = self._tracing.reconcile(self._controller.name, kind.name, current.meta)
        self._metrics.active.inc()
        began = time.perf_counter()
        outcome: Outcome = "error"
        try:
            outcome = await self._attempt(task, context, run, bound)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            await context.settled()
            self._running.pop(task)
            self.intake.ends(task)
            self._metrics.active.dec()
            ended_at = time.perf_counter()
            took_s = ended_at - began
            self._metrics.time.observe(took_s)
            self._journal.end(kind.name, current.meta, outcome)
            self._history.ended(task, outcome, at=ended_at, took_s=took_s)
            traced.end(outcome, run.error)
            bound.debug("reconciled", outcome=outcome, took_s=round(took_s, 4))

    async def _attempt(
        self, task: Task, context: Context[M], run: _Run, bound: structlog.stdlib.BoundLogger
    ) -> Outcome:
        """Run the user's function and decide what becomes of the key."""
        try:
            async with asyncio.timeout(self._controller.timeout_s) as scope:
                run.scope = scope
                try:
                    result = await self._call(context)
                    if not context.is_deleting:
                        context.conditions.recover()
                    await context.write_staged()
                finally:
                    run.scope = None
        except TimeoutError as error:
            if run.interrupted:
                self._queue.add(task)
                return "lost" if run.interrupted == "lease" else "cancelled"
            if scope.expired():
                self._metrics.timeouts.inc()
                told = f"not done after timeout_s, {self._controller.timeout_s:g} s: give its calls shorter timeouts"
                return self._failed(task, TimeoutError(told), bound)
            return self._failed(task, error, bound)
        except (Refused, LeaseNotHeld) as error:
            bound.info("ownership in doubt", error=str(error))
            return self._again(task, error, "lost")
        except Conflict as error:
            bound.info("somebody else wrote first", error=str(error))
            return self._again(task, error, "requeue")
        except Elsewhere as error:
            bound.info("controlled object is elsewhere", error=str(error))
            return self._again(task, error, "requeue")
        except PermanentError as error:
            return await self._give_in(task, context, error, bound)
        except Exception as error:  # whatever a user's code raises
            return self._failed(task, error, bound)
        return self._succeeded(task, result)

    async def _call(self, context: Context[M]) -> Result:
        if context.is_deleting and self._controller.finalizers:
            await finalizers.run(self._controller.finalizers, context, self._call_function)
            return Done()
        await finalizers.ensure(self._controller.finalizers, context)
        result = await self._call_function(self._controller.reconciler, context)
        if not isinstance(result, Done | RequeueAfter):
            raise TypeError(
                f"the reconciler returned {result!r}: return sc.Done() or sc.RequeueAfter(seconds=)"
            )
        return result

    async def _call_function(self, function: Callable[[Any], Any], context: Context[Any]) -> Any:
        if id(function) in self._blocking:
            return await self._call_in_thread(function, context)
        return await function(context)

    async def _call_in_thread(self, function: Callable[[Any], Any], context: Context[Any]) -> Any:
        """A thread cannot be cancelled: the key stays busy until it ends, and only then the cancellation counts."""
        loop = asyncio.get_running_loop()
        # with its context variables: loggers and spans of the reconcile are the thread's too
        blocking = SyncContext(context, loop)
        call = partial(copy_context().run, function, blocking)
        future = loop.run_in_executor(self._threads, call)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
                blocking.end()
                log.warning("reconcile in a thread overruns", object=context.name)
            except Exception:
                break  # read from the future below
        if cancelled is not None:
            future.exception()
            raise cancelled
        return future.result()

    def _note(self, task: Task, error: Exception) -> None:
        """Remember why *task* did not go well, for those who look into this process."""
        self._history.failed(task, error)
        run = self._running.get(task)
        if run is not None:
            run.error = error

    def _succeeded(self, task: Task, result: Result) -> Outcome:
        self._history.recovered(task)
        self._queue.forget(task)
        match result:
            case Done():
                self._metrics.results["success"].inc()
                return "done"
            case RequeueAfter(seconds=seconds):
                self._metrics.results["requeue_after"].inc()
                self._queue.add_after(task, seconds)
                return "requeue"
        assert_never(result)

    def _again(self, task: Task, error: Exception, outcome: Outcome) -> Outcome:
        self._note(task, error)
        self._metrics.results["requeue"].inc()
        self._queue.add_rate_limited(task)
        return outcome

    def _failed(self, task: Task, error: Exception, bound: structlog.stdlib.BoundLogger) -> Outcome:
        self._note(task, error)
        self._metrics.results["error"].inc()
        self._metrics.errors.inc()
        bound.error("reconcile failed", error=f"{type(error).__name__}: {error}", exc_info=_trace(error))
        self._queue.add_rate_limited(task)
        return "error"

    async def _give_in(
        self, task: Task, context: Context[M], error: PermanentError, bound: structlog.stdlib.BoundLogger
    ) -> Outcome:
        """A permanent error: write what was staged, tell people, and wait for the object to change."""
        context.give_in(error)
        try:
            await context.write_staged()
        except (StatusMissing, Invalid, Forbidden) as unwritten:  # it will not be written next time either
            bound.warning("status of a permanent error not written", error=str(unwritten))
        except (KubeError, Refused) as unwritten:
            bound.info("status of a permanent error not written", error=str(unwritten))
            return self._again(task, unwritten, "lost")
        self._metrics.results["error"].inc()
        self._metrics.errors.inc()
        self._metrics.terminal.inc()
        self._note(task, error)
        bound.error("reconcile failed for good", error=str(error), reason=error.reason)
        self._queue.forget(task)
        self.intake.give_up(task, context.version)
        return "error"


class _Run:
    """One reconcile under way, and how to interrupt it."""

    __slots__ = ("_task", "error", "interrupted", "is_counted", "overruns_since", "scope")

    def __init__(self) -> None:
        self.scope: asyncio.Timeout | None = None
        self.interrupted: Interruption | None = None
        self.overruns_since: float | None = None
        self.is_counted = False
        self._task = asyncio.current_task()
        self.error: Exception | None = None

    def interrupt(self, why: Interruption) -> None:
        if self.interrupted is None and self.scope is not None and not self.scope.expired():
            self.interrupted = why
            self.scope.reschedule(asyncio.get_running_loop().time())

    def is_told_to_end(self) -> bool:
        return self.scope is not None and self.scope.expired()

    def is_in_code(self) -> bool:
        return self.scope is not None

    def task(self) -> asyncio.Task[object] | None:
        return self._task


def _trace(error: BaseException) -> BaseException | None:
    """What to show of *error*: the stack for errors of users' code, nothing for the server's refusals."""
    return None if isinstance(error, KubeError | TimeoutError) else error
