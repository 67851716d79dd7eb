"""Surroundings of a simulated process: its machine's clock, its connections, its threads, its end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Self

from devcluster.accounts import Account
from kubeio.access.cluster import SERVICE_ACCOUNT, Cluster
from kubeio.http.endpoint import Endpoint, Trust
from kubeio.program.host import Host
from kubeio.program.http_server import Handler, HttpServer
from kubeio.program.loop_thread import LoopThread, Main
from kubeio.rest.client import Client
from kubeio.shard.exit_timer import ExitTimer
from kubeio.shard.kernel_timer import EXIT_CODE
from kubeio.shard.process_proof import Identity
from shard_controller.process.host import ReplicaHost
from simulation.network import Connection, Network
from simulation.process import Process, ProcessEnded

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.models import Lease
    from kubeio.rest.metrics import ClientMetrics
    from kubeio.shard.heartbeat import HeartbeatThread
    from kubeio.shard.lease_validity import LeaseValidity, Phase
    from kubeio.shard.progress import StallDetector
    from shard_controller.observe.metrics import ControllerMetrics

_CLUSTER: Final = Cluster(
    server="https://simulated",
    namespace="default",
    user="simulated",
    endpoint=Endpoint("https", "simulated", 443, ""),
    trust=Trust(),
    proxy=None,
)


class SimulatedHost(Host):
    """The surroundings of *process*, which calls API servers as *user*."""

    def __init__(self, process: Process, network: Network, *, user: str) -> None:
        super().__init__(clock=process.machine, rng=process.rng)
        self._process: Final = process
        self._network: Final = network
        self._account: Final = Account(user)
        self.served: Final[dict[str, Handler]] = {}
        """What answers at the address of each flag."""

    def cluster(
        self, *, kubeconfig: str | None, context: str | None, service_account: Path = SERVICE_ACCOUNT
    ) -> Cluster:
        return _CLUSTER

    def client(
        self,
        cluster: Cluster,
        *,
        user_agent: str,
        max_connections: int = 64,
        metrics: ClientMetrics | None = None,
    ) -> Client:
        connection = Connection(self._network, self._process, self._account)
        return Client(cluster, user_agent=user_agent, clock=self.clock, transport=connection)

    def serve(
        self, bind: str, port: int, handler: Handler, *, flag: str, **_: object
    ) -> AbstractAsyncContextManager[HttpServer]:
        self.served[flag] = handler
        return _Unserved(bind, port, handler, flag=flag)

    def loop_thread(self, main: Main, *, name: str, on_error: Callable[[BaseException], None]) -> LoopThread:
        return _SimulatedThread(self._process, main, name=name, on_error=on_error)

    def end_process(self, code: int) -> NoReturn:
        self._process.end(code)
        raise ProcessEnded


class SimulatedReplicaHost(SimulatedHost, ReplicaHost):
    """The surroundings of a replica. *is_running* answers for another process of its machine, by pid."""

    def __init__(
        self, process: Process, network: Network, *, user: str, is_running: Callable[[int], bool]
    ) -> None:
        super().__init__(process, network, user=user)
        self.validity: LeaseValidity | None = None
        """Of the Lease that the replica holds; None before it has one."""
        self.shard = ""
        self._controllers: Final[set[str]] = set()
        self._is_running: Final = is_running

    @property
    def controllers(self) -> set[str]:
        return self._controllers

    @property
    def processes(self) -> _Processes:
        return _Processes(self._is_running)

    def identity(self) -> Identity:
        machine = self._process.machine.name
        return Identity(machine, machine, self._process.pid, self._process.pid)

    def pod(self, member: str) -> str:
        return f"default/{member}"

    def mark_children(self, shard: str) -> None:
        self.shard = shard

    def heartbeat(
        self,
        cluster: Cluster,
        lease: Lease,
        *,
        validity: LeaseValidity,
        progress: StallDetector,
        on_phase: Callable[[Phase], None],
    ) -> HeartbeatThread:
        self.validity = validity
        return super().heartbeat(cluster, lease, validity=validity, progress=progress, on_phase=on_phase)

    def exit_timer(self, validity: LeaseValidity) -> ExitTimer:
        return SimulatedTimer(self._process, validity, clock=self.clock)

    def watch_loop(
        self, *, blocked_s: float, describe: Callable[[], object], metrics: ControllerMetrics
    ) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class _Processes:
    """The processes of one machine, without children."""

    def __init__(self, is_running: Callable[[int], bool]) -> None:
        self._is_running = is_running

    def is_running(self, pid: int, started: int) -> bool:
        return self._is_running(pid)

    def has_children_of(self, shard: str) -> bool:
        return False

    def hides_some(self) -> bool:
        return False


class _Unserved(HttpServer):
    """A server that listens nowhere."""

    port = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing listens."""


class _SimulatedThread(LoopThread):
    """Thread of *process* with a loop of its own."""

    def __init__(
        self, process: Process, main: Main, *, name: str, on_error: Callable[[BaseException], None]
    ) -> None:
        super().__init__(main, name=name, on_error=on_error)
        self._process = process
        self._own_loop = process.new_loop(name)
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._has_ended = False

    def start(self) -> None:
        self._own_loop.create_task(self._serve(), name="thread")
        self._own_loop.step()

    def call(self, function: Callable[..., object], *args: object) -> None:
        if not self._has_ended:
            self._process.deliver(self._own_loop, function, *args)

    async def join(self, timeout_s: float) -> None:
        if self._has_ended:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.append((loop, waiter))
        await asyncio.wait({waiter}, timeout=timeout_s)

    async def _serve(self) -> None:
        try:
            await self._main()
        except ProcessEnded:
            raise
        except BaseException as error:
            self._on_error(error)
        self._has_ended = True
        for loop, waiter in self._waiters:
            loop.call_soon_threadsafe(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class SimulatedTimer(ExitTimer):
    """The kernel's timer: it runs whatever the loops do, but not while the process or its machine stands still."""

    def __init__(self, process: Process, validity: LeaseValidity, *, clock: Clock) -> None:
        super().__init__(validity, clock=clock)
        self._process = process
        self._due = math.inf
        """On the machine's monotonic clock; infinite while it is not armed."""
        self._looks_at = math.inf
        """When it is looked next whether it is due, at the latest."""
        self._looks = 0

    def _arm(self, left_s: float) -> None:
        self._due = self._process.machine.monotonic() + left_s
        if self._due < self._looks_at:
            self._look_in(left_s)

    def _disarm(self) -> None:
        self._due = math.inf

    def _look_in(self, delay_s: float) -> None:
        self._looks += 1
        self._looks_at = self._process.machine.monotonic() + delay_s
        self._process.world.after(max(delay_s, 0.001), partial(self._look, self._looks))

    def _look(self, number: int) -> None:
        process = self._process
        if process.has_ended or number != self._looks:
            return
        left_s = self._due - process.machine.monotonic()
        if left_s == math.inf:
            self._looks_at = math.inf
        elif not process.is_running:
            self._look_in(0.25)
        elif left_s > 1e-6:
            self._look_in(left_s)
        else:
            process.end(EXIT_CODE)
