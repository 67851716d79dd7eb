"""The process of one replica: its logs, its client, and its reaction to signals.

`replica` builds the parts that run in it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector

from kubeio.errors import InputError
from kubeio.program.logs import configure_logging, watch_dropped
from kubeio.program.runtime import run as run_process
from kubeio.rest.metrics import ClientMetrics
from shard_controller.api.controller import Controller, Mode
from shard_controller.observe.journal import check_journal
from shard_controller.process.host import ReplicaHost
from shard_controller.process.replica import Replica
from shard_controller.process.settings import Settings
from shard_controller.process.target import RENAME

T = TypeVar("T")


def run(controller: Controller[Any], mode: Mode, settings: Settings) -> int:
    """Run until SIGTERM; the exit code. Raises: InputError if *settings* ask for unknown logs."""
    configure_logging(format=settings.log_format, level=settings.log_level)
    gc.collect()
    gc.freeze()  # what was imported stays, and costs a full collection 20 ms (docs/adr/0010)
    return run_process(serve(controller, mode, settings))


async def serve(
    controller: Controller[Any], mode: Mode, settings: Settings, host: ReplicaHost | None = None
) -> int:
    """Run on the present loop until cancelled; the exit code. Raises: InputError, KubeError."""
    _ = controller.reconciler, settings.probes_address  # bad input before anything starts
    if settings.journal is not None:
        check_journal(settings.journal)
    host = host or ReplicaHost()
    with _named(controller.name, host.controllers):
        return await _serve(controller, mode, settings, host)


@contextmanager
def _named(name: str, running: set[str]) -> Iterator[None]:
    """Two controllers of one name would share metrics, field manager and Lease. Raises: InputError."""
    if name in running:
        raise InputError("name", name, "is the name of a controller that runs in this process", RENAME)
    running.add(name)
    try:
        yield
    finally:
        running.discard(name)


async def _serve(controller: Controller[Any], mode: Mode, settings: Settings, host: ReplicaHost) -> int:
    stopping = asyncio.Event()
    cluster = host.cluster(kubeconfig=settings.kubeconfig, context=settings.context)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    watch_dropped(registry)
    async with host.client(
        cluster, user_agent=f"ringleader/{controller.name}", metrics=ClientMetrics(registry)
    ) as client:
        replica = Replica(
            controller, settings, cluster, client, registry=registry, host=host, stopping=stopping
        )
        return await _stop_on_cancel(replica.work(mode), stopping, replica.can_stop)


async def _stop_on_cancel(
    work: Coroutine[Any, Any, T], stopping: asyncio.Event, can_stop: Callable[[], bool]
) -> T:
    """The result of *work*. The first cancellation asks it to stop; if it cannot, and later, it is cancelled."""
    task = asyncio.create_task(work, name="replica")  # ends before this function does
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():
                raise
            if stopping.is_set() or not can_stop():
                task.cancel()
            stopping.set()
            current = asyncio.current_task()
            if current is not None and not task.cancelling():
                current.uncancel()
