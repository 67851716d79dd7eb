"""`/debug/rings` and its stream: what a sharder sends to its viewers, and what it costs without any."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from sharder.live import stream
from sharder.live.facts import RingFacts
from sharder.live.stream import EVENTS, RIGHT
from tests.sharder.io.environment import running
from tests.sharder.live.scenes import Scene, play, state_of
from tests.sharder.live.served import OneToken, ask, get, listening, published


async def test_a_viewer_gets_everything_then_what_changes() -> None:
    scene = Scene(["web-0", "web-1"])
    async with published(state_of(websites=scene)) as server, listening(server) as events:
        name, snapshot, _ = await events.next()
        assert (name, snapshot["sharder"]) == ("snapshot", "sharder-1")
        assert set(snapshot["rings"]["websites"]["members"]) == {"web-0", "web-1"}
        assert len(snapshot["rings"]["websites"]["sectors"]) == 720
        scene.states["web-1"] = "expired"
        change = await events.change()
        members = change["rings"]["websites"]["members"]
        assert {member: facts["state"] for member, facts in members.items()} == {"web-1": "expired"}
        assert set(change["rings"]["websites"]) == {"members"}


async def test_the_document_is_what_a_stream_begins_with() -> None:
    async with published(state_of(websites=Scene(["web-0"]))) as server:
        status, document = await ask(server, RIGHT)
        async with listening(server) as events:
            _, snapshot, _ = await events.next()
        assert status == 200
        assert {**document, "at": 0} == {**snapshot, "at": 0}


async def test_the_view_is_for_this_machine_and_for_tokens_with_the_right() -> None:
    async with published(state_of(), reviews=OneToken(RIGHT)) as server:
        for path in (RIGHT, EVENTS):
            for token, expected in (("", b"401"), ("bad", b"401"), ("poor", b"403"), ("good", b"200")):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", server.port, local_addr=("127.0.0.2", 0)
                )
                bearer = f"Authorization: Bearer {token}\r\n" if token else ""
                writer.write(f"HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{bearer}\r\n".encode())
                assert (path, token, (await reader.readline()).split()[1]) == (path, token, expected)
                writer.close()
        for path in (f"{RIGHT}/more", f"{EVENTS}/more", "/debug/objects"):
            assert (await get(server, path))[0] == 404


async def test_a_ring_that_goes_is_announced() -> None:
    state = state_of(websites=Scene(["web-0"]), other=Scene(["b"]))
    async with published(state) as server, listening(server) as events:
        await events.next()
        state.forget("other")
        assert (await events.change())["gone"] == ["other"]


async def test_a_quiet_stream_has_heartbeats() -> None:
    async with published(state_of(websites=Scene(["web-0"]))) as server, listening(server) as events:
        await events.next()
        began = time.monotonic()
        name, document, _ = await events.next()
        assert name == "heartbeat"
        assert set(document) == {"at"}
        assert time.monotonic() - began < 3 * stream.HEARTBEAT_S


async def test_frames_are_few_and_small_with_a_hundred_members_and_fifty_events_a_second() -> None:
    scene = Scene([f"web-{number}" for number in range(100)])
    state = state_of(websites=scene)
    async with (
        published(state) as server,
        listening(server) as events,
        running(play(state, "websites", scene, per_s=50)),
    ):
        await events.next()
        sizes, until = [], time.monotonic() + 2
        while time.monotonic() < until:
            sizes.append((await events.next())[2])
    assert 10 <= len(sizes) <= 22
    assert max(sizes) < 16_000


class Counted(Scene):
    asked = 0

    def facts(self) -> RingFacts:
        self.asked += 1
        return super().facts()


async def test_without_a_viewer_nothing_is_computed() -> None:
    scene = Counted(["web-0"])
    async with published(state_of(websites=scene)) as server:
        before = scene.asked
        await asyncio.sleep(0.5)
        assert scene.asked == before
        async with listening(server) as events:
            await events.next()
        await asyncio.sleep(0.3)
        before = scene.asked
        await asyncio.sleep(0.4)
        assert scene.asked == before


async def test_a_viewer_that_did_not_read_gets_the_whole_document_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene([f"web-{number}" for number in range(60)])
    async with published(state_of(websites=scene)) as server, listening(server) as events:
        await events.next()
        (connection,) = server.connections
        monkeypatch.setattr(connection, "is_backed_up", True)
        scene.states["web-1"] = "expired"
        await asyncio.sleep(0.4)
        monkeypatch.setattr(connection, "is_backed_up", False)
        scene.states["web-2"] = "expired"
        name, snapshot, _ = await events.next()
        assert name == "snapshot"
        members = snapshot["rings"]["websites"]["members"]
        assert [members[f"web-{number}"]["state"] for number in (1, 2)] == ["expired", "expired"]


async def test_no_more_than_sixteen_viewers_are_served() -> None:
    async with published(state_of(websites=Scene(["web-0"]))) as server, AsyncExitStack() as streams:
        for _ in range(stream.VIEWERS):
            await (await streams.enter_async_context(listening(server))).next()
        assert (await get(server, EVENTS))[0] == 503
