"""Enqueues every object once per period, changed or not, for controllers with `resync_s`.

Owns the schedule only: the work queue puts other keys first, `worker` handles the key.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import Never

from kubeio.clock import Clock
from kubeio.models import ObjectKey

_JITTER = 0.1
"""Part of the period by which each call is late at most."""


class Resync:
    """Calls *enqueue* for each of *keys()* once in *period_s*, evenly spread, beginning at a random one.

    Cost: a list of the keys per period.
    """

    def __init__(
        self,
        keys: Callable[[], list[ObjectKey]],
        enqueue: Callable[[ObjectKey], None],
        *,
        period_s: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._keys = keys
        self._enqueue = enqueue
        self._period_s = period_s
        self._clock = clock
        self._rng = rng
        self._phase = rng.random()

    async def run(self) -> Never:
        """One period after the other, until cancelled."""
        began = self._clock.now()
        while True:
            await self._enqueue_all(began)
            await self._until(began + self._period_s)
            began = max(began + self._period_s, self._clock.now())

    async def _enqueue_all(self, began: float) -> None:
        """Each key at its place in the period, which is its place in the list, shifted by a phase of this process."""
        keys = self._keys()
        count = len(keys)
        gap_s = self._period_s / max(count, 1)
        first = math.ceil(count * (1 - self._phase))
        offset_s = first * gap_s + (self._phase - 1) * self._period_s
        for number in range(count):
            jitter_s = self._rng.uniform(0, min(gap_s, self._period_s * _JITTER))
            await self._until(began + number * gap_s + offset_s + jitter_s)
            self._enqueue(keys[(first + number) % count])

    async def _until(self, moment: float) -> None:
        wait_s = moment - self._clock.now()
        await asyncio.sleep(max(wait_s, 0.0))
