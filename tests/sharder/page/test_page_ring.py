"""The real sharder on the page: what it does is shown as it happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from kubeio.rest.reviews import Reviews
from sharder.page.board import Board
from sharder.page.service import LivePage
from sharder.page.stage import Stage
from sharder.rings.manager import RingManager
from tests.sharder.io.ground import (
    CONFIGMAPS,
    KEYS,
    ONLY_SECRETS,
    RING,
    SITES,
    Ground,
    eventually,
    running,
    sharder_context,
    wait_until,
)
from tests.sharder.page.streams import Events, ask, listening

MAINS = [SITES, *ONLY_SECRETS]


@asynccontextmanager
async def served(ground: Ground, *, leads: bool = True) -> AsyncIterator[LivePage]:
    """A sharder with its page."""
    user, clock = await ground.plane.kubeconfig_for("sharder-1"), SystemClock()
    board = Board(title="sharder-1", clock=clock)
    async with (
        Client(load_cluster(kubeconfig=str(user))) as client,
        LivePage(board, Reviews(client), bind="127.0.0.1", port=0, flag="--page-bind", clock=clock) as page,
    ):
        context = sharder_context(client, stage=Stage(board, client, clock=clock))
        rings = RingManager(context, names=())
        if leads:
            rings.lead()
        async with running(rings.run()), running(page.run()):
            yield page


async def until(events: Events, is_there: Any) -> dict[str, Any]:
    """The first change that has what is looked for."""
    async with asyncio.timeout(15):
        while True:
            change = await events.change()
            if is_there(change):
                return change


def happened(change: dict[str, Any]) -> list[tuple[str, str]]:
    fresh = change.get("fresh", {}).get(RING, {})
    return [(each["what"], each["member"]) for each in fresh.get("happened", [])]


def moves(change: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = change.get("fresh", {}).get(RING, {}).get("moves", [])
    return found


async def test_assignments_are_shown_as_they_are_written(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    async with served(ground) as page:
        await ground.until_balanced()
        async with listening(page) as events:
            _, picture, _ = await events.next()
            ring = picture["rings"][RING]
            assert ring["acting"]
            assert ring["members"]["a"]["state"] == "ready"
            assert ring["members"]["a"]["share"] == 1.0
            await ground.site("new")
            change = await until(events, moves)
            assert moves(change) == [
                {
                    "kind": "assigned",
                    "object": "websites.example.com default/new",
                    "source": "",
                    "target": "a",
                }
            ]
            counts = change["rings"][RING]["bucket"][0][1:]
            assert counts == [1, 0, 0]
            assert change["rings"][RING]["objects"] == 1


async def test_a_death_is_shown_and_what_follows_from_it(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    dying = await ground.shard("b")
    await ground.sites(12)
    async with served(ground) as page:
        await ground.until_balanced()
        async with listening(page) as events:
            await events.next()
            await dying.fall_silent()
            befell: list[tuple[str, str]] = []
            moved: set[tuple[str, str, str]] = set()
            while ("left", "b") not in befell or not moved:
                change = await until(events, lambda change: change.get("fresh"))
                befell += happened(change)
                moved |= {(move["kind"], move["source"], move["target"]) for move in moves(change)}
            assert befell[0] == ("expired", "b")
            assert moved == {("takenOver", "b", "a")}


async def test_a_handoff_is_shown_from_the_request_to_its_end(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(6)
    async with served(ground) as page:
        await ground.until_balanced()
        async with listening(page) as events:
            await events.next()
            await ground.shard("b")
            change = await until(
                events, lambda change: change.get("rings", {}).get(RING, {}).get("handovers")
            )
            row = change["rings"][RING]["handovers"][0]
            assert row["source"] == "a"
            assert abs(row["since"] - time.time()) < 5
            name = row["object"].rpartition("/")[2]
            await eventually(ground.drains, lambda drains: name in drains)
            await ground.acknowledge(name)
            change = await until(
                events, lambda change: [each for each in moves(change) if each["kind"] == "handedOver"]
            )
            ended = next(each for each in moves(change) if each["kind"] == "handedOver")
            assert (ended["source"], ended["target"]) == ("a", "b")


async def test_an_object_is_found_with_its_place_and_its_story(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    site = await ground.site("blog")
    await ground.page(site)
    async with served(ground) as page:
        await ground.until_balanced()
        await eventually(ground.owners, {"blog": "a-00000001"})
        status, found = await ask(page, f"/where/{RING}/websites.example.com/default/blog")
        assert status == 200
        assert (found["ownerMember"], found["desiredMember"], found["isPlaced"]) == ("a", "a", True)
        assert found["key"] == "example.com_default_blog"
        assert found["story"][-1] == "It is where it belongs."
        status, child = await ask(page, f"/where/{RING}/configmaps/default/blog")
        assert (status, child["key"]) == (200, found["key"])


NOT_FOUND = [
    ("websites.example.com/default/none", 404, "no websites.example.com none in namespace default"),
    ("secrets/default/token", 404, "does not distribute secrets"),
    ("websites.example.com/_/blog", 404, "write NAMESPACE/NAME"),
    ("websites.example.com/default/..%2F..%2Fsecrets", 400, "name"),
    ("configmaps/default/alone", 404, "has no controller"),
]


async def test_what_cannot_be_found_is_told(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.make(CONFIGMAPS, "alone")
    async with served(ground) as page:
        await wait_until(lambda: page.board.subject(RING) is not None)
        for path, status, problem in NOT_FOUND:
            found, document = await ask(page, f"/where/{RING}/{path}")
            assert (path, found) == (path, status)
            assert problem in document["problem"]


async def test_a_standby_shows_members_and_says_what_it_is(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    async with served(ground, leads=False) as page:
        await wait_until(lambda: page.board.subject(RING) is not None)
        await wait_until(lambda: "a" in page.board.now()[RING]["members"])
        ring = page.board.now()[RING]
        assert not ring["acting"]
        assert ring["note"].startswith("this sharder stands by")
        assert ring["unowned"] is None


def assigned(page: LivePage) -> int:
    """Number of assignments in the last hour."""
    return sum(bucket[1] for bucket in page.board.history(RING).timeline(at=time.time()))


async def test_the_hour_outlives_a_change_of_the_spec(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    async with served(ground) as page:
        await ground.until_balanced()
        await ground.sites(3)
        await wait_until(lambda: assigned(page) == 3)
        await ground.ring(paused=True)
        await wait_until(lambda: "paused" in page.board.now()[RING]["note"])
        assert assigned(page) == 3
        assert ("joined", "a") not in [
            (each.what, each.member) for each in list(page.board.history(RING).happenings)[1:]
        ]


async def test_a_ring_that_is_refused_is_shown_with_the_reason_and_what_was_known(ground: Ground) -> None:
    await ground.ring(key="Label")
    async with served(ground) as page:
        await wait_until(lambda: page.board.subject(RING) is not None)
        ring = page.board.now()[RING]
        assert not ring["acting"]
        assert "spec.keyLabel" in ring["problem"]
        status, told = await ask(page, f"/where/{RING}/websites.example.com/default/blog")
        assert (status, "spec.keyLabel" in told["problem"]) == (404, True)
        await ground.shard("a")
        await ground.ring(key="Object")
        await wait_until(lambda: "a" in page.board.now()[RING]["members"])
        assert page.board.now()[RING]["problem"] == ""
        await ground.ring(key="Label")
        await wait_until(lambda: "spec.keyLabel" in page.board.now()[RING]["problem"])
        assert "a" in page.board.now()[RING]["members"]


async def test_a_ring_that_is_gone_leaves_the_page(ground: Ground) -> None:
    await ground.ring()
    async with served(ground) as page:
        await wait_until(lambda: page.board.subject(RING) is not None)
        await ground.client.delete(CONTROLLER_RINGS, RING)
        await ground.client.patch(
            CONTROLLER_RINGS, RING, MergePatch({"metadata": {"finalizers": None}}), type=bytes
        )
        await wait_until(lambda: page.board.subject(RING) is None)


async def test_main_resources_that_different_members_work_have_circles_of_their_own(ground: Ground) -> None:
    await ground.ring(resources=MAINS)
    await ground.shard("a", works="websites.example.com")
    await ground.shard("b", works="secrets")
    await ground.shard("c", works="secrets")
    await ground.site("blog", labels={KEYS.shard: "b-00000001"})
    async with served(ground) as page:
        wanted = [(["websites.example.com"], ["a"]), (["secrets"], ["b", "c"])]

        def are_shown() -> bool:
            circles = page.board.now().get(RING, {}).get("circles", [])
            return [(each["resources"], each["order"]) for each in circles] == wanted

        await wait_until(are_shown)
        _, first = await ask(page, f"/whatif/{RING}/2")
        assert first["joined"] == ["new-1"]
        _, second = await ask(page, f"/whatif/{RING}/1/secrets")
        assert second["left"] == ["c"]
        assert (await ask(page, f"/whatif/{RING}/1/pages"))[0] == 404
        _, found = await ask(page, f"/where/{RING}/websites.example.com/default/blog")
        assert found["story"][-1] == (
            "b-00000001 does not watch websites.example.com: the object waits for the end of that shard."
        )
        assert (found["desiredMember"], found["main"], found["isPlaced"]) == (
            "a",
            "websites.example.com",
            False,
        )


async def test_a_kind_that_no_member_works_is_the_story_of_its_objects(ground: Ground) -> None:
    await ground.ring(resources=MAINS)
    await ground.shard("b", works="secrets")
    await ground.site("blog")
    async with served(ground) as page:
        await wait_until(lambda: page.board.now().get(RING, {}).get("circles"))
        _, found = await ask(page, f"/where/{RING}/websites.example.com/default/blog")
        assert found["story"][0] == "No member of the ring works websites.example.com: such objects wait."
        assert found["desiredMember"] == ""
