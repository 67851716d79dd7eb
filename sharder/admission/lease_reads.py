"""Evidence for admission: consistent reads of single Leases, each shared by many requests.

A read answers only the requests that came before it began (protocol, 6.3: evidence is begun after the object's
version was known). So at most one read per Lease is under way, and one more is queued for all requests that came
meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from kubeio.errors import KubeError, NotFound

if TYPE_CHECKING:
    from kubeio.models import Lease

log = structlog.get_logger("sharder")


class ReadsLeases(Protocol):
    """`kubeio.leases.lease.Leases`, as it is needed here."""

    async def get(self, name: str) -> Lease: ...


class LeaseReads:
    """Consistent reads of *leases*, shared by those who ask at once. *tasks* carry them."""

    def __init__(self, leases: ReadsLeases, *, tasks: asyncio.TaskGroup) -> None:
        self._leases = leases
        self._tasks = tasks
        self._next: dict[str, asyncio.Future[Lease | None]] = {}
        self._reading: set[str] = set()

    async def get(self, name: str) -> Lease | None:
        """Lease *name* by a read begun after this call; None if there is none, or it could not be read."""
        answer = self._next.get(name)
        if answer is None:
            answer = self._next[name] = asyncio.get_running_loop().create_future()
            if name not in self._reading:
                self._reading.add(name)
                self._tasks.create_task(self._read_on(name), name=f"proof {name}")
        return await asyncio.shield(answer)  # one who gives up does not take it from the others

    async def _read_on(self, name: str) -> None:
        """Read while there are questions that came after the last read had begun."""
        try:
            while (answer := self._next.pop(name, None)) is not None:
                lease = None
                try:
                    lease = await self._read(name)
                finally:
                    answer.set_result(lease)
        finally:
            self._reading.discard(name)

    async def _read(self, name: str) -> Lease | None:
        try:
            return await self._leases.get(name)
        except NotFound:
            return None
        except KubeError as error:
            log.warning("lease could not be read", lease=name, error=str(error))
            return None
