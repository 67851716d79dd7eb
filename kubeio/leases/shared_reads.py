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
    """Reads of one Lease: how many began, when the last one did, the last answer and its number, and who waits."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    begun: int = 0
    began_at: float = -math.inf
    answered: int = 0
    answer: Lease | KubeError = field(init=False)


class SharedLeaseReads:
    """Consistent reads of *leases*; those of one Lease begin *apart_s* seconds after each other at least.

    Questions that come while a read is under way share the next one. Of one Lease one read is under way at a time.
    """

    def __init__(self, leases: ReadsLeases, *, apart_s: float = 0.0) -> None:
        self._leases: Final = leases
        self._apart_s: Final = apart_s
        self._reads: dict[str, _Reads] = {}

    async def get(self, name: str) -> Lease:
        """Lease *name*, by a read begun after this call. Raises what the read raised, for all who share it."""
        if name not in self._reads:
            self._forget_idle()
            self._reads[name] = _Reads()
        reads = self._reads[name]
        reads.waiting += 1
        needed = reads.begun + 1
        try:
            async with reads.lock:
                if reads.answered < needed:
                    await self._keep_apart(reads)
                    reads.begun += 1
                    reads.answer = await self._read(name)
                    reads.answered = reads.begun
        finally:
            reads.waiting -= 1
        if isinstance(reads.answer, KubeError):
            raise reads.answer
        return reads.answer

    def _forget_idle(self) -> None:
        """Forget the names that no caller waits for and whose next read may begin at once."""
        horizon = asyncio.get_running_loop().time() - self._apart_s
        self._reads = {
            name: reads for name, reads in self._reads.items() if reads.waiting or reads.began_at > horizon
        }

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
