"""When each user of the load acts. Pure."""

from __future__ import annotations

import math
import random
from typing import Final

_CATCH_UP_S: Final = 5.0
"""A user that is behind by more gives up the operations that it owes."""


class Pacing:
    """The instants of one user: a Poisson process of *per_s* operations a second.

    So arrive many clients that know nothing of each other. Users at a constant pace, once gathered by a server that
    kept all of them waiting, would act together ever after; evenly spaced operations would queue in a fleet of five
    (an operation's replica is chance) and not in one replica. The same *seed* gives the same instants, stretched to
    the rate: two loads differ by their rates and not by luck.
    """

    def __init__(self, per_s: float, *, seed: str) -> None:
        self._per_s = per_s
        self._random = random.Random(seed)  # noqa: S311 - a load
        self._due = -math.inf

    def wait_s(self, now: float) -> float:
        """Seconds until the next operation is due; 0 if it is overdue: a slow answer costs no operation."""
        if now - self._due > _CATCH_UP_S:
            self._due = now
        self._due += self._random.expovariate(self._per_s)
        return max(0.0, self._due - now)
