"""A shard that hangs does not stop the others for longer than one timeout, however much it is to give up (trap 17).

On virtual time, with the pass of `sharder.moving.scan` over a made-up server.
"""

from __future__ import annotations

import asyncio

import pytest

from sharder.moving.budget import DrainBudget
from tests.sharder.pure.test_sharder_scan import OF_A, TWO, Ring, passing

pytestmark = pytest.mark.looptime
TIMEOUT_S = 60
ROOM = 3


async def test_a_shard_that_hangs_is_asked_for_more_only_when_the_others_have_been_asked() -> None:
    ring = Ring(TWO)
    ring.handoffs.budget = DrainBudget(max_in_flight=ROOM, max_per_owner=ROOM, timeout_s=TIMEOUT_S)
    assert TWO.ring is not None
    names = [f"site-{i}" for i in range(40)]
    of_b = [name for name in names if TWO.ring.owner(f"example.com_ns_{name}") == "b"]
    for name in of_b[: 4 * ROOM]:
        ring.server.own(name, "a-1")  # hangs: answers nothing
    ring.server.own(OF_A, "b-1")
    async with passing(ring):
        await asyncio.sleep(TIMEOUT_S - 1)
        assert [to for _, to in ring.server.asked] == ["b-1"] * ROOM
        await asyncio.sleep(10)
        assert (OF_A, "a-1") in ring.server.asked


async def test_a_shard_that_hangs_is_asked_for_one_more_object_per_timeout() -> None:
    ring = Ring(TWO)
    ring.handoffs.budget = DrainBudget(max_in_flight=ROOM, max_per_owner=ROOM, timeout_s=TIMEOUT_S)
    assert TWO.ring is not None
    of_b = [
        name for name in (f"site-{i}" for i in range(60)) if TWO.ring.owner(f"example.com_ns_{name}") == "b"
    ]
    for name in of_b[: 4 * ROOM]:
        ring.server.own(name, "a-1")
    async with passing(ring):
        await asyncio.sleep(5 * TIMEOUT_S)
        assert ROOM < len(ring.server.asked) <= ROOM + 4
