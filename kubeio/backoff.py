"""Back-off after failures: exponential, bounded, jittered, reset after a healthy period. Pure."""

from __future__ import annotations

import random


def exponential_s(failures: int, *, base_s: float, max_s: float) -> float:
    """*base_s* doubled *failures* times, at most *max_s*."""
    return min(base_s * 2.0 ** min(failures, 60), max_s)


def jittered_s(delay_s: float, rng: random.Random, *, jitter: float) -> float:
    """*delay_s* shortened by a random part of at most *jitter* (0 to 1): a bound stays a bound."""
    return delay_s * (1.0 - jitter * rng.random())


class ExponentialBackoff:
    """Delays of one loop: each failure soon after the last one waits twice as long.

    *healthy_s* without a failure (counted from the end of the last delay) starts over at *base_s*.
    """

    def __init__(
        self,
        *,
        base_s: float,
        max_s: float,
        healthy_s: float,
        rng: random.Random,
        jitter: float = 0.5,
    ) -> None:
        self._base_s = base_s
        self._max_s = max_s
        self._healthy_s = healthy_s
        self._rng = rng
        self._jitter = jitter
        self._failures = 0
        self._retried_at = 0.0

    @property
    def failures(self) -> int:
        """Failures in the present run of them."""
        return self._failures

    def failed(self, now: float, *, at_least_s: float = 0.0) -> float:
        """Seconds to wait after a failure at *now*; *at_least_s* is what the server asked for (Retry-After).

        The server's delay is lengthened by the jitter, never shortened: else every refused client comes
        back in the same instant.
        """
        if self._failures and now - self._retried_at >= self._healthy_s:
            self._failures = 0
        own_s = jittered_s(
            exponential_s(self._failures, base_s=self._base_s, max_s=self._max_s),
            self._rng,
            jitter=self._jitter,
        )
        delay_s = at_least_s + own_s if at_least_s > 0 else own_s
        self._failures += 1
        self._retried_at = now + delay_s
        return delay_s

    def reset(self) -> None:
        """Start over at the base delay."""
        self._failures = 0
