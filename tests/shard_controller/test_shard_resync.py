"""Resync in virtual time: once per period each, evenly spread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from typing import Any

import pytest

import shard_controller as sc
from kubeio.errors import InputError
from kubeio.models import ObjectKey
from shard_controller.reconcile.resync import Resync
from tests.kubeio.virtual import LoopClock

PERIOD_S = 100.0
pytestmark = pytest.mark.looptime


def keys(count: int) -> list[ObjectKey]:
    return [ObjectKey("ns", f"site-{number}") for number in range(count)]


async def wakes(count: int, *, periods: float, seed: int = 1) -> list[tuple[float, str]]:
    """When which key was woken in so many periods, counted from the start."""
    seen: list[tuple[float, str]] = []
    clock = LoopClock()
    began = clock.now()
    resync = Resync(
        lambda: keys(count),
        lambda key: seen.append((clock.now() - began, key.name)),
        period_s=PERIOD_S,
        clock=clock,
        rng=random.Random(seed),
    )
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(periods * PERIOD_S):
            await resync.run()
    return seen


@pytest.mark.parametrize("count", [1, 2, 7, 100])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_object_is_woken_once_per_period(count: int, seed: int) -> None:
    seen = await wakes(count, periods=5.5, seed=seed)
    for key in keys(count):
        times = [at for at, name in seen if name == key.name]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert times[0] <= 1.2 * PERIOD_S
        assert gaps
        assert all(0.8 * PERIOD_S <= gap <= 1.2 * PERIOD_S for gap in gaps)


async def test_wakes_are_evenly_spread_over_the_period() -> None:
    seen = await wakes(1000, periods=1)
    tenths = Counter(int(at / PERIOD_S * 10) for at, _ in seen)
    assert len(tenths) == 10
    assert all(90 <= count <= 110 for count in tenths.values())


async def test_two_processes_do_not_begin_with_the_same_object() -> None:
    first = await wakes(1000, periods=0.1, seed=1)
    second = await wakes(1000, periods=0.1, seed=2)
    assert {name for _, name in first}.isdisjoint({name for _, name in second})


async def test_without_objects_nothing_is_woken() -> None:
    assert await wakes(0, periods=3) == []


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf")])
def test_a_period_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(InputError, match="resync_s"):
        sc.Controller(sc.Resource("sites/v1", dict), resync_s=seconds)


@pytest.mark.parametrize("bounds", [{"base_s": 0.0}, {"base_s": 2.0, "max_s": 1.0}, {"max_s": float("inf")}])
def test_a_back_off_has_bounds_that_fit(bounds: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"backoff.*max_s at least base_s"):
        sc.Backoff(**bounds)
