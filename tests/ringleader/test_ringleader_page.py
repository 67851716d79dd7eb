"""`ringleader page`: what it reads of a cluster is what it shows, and an outage leaves what was known."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.embedded import embedded_plane
from devcluster.embedded.faults import Fault
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.models import HasMeta
from kubeio.patch import MergePatch
from kubeio.resource import CONTROLLER_RINGS
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from ringleader.inspect.page.command import Reader
from sharder.page.board import Board
from sharder.page.facts import RingFacts
from tests.sharder.io.ground import KEYS, RING, WEBSITES, Ground, is_balanced, wait_until


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with (
        embedded_plane(tmp_path / "plane") as plane,
        Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client,
    ):
        ground = Ground(plane, client)
        await ground.install()
        yield ground
        await ground.close()


def reader_of(ground: Ground) -> tuple[Reader, Board]:
    board = Board(title="here", clock=SystemClock())
    client = ground.client
    return Reader(client, Discovery(client), board, only=None, timeout_s=5), board


def facts(board: Board) -> RingFacts:
    subject = board.subject(RING)
    assert subject is not None
    return subject.facts()


async def test_members_shares_and_objects_are_those_of_the_cluster(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.shard("b")
    await ground.sites(10)
    reader, board = reader_of(ground)
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        await reader.look()
        counting = asyncio.create_task(reader.count_often())
        await wait_until(lambda: facts(board).objects == 10)
        counting.cancel()
        shown = facts(board)
        owners = list((await ground.owners()).values())
    assert set(shown.members) == {"a", "b"}
    for member, each in shown.members.items():
        assert each.objects == owners.count(f"{member}-00000001")
        assert 0.45 < each.share < 0.55
        assert (each.place, each.state, each.ideal) == ("filled", "ready", 0.5)
    assert shown.converged
    assert shown.resources == ["websites.example.com", "configmaps"]
    assert len(shown.sectors) == 720


async def test_handoffs_are_shown_while_they_last_and_counted_when_they_end(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.shard("b")
    await ground.site("one", labels={KEYS.shard: "a-00000001", KEYS.drain: "b-00000001"})
    reader, board = reader_of(ground)
    await reader.look()
    (row,) = facts(board).handovers
    assert (row.object, row.source, row.target) == ("websites.example.com default/one", "a", "b")
    assert facts(board).members["a"].in_flight == 1
    await ground.acknowledge("one")
    await reader.look()
    assert facts(board).handovers == []
    moves = [(each.kind, each.source, each.target) for each in board.history(RING).take_fresh()[0]]
    assert moves == [("asked", "a", "b"), ("handedOver", "a", "b")]


async def test_a_member_that_goes_is_told(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    going = await ground.shard("b")
    reader, board = reader_of(ground)
    await reader.look()
    await going.fall_silent()
    await ground.leases.delete(await going.lease())
    await reader.look()
    assert set(facts(board).members) == {"a"}
    assert [(each.what, each.member) for each in board.history(RING).happenings] == [("left", "b")]


async def test_an_outage_leaves_the_last_picture_and_says_so_until_it_is_over(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    user = await ground.plane.kubeconfig_for("looker")
    async with Client(load_cluster(kubeconfig=str(user))) as client:
        board = Board(title="here", clock=SystemClock())
        reader = Reader(client, Discovery(client), board, only=None, timeout_s=5)
        await reader.look()
        read_at = facts(board).read_at
        fault = Fault(what="error", code=503, user="looker")
        await ground.plane.faults.add(fault)
        await reader.look()
        shown = facts(board)
        assert set(shown.members) == {"a"}
        assert "503" in shown.problem
        assert shown.read_at == read_at
        await ground.plane.faults.clear()
        await reader.look()
        assert facts(board).problem == ""
        assert (facts(board).read_at or 0) > (read_at or 0)


async def test_a_ring_without_a_sharder_says_so(ground: Ground) -> None:
    await ground.ring()
    reader, board = reader_of(ground)
    await reader.look()
    assert facts(board).note == "no sharder has worked this ring yet"
    assert facts(board).members == {}
    assert facts(board).sectors == []


async def test_nothing_is_written(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    site = await ground.site("one")
    reader, board = reader_of(ground)
    await reader.look()
    subject = board.subject(RING)
    assert subject is not None
    found = await subject.find("websites.example.com", "default", "one")
    assert (found.desired_member, found.owner, found.is_placed) == ("a", "", False)
    after = await ground.client.get(WEBSITES, "one", namespace="default", type=HasMeta)
    assert after.metadata.resource_version == site.resource_version


async def test_the_command_serves_until_it_is_interrupted(ground: Ground) -> None:
    await ground.ring()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ringleader", "page", RING, "--kubeconfig", str(ground.plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
    match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", line)
    assert match, line
    reader, writer = await asyncio.open_connection("127.0.0.1", int(match[1]))
    writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b'"websites"' in await asyncio.wait_for(reader.readuntil(b"}\n\n"), 10)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), 10)
    writer.close()
    assert (process.returncode, err.decode()) == (0, "")


async def test_weights_and_cordons_count(ground: Ground) -> None:
    await ground.ring(members={"b": {"weight": 3}, "c": {"cordoned": True}})
    for member in "abc":
        await ground.shard(member)
    reader, board = reader_of(ground)
    await reader.look()
    shown = facts(board).members
    assert (shown["a"].ideal, shown["b"].ideal, shown["c"].place) == (0.25, 0.75, "none")
    change = MergePatch({"spec": {"members": {"b": None}}})
    await ground.client.patch(CONTROLLER_RINGS, RING, change, type=bytes)
    await reader.look()
    assert facts(board).members["b"].ideal == 0.5
