"""A shard that hangs does not stop the others for longer than one timeout, however much it is to give up (trap 17).

On virtual time, with the pass of `sharder.moving.scan` over a made-up server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubeio.errors import Expired
from kubeio.models import ObjectKey, ObjectRef
from kubeio.resource import ApiResource
from kubeio.rest.answers import Page
from sharder.moving import scan
from sharder.moving.budget import DrainBudget
from tests.sharder.pure.test_sharder_scan import OF_A, OF_B, TWO, Ring, passing
from tests.sharder.pure.views import WEBSITES, names_for

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


def hanging(count: int) -> Ring:
    """Shard a-1, which answers nothing, is to give *count* objects up."""
    ring = Ring(TWO)
    ring.handoffs.budget = DrainBudget(max_in_flight=1000, max_per_owner=ROOM, timeout_s=TIMEOUT_S)
    for name in names_for(TWO, "b", count):
        ring.server.own(name, "a-1")
    return ring


async def test_what_a_pass_leaves_waiting_for_a_shard_that_hangs_is_the_next_pass_s() -> None:
    """Misplaced, deselected, left behind: whatever comes up later is found although requests to a-1 still wait."""
    ring = hanging(10 * ROOM)
    async with passing(ring):
        await asyncio.sleep(40)
        ring.server.own(OF_A, "b-1")
        ring.scan.request_pass()
        await asyncio.sleep(600)
        assert (OF_A, "a-1") in ring.server.asked


async def test_more_objects_of_a_shard_that_hangs_than_are_remembered_keep_no_list_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "MAX_WAITING", 2 * ROOM)
    ring = hanging(10 * ROOM)
    ring.server.own(OF_A, "b-1")  # on the last page
    async with passing(ring):
        await asyncio.sleep(600)
        assert (OF_A, "a-1") in ring.server.asked


async def test_a_list_that_expires_is_held_so_briefly_that_it_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next list would end at the same page: continue tokens last five minutes."""
    monkeypatch.setattr(scan, "MAX_WAITING", 2 * ROOM)
    ring = hanging(60 * ROOM)
    ring.server.own(OF_A, "b-1")  # on the last page
    pages = ring.server.pages

    async def expiring(resource: ApiResource, **options: object) -> AsyncIterator[Page]:
        began_at = asyncio.get_running_loop().time()
        async for page in pages(resource, **options):
            yield page
            if asyncio.get_running_loop().time() > began_at + 300:
                raise Expired("GET", status=410, reason="Expired")

    monkeypatch.setattr(ring.server, "pages", expiring)
    async with passing(ring):
        await asyncio.sleep(1000)
        assert (OF_A, "a-1") in ring.server.asked


async def test_passes_that_are_held_by_a_shard_that_hangs_spare_the_server() -> None:
    ring = hanging(4 * ROOM)
    async with passing(ring):
        await asyncio.sleep(3600)
        assert len(ring.server.asked) <= ROOM + 3600 / TIMEOUT_S, "its budget is what it was"
        assert 3600 / 90 <= ring.server.circles <= 3600 / scan.HOLD_S


async def test_passes_over_a_large_ring_are_held_longer() -> None:
    """Its list takes half a minute: ten times that passes before the next one."""
    ring = hanging(20 * ROOM)
    async with passing(ring):
        await asyncio.sleep(3600)
        assert 3600 / 450 <= ring.server.circles <= 3600 / 240


async def test_a_pass_that_is_requested_does_not_wait_for_owners_that_are_slow() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_B, "a-1")
    async with passing(ring):
        await asyncio.sleep(2)
        assert ring.server.asked == [(OF_B, "b-1")]
        ring.server.own(OF_A, "b-1")
        ring.scan.request_pass()
        for number in range(10):  # a handoff begins or ends every second
            ring.handoffs.begin(ObjectRef(WEBSITES.group_resource, ObjectKey("ns", f"slow-{number}")), "c-1")
            await asyncio.sleep(1)
        assert (OF_A, "a-1") in ring.server.asked
