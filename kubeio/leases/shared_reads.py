"""Reads of single Leases as answers to questions: a read that began after the question, shared by all who ask.

Evidence has to be younger than what it is for (protocol, 6.3): an answer to a read that was under way when the question
came says nothing.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kubeio.errors import KubeError

if TYPE_CHECKING:
    from kubeio.models import Lease


class ReadsLeases(Protocol):
    """`kubeio.leases.lease.Leases`, as it is needed here."""

    async def get(self, name: str) -> Lease: ...


@dataclass(slots=True)
class _Reads:
    """Reads of one Lease: how many began, when the last one did, and the number of the last that was answered."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    begun: int = 0
    began_at: float = -math.inf
    answered: int = 0


class SharedLeaseReads:
    """Consistent reads of *leases*; those of one Lease begin *apart_s* seconds after each other at least.

    Questions that come while a read is under way share the next one. Of one Lease one read is under way at a time.
    """

    def __init__(self, leases: ReadsLeases, *, apart_s: float = 0.0) -> None:
        self._leases: Final = leases
        self._apart_s: Final = apart_s
        self._reads: dict[str, _Reads] = {}
        self._answers: dict[str, Lease | KubeError] = {}

    async def get(self, name: str) -> Lease:
        """Lease *name*, by a read begun after this call. Raises what the read raised, for all who share it."""
        reads = self._reads.setdefault(name, _Reads())
        needed = reads.begun + 1
        async with reads.lock:
            if reads.answered < needed:
                await self._keep_apart(reads)
                reads.begun += 1
                self._answers[name] = await self._read(name)
                reads.answered = reads.begun
        answer = self._answers[name]
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def _keep_apart(self, reads: _Reads) -> None:
        loop = asyncio.get_running_loop()
        left_s = reads.began_at + self._apart_s - loop.time()
        await asyncio.sleep(max(0.0, left_s))  # even 0: all who ask at once share the read
        reads.began_at = loop.time()

    async def _read(self, name: str) -> Lease | KubeError:
        try:
            return await self._leases.get(name)
        except KubeError as error:
            return error
