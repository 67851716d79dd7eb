"""The slider's answers are the ring's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping

import pytest

from kubeio.program.http_server import Reply
from ring.movement import movement
from ring.ring import HashRing
from ringleader.dashboard.questions import Questions
from ringleader.dashboard.whatif import in_order, new_names, what_if
from sharder.live.facts import SECTORS, RingCircle, RingCircles, sectors_of
from tests.ringleader.dashboard.scenes import SceneQuestions

THREE = HashRing(["web-0", "web-1", "web-2"])


def test_members_that_join_are_numbered_on() -> None:
    found = what_if(THREE, 5)
    assert (found.members, found.joined, found.left) == (5, ["web-3", "web-4"], [])
    after = THREE.with_member("web-3").with_member("web-4")
    assert found.moved == float(movement(THREE, after).moved)
    assert found.ideal == pytest.approx(0.4)
    assert {name: share for name, _, share in found.rows} == {
        name: float(share) for name, share in after.shares().items()
    }
    assert {name: share for name, share, _ in found.rows if share} == {
        name: float(share) for name, share in THREE.shares().items()
    }


def test_members_that_leave_are_the_last_by_number() -> None:
    ring = HashRing([f"web-{number}" for number in range(12)])
    found = what_if(ring, 9)
    assert found.left == ["web-9", "web-10", "web-11"]
    assert [share for name, _, share in found.rows if name in found.left] == [0, 0, 0]


def test_the_same_number_moves_nothing() -> None:
    assert what_if(THREE, 3).moved == 0


def test_names_without_numbers_get_company() -> None:
    assert new_names(["blue", "green"], 2) == ["new-1", "new-2"]
    assert new_names(["new-1", "x"], 1) == ["new-2"]
    assert new_names(["a-1", "a-3"], 2) == ["a-4", "a-5"]


def test_order_is_that_of_numbers() -> None:
    assert in_order(("b", "a-10", "a-9", "a")) == ["a", "a-9", "a-10", "b"]


def test_sectors_are_the_owners_of_their_middles() -> None:
    names, sectors = THREE.members, sectors_of(THREE)
    assert len(sectors) == SECTORS
    assert names == ("web-0", "web-1", "web-2")
    middle = (2 * 100 + 1) * (2**64 // SECTORS) // 2
    assert names[sectors[100]] == THREE.owner_of_hash(middle)
    for index, name in enumerate(names):
        assert sectors.count(index) / SECTORS == pytest.approx(float(THREE.shares()[name]), abs=0.08)


@pytest.mark.parametrize("ring", [None, HashRing([])])
def test_an_empty_ring_has_no_sectors(ring: HashRing | None) -> None:
    assert RingCircles().of({"websites": ring}) == [RingCircle(["websites"])]


def test_main_resources_that_the_same_members_work_share_a_circle() -> None:
    two, circles = HashRing(["base-0", "base-1"]), RingCircles()
    found = circles.of({"websites": THREE, "databases": two, "caches": two})
    assert [each.resources for each in found] == [["websites"], ["databases", "caches"]]
    assert found[1].order == ["base-0", "base-1"]
    assert found[1].shares == [round(float(share), 6) for share in two.shares().values()]
    assert found[1].ideals == [0.5, 0.5]
    assert circles.of({"websites": THREE, "databases": two, "caches": two}) is found
    assert circles.of({"websites": THREE, "databases": THREE, "caches": two}) is not found


async def test_one_answer_is_computed_at_a_time_although_its_viewer_has_left() -> None:
    at_once = most = 0
    begun, may_end = threading.Event(), threading.Event()

    def hash_rings() -> dict[str, HashRing]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        begun.set()
        may_end.wait(30)
        at_once -= 1
        return {"websites.example.com": HashRing(["web-0", "web-1"])}

    async def rings(name: str) -> Callable[[], Mapping[str, HashRing]]:
        return hash_rings

    page = Questions(SceneQuestions({}).find, rings).pages()["/whatif"]
    left = asyncio.ensure_future(page(["websites", "3"]))
    await asyncio.to_thread(begun.wait, 30)
    left.cancel()
    stays = asyncio.ensure_future(page(["websites", "4"]))
    await asyncio.sleep(0.2)
    may_end.set()
    answer = await stays
    assert isinstance(answer, Reply)
    assert (answer.status, most) == (200, 1)
    with pytest.raises(asyncio.CancelledError):
        await left
