"""Two days of load: objects and changes per second, a day's curve and bursts. Pure; the seed decides all."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
LENGTH_S: Final = 2 * DAY_S
BURSTS: Final = 24
_BURST_S: Final = (120.0, 1500.0)
_BURST_PER_S: Final = (80.0, 150.0, 300.0)


@dataclass(frozen=True, slots=True)
class Burst:
    start_s: float
    end_s: float
    per_s: float


@dataclass(frozen=True, slots=True)
class Workload:
    """Objects, and reconciles that they ask for, at each moment."""

    phase: float
    bursts: tuple[Burst, ...]

    def objects(self, now_s: float) -> float:
        """80,000 at night, 120,000 at noon."""
        return 100_000 - 20_000 * math.cos(2 * math.pi * now_s / DAY_S)

    def per_s(self, now_s: float) -> float:
        """Changes per second: 70 at night, 430 at noon, 8 % ripple, and bursts."""
        day = 250 - 180 * math.cos(2 * math.pi * now_s / DAY_S)
        ripple = 1 + 0.08 * math.sin(now_s / 37 + self.phase)
        return day * ripple + sum(
            burst.per_s for burst in self.bursts if burst.start_s <= now_s < burst.end_s
        )


def workload(seed: int) -> Workload:
    """The load of *seed*."""
    rng = random.Random(seed)  # noqa: S311
    starts = [rng.uniform(0, LENGTH_S) for _ in range(BURSTS)]
    bursts = (Burst(at_s, at_s + rng.uniform(*_BURST_S), rng.choice(_BURST_PER_S)) for at_s in starts)
    return Workload(rng.uniform(0, 2 * math.pi), tuple(sorted(bursts, key=lambda burst: burst.start_s)))
