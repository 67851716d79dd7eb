"""Candidates of an election over Leases in memory: processes, clocks and links that fail."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

from kubeio.leases.election import Leadership, LeadershipLost, leadership
from tests.kubeio.leases.fake_leases import ConnectedLeases, LeaseServer
from tests.kubeio.virtual import LoopClock, rng

Scope = AbstractAsyncContextManager[Leadership]
NAME = "sharder"


class Process:
    """A replica that leads whenever it can; `terms` are the times between which its body ran."""

    def __init__(self, server: LeaseServer, identity: str, leaders: Leaders) -> None:
        self.identity = identity
        self.link: ConnectedLeases = server.seen_by(identity)
        self.clock = LoopClock()
        self.terms: list[tuple[float, float]] = []
        self.losses: list[str] = []
        self.holders: list[str] = []
        self.held: Leadership | None = None
        self._leaders = leaders
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Lead, lose, try again, as a process that is started again."""
        life = 0
        while True:
            life += 1
            try:
                await self._lead(life)
            except LeadershipLost as lost:
                self.losses.append(lost.reason)
                await asyncio.sleep(0.1)

    async def _lead(self, life: int) -> None:
        async with leadership(
            self.link.leases,
            name=NAME,
            identity=self.identity,
            clock=self.clock,
            rng=rng(hash((self.identity, life)) & 0xFFFF),
            on_waiting=self.holders.append,
        ) as held:
            self.held = held
            began = asyncio.get_running_loop().time()
            self._leaders.enter(self.identity)
            try:
                await asyncio.Event().wait()
            finally:
                self._leaders.leave(self.identity)
                self.terms.append((began, asyncio.get_running_loop().time()))
                self.held = None


class Leaders:
    """Who leads now, and whether ever two did."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.overlaps: list[list[str]] = []

    def enter(self, identity: str) -> None:
        self.names.append(identity)
        if len(self.names) > 1:
            self.overlaps.append(list(self.names))

    def leave(self, identity: str) -> None:
        self.names.remove(identity)


class SkewedClock(LoopClock):
    """The clock of a machine whose wall clock is *behind_s* behind that of the others."""

    def __init__(self, behind_s: float) -> None:
        super().__init__()
        self._behind_s = behind_s

    def wall(self) -> datetime:
        return super().wall() - timedelta(seconds=self._behind_s)


class Election:
    """Several processes and one server."""

    def __init__(self, count: int) -> None:
        self.server = LeaseServer()
        self.leaders = Leaders()
        self.processes = [Process(self.server, f"p{number}", self.leaders) for number in range(count)]

    async def __aenter__(self) -> Election:
        for process in self.processes:
            process.task = asyncio.create_task(process.run(), name=process.identity)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            assert process.task is not None
            process.task.cancel()
        await asyncio.wait([process.task for process in self.processes if process.task])
        for process in self.processes:
            assert process.task is not None
            assert process.task.cancelled(), process.task.exception()

    def leader(self) -> Process:
        [identity] = self.leaders.names
        return next(process for process in self.processes if process.identity == identity)


def alone(server: LeaseServer, identity: str = "me", **options: float) -> Scope:
    """A scope for a test that leads by itself."""
    return through(server.seen_by(identity), identity, **options)


def through(link: ConnectedLeases, identity: str = "me", **options: Any) -> Scope:
    return leadership(link.leases, name=NAME, identity=identity, clock=LoopClock(), rng=rng(), **options)
