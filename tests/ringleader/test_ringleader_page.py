"""`ringleader dashboard`: what it reads of a cluster is what it shows, and an outage leaves what was known."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from devcluster.embedded.faults import Fault
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.models import HasMeta
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from ringleader.inspect.page.command import Reader
from sharder.page.board import Board
from sharder.page.facts import RingFacts
from tests.sharder.io.ground import KEYS, RING, WEBSITES, Ground, is_balanced, wait_until


@asynccontextmanager
async def reader_of(client: Client) -> AsyncIterator[tuple[Reader, Board]]:
    board = Board(title="here", clock=SystemClock())
    async with Reader(client, Discovery(client), board, only=None, timeout_s=5) as reader:
        yield reader, board


async def looked_until(reader: Reader, holds: Callable[[], object]) -> None:
    """Look again and again until *holds*."""

    async def look() -> object:
        await reader.look()
        return holds()

    await wait_until(look)


def moves_of(board: Board) -> list[tuple[str, str, str]]:
    return [(each.kind, each.source, each.target) for each in board.history(RING).take_fresh()[0]]


def facts(board: Board) -> RingFacts:
    subject = board.subject(RING)
    assert subject is not None
    return subject.facts()


async def test_members_shares_and_objects_are_those_of_the_cluster(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.shard("b")
    await ground.sites(10)
    async with reader_of(ground.client) as (reader, board):
        async with ground.sharder():
            await wait_until(lambda: is_balanced(ground))
            await looked_until(reader, lambda: facts(board).objects == 10)
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
    async with reader_of(ground.client) as (reader, board):
        await looked_until(reader, lambda: facts(board).objects == 1)
        (row,) = facts(board).handovers
        assert (row.object, row.source, row.target) == ("websites.example.com default/one", "a", "b")
        assert facts(board).members["a"].in_flight == 1
        await ground.acknowledge("one")
        await wait_until(lambda: facts(board).handovers == [])
        assert moves_of(board) == [("asked", "a", "b"), ("handedOver", "a", "b")]


async def test_what_gets_an_owner_is_told_as_it_happens_and_what_had_one_is_not(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.shard("b")
    await ground.site("old", labels={KEYS.shard: "a-00000001"})
    await ground.site("new")
    async with reader_of(ground.client) as (reader, board):
        await looked_until(reader, lambda: facts(board).objects == 2)
        assert (facts(board).unowned, moves_of(board)) == (1, [])
        for name, shard in (("new", "a-00000001"), ("old", "b-00000001")):
            change = MergePatch({"metadata": {"labels": {KEYS.shard: shard}}})
            await ground.client.patch(WEBSITES, name, change, namespace="default", type=bytes)
        at = board.at()
        await wait_until(lambda: sum(board.history(RING).bucket(at)) == 2)
        assert moves_of(board) == [("assigned", "", "a"), ("takenOver", "a", "b")]
        await looked_until(reader, lambda: facts(board).unowned == 0)
        assert {name: each.objects for name, each in facts(board).members.items()} == {"a": 1, "b": 1}


async def test_objects_are_listed_once(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(3)
    async with reader_of(ground.client) as (reader, board):
        await looked_until(reader, lambda: facts(board).objects == 3)
        await ground.plane.faults.add(
            Fault(what="error", code=500, verb="list", resource="websites.example.com")
        )
        await ground.site("later")
        await looked_until(reader, lambda: facts(board).objects == 4)
        assert facts(board).problem == ""


async def test_a_right_that_is_missing_is_told_on_the_page_and_asked_for_again(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.site("one")
    resource = "websites.example.com"
    refused = [Fault(what="error", code=403, verb=verb, resource=resource) for verb in ("list", "watch")]
    for fault in refused:
        await ground.plane.faults.add(fault)
    async with reader_of(ground.client) as (reader, board):
        await looked_until(reader, lambda: facts(board).problem)
        assert facts(board).objects is None
        assert set(facts(board).members) == {"a"}
        await ground.plane.faults.clear()
        await looked_until(reader, lambda: facts(board).objects == 1)
        await looked_until(reader, lambda: facts(board).problem == "")


async def test_a_member_that_goes_is_told(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    going = await ground.shard("b")
    async with reader_of(ground.client) as (reader, board):
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
    async with (
        Client(load_cluster(kubeconfig=str(user))) as client,
        reader_of(client) as (reader, board),
    ):
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
    async with reader_of(ground.client) as (reader, board):
        await reader.look()
        assert facts(board).note == "no sharder has worked this ring yet"
        assert facts(board).members == {}
        assert facts(board).sectors == []


async def test_nothing_is_written(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    site = await ground.site("one")
    async with reader_of(ground.client) as (reader, board):
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
        *(
            sys.executable,
            "-m",
            "ringleader",
            "dashboard",
            RING,
            "--kubeconfig",
            str(ground.plane.kubeconfig),
        ),
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
    async with reader_of(ground.client) as (reader, board):
        await reader.look()
        shown = facts(board).members
        assert (shown["a"].ideal, shown["b"].ideal, shown["c"].place) == (0.25, 0.75, "none")
        change = MergePatch({"spec": {"members": {"b": None}}})
        await ground.client.patch(CONTROLLER_RINGS, RING, change, type=bytes)
        await reader.look()
        assert facts(board).members["b"].ideal == 0.5


async def test_main_resources_that_different_members_work_have_circles_of_their_own(ground: Ground) -> None:
    await ground.ring(
        resources=[{"group": "example.com", "resource": "websites"}, {"group": "", "resource": "secrets"}]
    )
    for member, works in (("a", "websites.example.com"), ("b", "websites.example.com"), ("c", "secrets")):
        await ground.shard(member, works=works)
    site = await ground.site("one")
    async with reader_of(ground.client) as (reader, board):
        await looked_until(reader, lambda: facts(board).objects == 1)
        shown = facts(board)
        assert [(each.resources, each.order) for each in shown.circles] == [
            (["websites.example.com"], ["a", "b"]),
            (["secrets"], ["c"]),
        ]
        assert (shown.circles[0].ideals, shown.circles[1].shares) == ([0.5, 0.5], [1.0])
        assert (shown.order, shown.sectors) == (shown.circles[0].order, shown.circles[0].sectors)
        assert shown.members["c"].share == 0.5, "the mean over the main resources"
        subject = board.subject(RING)
        assert subject is not None
        found = await subject.find("websites.example.com", "default", site.name)
        assert found.main == "websites.example.com"
