"""Leases in memory that behave: compare-and-swap, latency, lost answers, writes that arrive late, partitions.

`LeaseServer.seen_by(name)` is what one process has of `kubeio.leases.lease.Leases`, with faults of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from kubeio.errors import AlreadyExists, Conflict, KubeError, NotFound, Unreachable
from kubeio.leases.lease import Leases
from kubeio.models import Lease

T = TypeVar("T")
NEVER_S = 1e6


class LeaseServer:
    """What the API server holds."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.version = 0
        self.writes: list[tuple[float, str, Lease]] = []

    def seen_by(self, who: str) -> ConnectedLeases:
        return ConnectedLeases(self, who)

    def get(self, name: str) -> Lease:
        if name not in self.leases:
            raise NotFound("get", status=404)
        return msgspec.convert(msgspec.to_builtins(self.leases[name]), Lease)

    def create(self, lease: Lease, who: str) -> Lease:
        if lease.metadata.name in self.leases:
            raise AlreadyExists("create", status=409)
        return self._store(lease, who)

    def swap(self, lease: Lease, who: str) -> Lease:
        stored = self.leases.get(lease.metadata.name)
        if stored is None or lease.metadata.resource_version != stored.metadata.resource_version:
            raise Conflict("swap", status=409)
        return self._store(lease, who)

    def touch(self, name: str) -> None:
        """Somebody else edits the Lease, not its spec."""
        self._store(self.leases[name], "editor")

    def restore(self, name: str, *, version: int) -> None:
        """The Lease *name* comes back as *version*, as a restored backup has it; versions count from there."""
        self.version = version
        self.leases[name].metadata.resource_version = str(version)

    def _store(self, lease: Lease, who: str) -> Lease:
        self.version += 1
        stored = msgspec.convert(msgspec.to_builtins(lease), Lease)
        stored.metadata.resource_version = str(self.version)
        self.leases[lease.metadata.name] = stored
        self.writes.append((asyncio.get_running_loop().time(), who, stored))
        return self.get(lease.metadata.name)


class ConnectedLeases:
    """One process's way to the server. Requests that were sent take effect even if their sender gave up."""

    namespace = "ringleader-system"

    def __init__(self, server: LeaseServer, who: str) -> None:
        self._server = server
        self._who = who
        self.calls = 0
        # faults
        self.is_cut = False
        self.latency_s = 0.001  # on the way there
        self.answers_get_lost = False
        self.fail_with: KubeError | None = None

    @property
    def leases(self) -> Leases:
        return cast(Leases, self)

    async def get(self, name: str) -> Lease:
        return await self._call(lambda: self._server.get(name))

    async def create(self, lease: Lease) -> Lease:
        return await self._call(lambda: self._server.create(lease, self._who))

    async def swap(self, lease: Lease) -> Lease:
        return await self._call(lambda: self._server.swap(lease, self._who))

    async def _call(self, act: Callable[[], T]) -> T:
        self.calls += 1
        if self.fail_with is not None:
            raise self.fail_with
        if self.is_cut:
            await asyncio.sleep(10)
            raise Unreachable("call", "no answer", maybe_done=True)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        is_lost = self.answers_get_lost

        def arrive() -> None:
            try:
                result = act()
            except KubeError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done() and not is_lost:
                    answer.set_result(result)

        asyncio.get_running_loop().call_later(self.latency_s, arrive)
        return await answer
