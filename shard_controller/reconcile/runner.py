"""Reconcile runner: runs the user's functions for one object at a time, and forgets or requeues its key.

Owns the reconciles in progress: their timeout, interruption and outcome. `worker` decides whether an
object may be reconciled at all.

A reconcile that finishes without awaiting is not tracked: no other task could observe, cancel or time it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import msgspec
import structlog

from kubeio.errors import Conflict, Forbidden, Invalid, KubeError
from kubeio.models import Object
from kubeio.rest.events import EventRecorder, Regarding
from shard_controller.api.context import Context
from shard_controller.api.controller import Controller
from shard_controller.api.session import ReconcileSession
from shard_controller.api.signatures import is_async
from shard_controller.api.sync_context import SyncContext
from shard_controller.declare.errors import (
    Elsewhere,
    LeaseNotHeld,
    PermanentError,
    ReconcileTimeout,
    Refused,
    StatusMissing,
)
from shard_controller.declare.request import Request
from shard_controller.declare.results import Done, RequeueAfter, Result
from shard_controller.objects.caches import Caches, version_of
from shard_controller.observe.eager import rest_of
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.observe.observer import Observer, Observers, Outcome
from shard_controller.observe.watchdog import exit_on_overrun, find_overrun
from shard_controller.reconcile import finalizers
from shard_controller.reconcile.reconcile_queue import ReconcileQueue
from shard_controller.shard.writer import FencedWriter

M = TypeVar("M")

Interruption = Literal["lease", "stop"]
_Ended = tuple[Outcome, Exception | None]
_RESULTS = (Done, RequeueAfter)


class ReconcileRunner(Generic[M]):
    """The reconciles of one controller, with *workers* threads for functions that block."""

    def __init__(
        self,
        controller: Controller[M],
        caches: Caches,
        writer: FencedWriter,
        events: EventRecorder,
        queue: ReconcileQueue,
        *,
        workers: int,
        observers: Observers,
        metrics: ControllerMetrics,
    ) -> None:
        self.controller = controller
        self.workers = workers
        self._caches = caches
        self._writer = writer
        self._events = events
        self._log = structlog.get_logger("shard_controller").bind(controller=controller.name)
        self._queue = queue
        self._observers = observers
        self._began = [each.began for each in observers if type(each).began is not Observer.began]
        self._ended = [each.ended for each in observers if type(each).ended is not Observer.ended]
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"reconcile-{controller.name}")
        functions = (controller.reconciler, *controller.finalizers.values())
        self._blocking = {id(function) for function in functions if not is_async(function)}
        self._running: dict[Request, _Run] = {}
        metrics.watch_running(self._running.__len__)
        metrics.watch_queue(queue.oldest_wait_s)

    def close(self) -> None:
        """Take no more work for threads."""
        self._threads.shutdown(wait=False)

    def interrupt(self, why: Interruption) -> None:
        """Cancel what runs: the Lease is too old, or the process stops."""
        for run in list(self._running.values()):
            run.interrupt(why)

    def check_overruns(self, *, end_process: Callable[[int], None]) -> None:
        """End the process if a reconcile runs on for `timeout_s` after its cancellation. Runs every second."""
        timeout_s = self.controller.timeout_s
        overrun = find_overrun(
            self._running.values(),
            now=asyncio.get_running_loop().time(),
            patience_s=timeout_s,
            on_overrun=self._metrics.overruns.inc,
        )
        if overrun is not None:
            key = next(request.key for request, run in self._running.items() if run is overrun)
            why = f"reconcile of {key} cannot be stopped, timeout_s is {timeout_s:g}"
            exit_on_overrun(why, overrun, end_process=end_process)

    async def reconcile(self, request: Request, current: Object) -> None:
        """Reconcile *request*, ours in the version *current*; its key is busy. Errors of users are not raised."""
        try:
            model = self.controller.resource.decode(current.raw)
        except msgspec.ValidationError as unfit:
            self._give_up_unfit(request, current, unfit)
            return
        session = ReconcileSession(current, self._caches, self._writer, self._events, self._log)
        for began in self._began:
            began(request, current.meta)
        started = time.perf_counter()
        outcome: Outcome = "error"
        error: Exception | None = None
        try:
            outcome, error = await self._attempt(request, session, Context(model, session))
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            if not session.close():
                await session.settled()
            if self._running.pop(request, None) is not None:
                self._queue.end(request)
            at = time.perf_counter()
            for ended in self._ended:
                ended(request, outcome, error, at, at - started)

    def _give_up_unfit(self, request: Request, current: Object, error: msgspec.ValidationError) -> None:
        """No retry until the object changes: it cannot become readable by itself."""
        for observer in self._observers:
            observer.unfit(request, current.meta, error)
        self._events.record(
            Regarding.of(self._caches.primary.resource, current.meta),
            reason="Unfit",
            action="Decode",
            note=str(error),
            type="Warning",
        )
        self._queue.forget(request)
        self._queue.fail_permanently(request, version_of(current.meta))

    def _track(self, request: Request) -> _Run:
        """The reconcile of *request* waits for something: it can be interrupted, and changes count as newer."""
        run = self._running.get(request)
        if run is None:
            run = self._running[request] = _Run(asyncio.current_task())
            self._queue.begin(request)
        return run

    async def _attempt(self, request: Request, session: ReconcileSession, context: Context[M]) -> _Ended:
        """Run the user's function and decide what becomes of the key."""
        try:
            call = self._call(session, context)
            try:
                waits_for = call.send(None)
            except StopIteration as answer:  # as far as it goes without waiting, no clock could stop it
                result: Result = answer.value
            else:
                result = await self._in_time(self._track(request), call, waits_for)
        except TimeoutError as error:
            return self._timed_out(request, error)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return self._retry(request, _awaited_cancelled(error), "error")
        except (Refused, LeaseNotHeld) as error:
            return self._retry(request, error, "lost")
        except (Conflict, Elsewhere) as error:
            return self._retry(request, error, "requeue")
        except PermanentError as error:
            return await self._fail_permanently(request, session, context, error)
        except Exception as error:  # whatever a user's code raises
            return self._retry(request, error, "error")
        self._queue.forget(request)
        if isinstance(result, RequeueAfter):
            self._queue.add_after(request, result.seconds)
            return "requeue", None
        return "done", None

    def _timed_out(self, request: Request, error: TimeoutError) -> _Ended:
        """An interruption, the end of `timeout_s`, or a TimeoutError of the user's code."""
        run = self._running.get(request)
        if run is not None and run.interrupted:
            self._queue.add(request)
            return ("lost" if run.interrupted == "lease" else "cancelled"), None
        if run is not None and run.is_late:
            limit = f"{self.controller.timeout_s:g} s"
            error = ReconcileTimeout(f"not done after timeout_s, {limit}: give its calls shorter timeouts")
        return self._retry(request, error, "error")

    async def _in_time(self, run: _Run, call: Coroutine[Any, Any, Result], waits_for: object) -> Result:
        """The answer of *call*, which waits for something. Raises TimeoutError, and what it raises."""
        scope = asyncio.timeout(self.controller.timeout_s)
        try:
            async with scope:
                run.scope = scope
                try:
                    return await rest_of(call, waits_for)
                finally:
                    run.scope = None
        finally:
            run.is_late = scope.expired()

    async def _call(self, session: ReconcileSession, context: Context[M]) -> Result:
        """Finalizers and reconciler, and the write of what they staged."""
        controller = self.controller
        if controller.finalizers and session.is_deleting:
            await finalizers.run(controller.finalizers, context, session, self._call_function)
            await session.write_staged(context.status)
            return Done()
        if controller.finalizers:
            await finalizers.ensure(controller.finalizers, context, session)
        result = await self._call_function(controller.reconciler, context)
        if not isinstance(result, _RESULTS):
            raise TypeError(
                f"the reconciler returned {result!r}: return sc.Done() or sc.RequeueAfter(seconds=)"
            )
        if not session.is_deleting:
            session.recover()
        if session.has_staged(context.status):
            await session.write_staged(context.status)
        return result

    def _call_function(self, function: Callable[[Any], Any], context: Context[Any]) -> Awaitable[Any]:
        if self._blocking and id(function) in self._blocking:
            return self._call_in_thread(function, context)
        answer: Awaitable[Any] = function(context)
        return answer

    async def _call_in_thread(self, function: Callable[[Any], Any], context: Context[Any]) -> Any:
        """A thread cannot be cancelled: the key stays busy until it ends, and only then the cancellation counts."""
        loop = asyncio.get_running_loop()
        # with its context variables: loggers and spans of the reconcile are the thread's too
        over = threading.Event()
        call = partial(copy_context().run, function, SyncContext(context, loop, over=over))
        future = loop.run_in_executor(self._threads, call)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
                over.set()
                context.log.warning("reconcile in a thread overruns")
            except Exception:
                break  # read from the future below
        if cancelled is not None:
            future.exception()
            raise cancelled
        return future.result()

    def _retry(self, request: Request, error: Exception, outcome: Outcome) -> _Ended:
        self._queue.add_rate_limited(request)
        return outcome, error

    async def _fail_permanently(
        self, request: Request, session: ReconcileSession, context: Context[M], error: PermanentError
    ) -> _Ended:
        """Write what was staged, record an event, and wait for the object to change."""
        self._track(request)
        session.fail_permanently(error)
        try:
            await session.write_staged(context.status)
        except (StatusMissing, Invalid, Forbidden) as unwritten:  # it will not be written next time either
            session.log.warning("status of a permanent error not written", error=str(unwritten))
        except (KubeError, Refused) as unwritten:
            session.log.info("status of a permanent error not written", error=str(unwritten))
            return self._retry(request, unwritten, "lost")
        self._queue.forget(request)
        self._queue.fail_permanently(request, version_of(session.seen))
        return "error", error


def _is_cancelled() -> bool:
    """Whether the present task is to end: otherwise a CancelledError is that of a task which it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _awaited_cancelled(error: asyncio.CancelledError) -> Exception:
    cancelled = RuntimeError("a task that the reconciler waited for was cancelled")
    cancelled.__cause__ = error
    return cancelled


class _Run:
    """One reconcile that waits for something, and how to interrupt it."""

    def __init__(self, in_task: asyncio.Task[object] | None) -> None:
        self.in_task = in_task
        self.scope: asyncio.Timeout | None = None
        self.interrupted: Interruption | None = None
        self.overruns_since: float | None = None
        self.is_counted = False
        self.is_late = False
        """Whether its time was over when it ended."""

    def interrupt(self, why: Interruption) -> None:
        if self.interrupted is None and self.scope is not None and not self.scope.expired():
            self.interrupted = why
            self.scope.reschedule(asyncio.get_running_loop().time())

    @property
    def overruns(self) -> bool:
        return self.scope is not None and self.scope.expired()
