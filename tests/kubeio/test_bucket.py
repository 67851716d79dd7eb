"""A token bucket gives its burst at once and its rate from then on."""

from __future__ import annotations

import pytest

from kubeio.bucket import TokenBucket


def taken(bucket: TokenBucket, *, since: float, seconds: float) -> int:
    """Tokens that are taken within *seconds* by a caller that asks every millisecond."""
    return sum(bucket.take(since + ms / 1000) for ms in range(round(seconds * 1000)))


def test_a_burst_is_given_at_once_and_then_the_rate() -> None:
    bucket = TokenBucket(per_s=5, burst=20)
    assert sum(bucket.take(100.0) for _ in range(50)) == 20
    assert taken(bucket, since=100.0, seconds=10.05) == 50


def test_the_burst_fills_up_while_nothing_is_taken() -> None:
    bucket = TokenBucket(per_s=10, burst=3)
    assert sum(bucket.take(0.0) for _ in range(9)) == 3
    assert sum(bucket.take(60.0) for _ in range(9)) == 3


def test_it_says_when_the_next_token_is_there() -> None:
    bucket = TokenBucket(per_s=10, burst=1)
    assert bucket.wait_s(7.0) == 0
    assert bucket.take(7.0)
    assert bucket.wait_s(7.0) == pytest.approx(0.1)
    assert not bucket.take(7.05)
    assert bucket.take(7.0 + bucket.wait_s(7.0) + 1e-9)
