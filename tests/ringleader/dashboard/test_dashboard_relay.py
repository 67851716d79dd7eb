"""Viewers of the dashboard while sharders come, go, fall silent and refuse."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NoReturn

import pytest

from kubeio.clock import ManualClock, SystemClock
from kubeio.errors import InputError, KubeError
from ringleader.dashboard import endpoint as endpoints
from ringleader.dashboard.connection import LeaderConnection
from ringleader.dashboard.endpoint import SharderEndpoint
from ringleader.dashboard.leader import Way, at_url
from sharder.live import stream
from tests.ringleader.dashboard.scenes import NO_QUESTIONS, Leaders, dashboard_over, shown
from tests.sharder.io.environment import running
from tests.sharder.live.scenes import Scene, state_of
from tests.sharder.live.served import Events, get, listening, published


def following(dashboard: Any) -> Any:
    return listening(dashboard, "/events")


async def members(events: Events) -> set[str]:
    """Members of the next snapshot."""
    return set((await events.until("snapshot"))["rings"]["websites"]["members"])


async def test_a_viewer_gets_what_the_sharder_sends() -> None:
    scene = Scene(["web-0", "web-1"])
    async with shown(websites=scene) as served, following(served) as events:
        assert await members(events) == {"web-0", "web-1"}
        scene.states["web-1"] = "expired"
        change = await events.change()
        assert change["rings"]["websites"]["members"]["web-1"]["state"] == "expired"
        assert (await get(served, "/events/more"))[0] == 404


async def test_the_next_leader_is_followed_and_meanwhile_the_reason_is_given() -> None:
    leaders = Leaders()
    async with AsyncExitStack() as first:
        sharder = await first.enter_async_context(published(state_of(websites=Scene(["old"]))))
        leaders.port = sharder.port
        async with dashboard_over(leaders.way, NO_QUESTIONS) as dashboard, following(dashboard) as events:
            assert await members(events) == {"old"}
            leaders.port = 0
            await first.aclose()
            assert "ended the stream" in (await events.until("disconnected"))["problem"]
            problem = ""
            while problem != "no sharder leads":
                problem = (await events.until("disconnected"))["problem"]
            async with published(state_of(websites=Scene(["new"]))) as second:
                leaders.port = second.port
                assert await members(events) == {"new"}


async def test_a_dashboard_may_come_before_its_leader() -> None:
    leaders = Leaders()
    async with dashboard_over(leaders.way, NO_QUESTIONS) as dashboard, following(dashboard) as events:
        assert (await events.next())[:2] == ("disconnected", {"problem": "no sharder leads"})
        async with published(state_of(websites=Scene(["web-0"]))) as sharder:
            leaders.port = sharder.port
            assert await members(events) == {"web-0"}


async def test_a_sharder_that_falls_silent_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "SILENCE_S", 0.3)
    monkeypatch.setattr(stream, "HEARTBEAT_S", 60.0)
    async with shown(websites=Scene(["web-0"])) as served, following(served) as events:
        assert await members(events) == {"web-0"}
        assert "has sent nothing" in (await events.until("disconnected"))["problem"]
        assert await members(events) == {"web-0"}, "it is asked again"


async def test_a_sharder_with_too_many_viewers_stays_connected_to_those_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "VIEWERS", 1)
    scene = Scene(["web-0"])
    async with shown(websites=scene) as served, following(served) as first:
        assert await members(first) == {"web-0"}
        async with following(served) as second:
            assert "which is the limit" in (await second.until("disconnected"))["problem"]
        scene.states["web-0"] = "expired"
        assert (await first.change())["rings"]["websites"]["members"]["web-0"]["state"] == "expired"


async def test_a_viewer_that_does_not_read_holds_no_events_of_the_dashboard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sharder's own bytes pile up on its side, where it leaves frames out."""
    scene = Scene(["web-0"])
    async with shown(websites=scene) as served, following(served) as events:
        assert await members(events) == {"web-0"}
        (viewer,) = served.dashboard.server.connections
        monkeypatch.setattr(viewer, "is_backed_up", True)
        pushed: list[bytes] = []
        monkeypatch.setattr(viewer, "push", pushed.append)
        for state in ("expired", "dead", "ready", "uncertain"):
            scene.states["web-0"] = state
            await asyncio.sleep(0.25)
        assert len(pushed) == 1


async def test_viewers_share_one_connection_and_each_has_a_stream() -> None:
    opened = 0
    async with published(state_of(websites=Scene(["web-0"]))) as sharder:

        @asynccontextmanager
        async def counted() -> AsyncIterator[SharderEndpoint]:
            nonlocal opened
            opened += 1
            async with at_url(f"http://127.0.0.1:{sharder.port}") as endpoint:
                yield endpoint

        async with (
            dashboard_over(counted, NO_QUESTIONS) as dashboard,
            following(dashboard) as first,
            following(dashboard) as second,
        ):
            assert await members(first) == await members(second) == {"web-0"}
        assert opened == 1


async def first_error_of(way: Way) -> KubeError:
    """The error with which the first attempt ends."""
    leader = LeaderConnection(way, clock=SystemClock(), rng=random.Random(1))
    with pytest.raises(KubeError) as caught:
        async with asyncio.timeout(10):
            await leader.run()
    return caught.value


async def test_the_first_attempt_ends_the_command_where_waiting_would_not_help() -> None:
    error = await first_error_of(lambda: at_url("http://127.0.0.1:1"))
    assert str(error).startswith("http://127.0.0.1:1 does not answer: ")

    def refused() -> NoReturn:
        raise InputError("leader", "sharder-1", "has no pod", "name it")

    assert isinstance(await first_error_of(refused), InputError)


async def test_later_failures_are_shown_and_the_attempts_go_on() -> None:
    async with published(state_of(websites=Scene(["web-0"]))) as sharder:
        leaders = Leaders(sharder.port)
        leader = LeaderConnection(leaders.way, clock=SystemClock(), rng=random.Random(1))
        async with running(leader.run()):
            endpoint = await leader.wait(timeout_s=5)
            assert endpoint is not None
            leaders.port = 1
            endpoint.lose("it went")
            async with asyncio.timeout(5):
                while "does not answer" not in leader.problem:
                    assert await leader.wait(timeout_s=0.1) is None
            leaders.port = sharder.port
            assert await leader.wait(timeout_s=10) is not None


async def test_a_sharder_not_heard_of_lately_is_looked_for_again() -> None:
    """Its address may be another pod's by now: no viewer, and no token, goes there before the leader is found anew."""
    clock = ManualClock()
    async with (
        published(state_of(websites=Scene(["old"]))) as former,
        published(state_of(websites=Scene(["new"]))) as present,
    ):
        leaders = Leaders(former.port)
        async with dashboard_over(leaders.way, NO_QUESTIONS, clock=clock) as dashboard:
            leaders.port = present.port
            async with following(dashboard) as events:
                assert await members(events) == {"old"}, "it answered just now"
            clock.advance(endpoints.SILENCE_S + 1)
            async with asyncio.timeout(30), following(dashboard) as events:
                assert await members(events) == {"new"}


async def test_a_sharder_that_some_viewer_hears_stays_connected_for_the_next_one() -> None:
    clock = ManualClock()
    scene = Scene(["web-0"])
    async with published(state_of(websites=scene)) as sharder:
        leaders = Leaders(sharder.port)
        async with dashboard_over(leaders.way, NO_QUESTIONS, clock=clock) as dashboard:
            leaders.port = 0
            async with following(dashboard) as first:
                assert await members(first) == {"web-0"}
                clock.advance(endpoints.SILENCE_S + 1)
                scene.states["web-0"] = "expired"
                await first.change()
                async with asyncio.timeout(30), following(dashboard) as second:
                    assert await members(second) == {"web-0"}
