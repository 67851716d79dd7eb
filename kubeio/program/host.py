"""Surroundings of a process in one value: clock, randomness, API server, listening sockets, end of the process.

Every process takes these from here and from nowhere else; a simulation passes its own.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

from kubeio.access.cluster import SERVICE_ACCOUNT, Cluster, load_cluster
from kubeio.clock import Clock, SystemClock
from kubeio.program.http_server import READ_METHODS, HttpServer
from kubeio.program.loop_thread import LoopThread
from kubeio.rest.client import Client

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from kubeio.program.http_server import Handler, Limits
    from kubeio.program.loop_thread import Main
    from kubeio.rest.metrics import ClientMetrics


class Host:
    """The surroundings of a process on an ordinary machine."""

    def __init__(self, *, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self.clock: Final = clock or SystemClock()
        self.rng: Final = rng or random.Random()  # noqa: S311 - jitter and names, no secrets

    def cluster(
        self, *, kubeconfig: str | None, context: str | None, service_account: Path = SERVICE_ACCOUNT
    ) -> Cluster:
        """The cluster that flags, environment and files name; `load_cluster` says how. Raises InputError."""
        return load_cluster(kubeconfig=kubeconfig, context=context, service_account=service_account)

    def client(
        self,
        cluster: Cluster,
        *,
        user_agent: str,
        max_connections: int = 64,
        metrics: ClientMetrics | None = None,
    ) -> Client:
        """A client of *cluster* with connections of its own."""
        return Client(
            cluster,
            user_agent=user_agent,
            max_connections=max_connections,
            clock=self.clock,
            metrics=metrics,
        )

    def serve(
        self,
        bind: str,
        port: int,
        handler: Handler,
        *,
        flag: str,
        tls: ssl.SSLContext | None = None,
        methods: tuple[str, ...] = READ_METHODS,
        limits: Limits | None = None,
    ) -> AbstractAsyncContextManager[HttpServer]:
        """A server, as `HttpServer` describes it. Raises, when entered: InputError that names *flag*."""
        return HttpServer(bind, port, handler, flag=flag, tls=tls, methods=methods, limits=limits)

    def loop_thread(self, main: Main, *, name: str, on_error: Callable[[BaseException], None]) -> LoopThread:
        """A thread that runs *main* on an event loop of its own; not started."""
        return LoopThread(main, name=name, on_error=on_error)

    def end_process(self, code: int) -> None:
        """End the process at once: nothing is cleaned up."""
        os._exit(code)
