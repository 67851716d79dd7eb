"""Virtual time for tests of kubeio: a `Clock` that follows the event loop and can jump."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import looptime

T = TypeVar("T")


class LoopClock:
    """Loop time, plus what the machine was suspended: `jump` ages the process without running its timers."""

    def __init__(self) -> None:
        self._jumped_s = 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self._jumped_s

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now())

    def jump(self, seconds: float) -> None:
        self._jumped_s += seconds


@contextmanager
def virtual_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on virtual time for tests that hypothesis drives: it needs one per example."""
    loop = looptime.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* to its end on a loop of its own, on virtual time."""
    with virtual_loop() as loop:
        return loop.run_until_complete(main)


def rng(seed: int = 1) -> random.Random:
    return random.Random(seed)
