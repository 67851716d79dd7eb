"""The real sharder: what it does is published as it happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.patch import MergePatch
from kubeio.program.http_server import HttpServer
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from sharder.live.state import LiveState
from sharder.rings.manager import RingManager
from tests.sharder.io.environment import (
    ONLY_SECRETS,
    RING,
    SITES,
    SharderEnvironment,
    eventually,
    running,
    sharder_context,
    wait_until,
)
from tests.sharder.live.served import Events, listening, published

MAINS = [SITES, *ONLY_SECRETS]


class Published(NamedTuple):
    """A sharder, and the port of its probes."""

    state: LiveState
    server: HttpServer

    def ring(self) -> dict[str, Any]:
        """What is published of the ring; empty if it is not."""
        found: dict[str, Any] = self.state.rings().get(RING, {})
        return found


@asynccontextmanager
async def served(env: SharderEnvironment, *, leads: bool = True) -> AsyncIterator[Published]:
    """A sharder that publishes its rings."""
    user = await env.plane.kubeconfig_for("sharder-1")
    state = LiveState(identity="sharder-1", clock=SystemClock())
    async with Client(load_cluster(kubeconfig=str(user))) as client, published(state) as server:
        rings = RingManager(sharder_context(client, live=state), names=())
        if leads:
            rings.lead()
        async with running(rings.run()):
            yield Published(state, server)


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


async def test_assignments_are_published_as_they_are_written(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    async with served(env) as sharder:
        await env.until_balanced()
        async with listening(sharder.server) as events:
            _, snapshot, _ = await events.next()
            ring = snapshot["rings"][RING]
            assert ring["acting"]
            assert ring["members"]["a"]["state"] == "ready"
            assert ring["members"]["a"]["share"] == 1.0
            await env.site("new")
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


async def test_a_death_is_published_and_what_follows_from_it(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    dying = await env.shard("b")
    await env.sites(12)
    async with served(env) as sharder:
        await env.until_balanced()
        async with listening(sharder.server) as events:
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


async def test_a_handoff_is_published_from_the_request_to_its_end(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    await env.sites(6)
    async with served(env) as sharder:
        await env.until_balanced()
        async with listening(sharder.server) as events:
            await events.next()
            await env.shard("b")
            change = await until(
                events, lambda change: change.get("rings", {}).get(RING, {}).get("handovers")
            )
            row = change["rings"][RING]["handovers"][0]
            assert row["source"] == "a"
            assert abs(row["since"] - time.time()) < 5
            name = row["object"].rpartition("/")[2]
            await eventually(env.drains, lambda drains: name in drains)
            await env.acknowledge(name)
            change = await until(
                events, lambda change: [each for each in moves(change) if each["kind"] == "handedOver"]
            )
            ended = next(each for each in moves(change) if each["kind"] == "handedOver")
            assert (ended["source"], ended["target"]) == ("a", "b")


async def test_a_standby_publishes_members_and_the_leader(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    async with served(env, leads=False) as sharder:
        await wait_until(lambda: "a" in sharder.ring().get("members", {}))
        assert not sharder.ring()["acting"]
        assert sharder.ring()["note"].startswith("this sharder stands by: another one leads")
        assert sharder.ring()["unowned"] is None
        sharder.state.set_leader("sharder-2")
        assert sharder.ring()["note"].startswith("this sharder stands by: sharder-2 leads")
        assert sharder.state.document()["leader"] == "sharder-2"


def assigned(sharder: Published) -> int:
    """Number of assignments in the last hour."""
    return sum(bucket[1] for bucket in sharder.state.history(RING).timeline(at=time.time()))


async def test_the_hour_outlives_a_change_of_the_spec(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    async with served(env) as sharder:
        await env.until_balanced()
        await env.sites(3)
        await wait_until(lambda: assigned(sharder) == 3)
        await env.ring(paused=True)
        await wait_until(lambda: "paused" in sharder.ring()["note"])
        assert assigned(sharder) == 3
        assert ("joined", "a") not in [
            (each.what, each.member) for each in list(sharder.state.history(RING).happenings)[1:]
        ]


async def test_a_ring_that_is_refused_is_published_with_the_reason_and_what_was_known(
    env: SharderEnvironment,
) -> None:
    await env.ring(key="Label")
    async with served(env) as sharder:
        await wait_until(sharder.ring)
        ring = sharder.ring()
        assert not ring["acting"]
        assert "spec.keyLabel" in ring["problem"]
        await env.shard("a")
        await env.ring(key="Object")
        await wait_until(lambda: "a" in sharder.ring().get("members", {}))
        assert sharder.ring()["problem"] == ""
        await env.ring(key="Label")
        await wait_until(lambda: "spec.keyLabel" in sharder.ring()["problem"])
        assert "a" in sharder.ring().get("members", {})


async def test_a_ring_that_is_gone_is_not_published(env: SharderEnvironment) -> None:
    await env.ring()
    async with served(env) as sharder:
        await wait_until(sharder.ring)
        await env.client.delete(CONTROLLER_RINGS, RING)
        await env.client.patch(
            CONTROLLER_RINGS, RING, MergePatch({"metadata": {"finalizers": None}}), type=bytes
        )
        await wait_until(lambda: not sharder.ring())


async def test_main_resources_that_different_members_work_have_circles_of_their_own(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=MAINS)
    await env.shard("a", works="websites.example.com")
    await env.shard("b", works="secrets")
    await env.shard("c", works="secrets")
    async with served(env) as sharder:
        wanted = [(["websites.example.com"], ["a"]), (["secrets"], ["b", "c"])]

        def are_shown() -> bool:
            circles = sharder.ring().get("circles", [])
            return [(each["resources"], each["order"]) for each in circles] == wanted

        await wait_until(are_shown)
