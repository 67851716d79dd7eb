"""Dispatches admission reviews to the rings' handlers, under a deadline. Each answer to a review allows the object."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from kubeio.program.http_server import Reply
from sharder.admission.review import AdmissionRequest, BadReview, Skipped, Verdict, read_review, write_answer
from sharder.admission.webhook_configuration import assign_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubeio.clock import Clock
    from kubeio.protocol import RingKeys
    from sharder.admission.metrics import AdmissionMetrics

log = structlog.get_logger("sharder")

DEADLINE_S: Final = 0.8
"""Below the second that the API server waits: a late answer is worth nothing to it."""
_JSON: Final = "application/json"


class Decides(Protocol):
    """Decides about creates of one ring."""

    async def verdict(self, asked: AdmissionRequest) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class _Open:
    keys: RingKeys
    handler: Decides


class Dispatcher:
    """Answers for the rings that have a handler open."""

    def __init__(self, *, metrics: AdmissionMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._open: dict[str, _Open] = {}

    @contextmanager
    def open(self, keys: RingKeys, handler: Decides) -> Iterator[None]:
        """Ask *handler* about the ring of *keys* while the block lasts."""
        path = assign_path(keys.ring)
        mine = self._open[path] = _Open(keys, handler)
        try:
            yield
        finally:
            if self._open.get(path) is mine:
                del self._open[path]

    async def answer(self, path: str, body: bytes) -> Reply:
        """The reply to one POST."""
        began = self._clock.now()
        found = self._open.get(path)
        if found is None:
            return Reply(404, b"no such ring is assigned at admission here\n")
        try:
            asked = read_review(body)
        except BadReview as error:
            return Reply(400, f"{error}\n".encode())
        verdict = await self._verdict(found, asked)
        if path in self._open:  # else the ring, and its series, may be gone
            self._metrics.answered(found.keys.ring, verdict, self._clock.now() - began)
        return Reply(200, write_answer(asked, verdict, keys=found.keys), _JSON)

    async def _verdict(self, found: _Open, asked: AdmissionRequest) -> Verdict:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await found.handler.verdict(asked)
        except TimeoutError:
            return Skipped.LATE
        except Exception:
            # whatever is wrong with us, the object is created
            log.exception("admission failed", ring=found.keys.ring)
            return Skipped.FAULT
