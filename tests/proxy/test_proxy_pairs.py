"""Pairs of connections: bytes of answers pass unchanged, a slow reader slows the server, a lost side ends the other."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from proxy import pair, server_side
from proxy.director import Write
from tests.kubeio.http.wire_server import (
    Conversation,
    WireServer,
    answering,
    http_answer,
    once,
    sending,
    silent,
)
from tests.proxy.relays import LOOPBACK, RawClient, Relayed, ScriptedDirector, raw_client, relayed

PODS = "/api/v1/namespaces/a/pods"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = CHUNKED_HEAD + b"3\r\n\x1f\x8b\x00\r\n0\r\n\r\n"
MUCH = 64 * 2**20
UPGRADE = ["Connection: Upgrade", "Upgrade: SPDY/3.1"]
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


@asynccontextmanager
async def asking(
    server: WireServer, folder: Path, director: ScriptedDirector | None = None, *, limit: int = 2**16
) -> AsyncIterator[tuple[RawClient, Relayed]]:
    async with (
        relayed(server.cluster(), folder, director) as through,
        raw_client(through.port, limit=limit) as client,
    ):
        yield client, through


# -- framing


async def test_requests_of_a_connection_share_one_connection_to_the_server(
    server: WireServer, tmp_path: Path
) -> None:
    async with asking(server, tmp_path) as (client, through):
        for _ in range(3):
            assert (await client.ask("GET", PODS))[2].endswith(b'"connection": 1}')
        assert through.relay.pairs == 1


@pytest.mark.parametrize("piece", [0, 1, 7])
async def test_an_answer_passes_byte_by_byte(server: WireServer, tmp_path: Path, piece: int) -> None:
    server.script = sending(CHUNKED, piece=piece)
    async with asking(server, tmp_path) as (client, _):
        for _ in range(2):
            client.send("GET", PODS)
            assert await client.reader.readexactly(len(CHUNKED)) == CHUNKED


async def test_a_chunked_request_is_sent_whole(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as (client, _):
        client.send("POST", PODS, b"", "Transfer-Encoding: chunked", "Trailer: Impersonate-User")
        for piece in (b"3\r\nab", b"c\r\n2", b"\r\nde\r\n0\r\n", b"Impersonate-User: root\r\n\r\n"):
            client.writer.write(piece)
            await asyncio.sleep(0.01)
        assert (await client.answer())[0] == 200
    (request,) = server.requests
    assert request.body == b"abcde"
    assert request.headers["content-length"] == "5"
    assert "impersonate-user" not in request.headers


async def test_a_client_that_waits_for_a_go_ahead_gets_it(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as (client, _):
        client.send("POST", PODS, b"", "Expect: 100-continue", "Content-Length: 2")
        assert (await client.head())[0] == 100
        client.writer.write(b"{}")
        assert (await client.answer())[0] == 200
    assert "expect" not in server.requests[0].headers


async def test_the_answer_to_head_has_no_body_and_is_the_last(server: WireServer, tmp_path: Path) -> None:
    server.script = sending(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    async with asking(server, tmp_path) as (client, _):
        client.send("HEAD", PODS)
        assert (await client.head())[0] == 200
        assert await client.is_closed()


async def test_an_answer_without_a_length_ends_with_its_connection(
    server: WireServer, tmp_path: Path
) -> None:
    server.script = once(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    async with asking(server, tmp_path) as (client, through):
        client.send("DELETE", f"{PODS}/x")
        await client.head()
        assert await client.reader.read() == b"all of it"
        assert [status for _, status in through.director.ended] == [200]


async def test_an_early_hint_is_not_the_answer(server: WireServer, tmp_path: Path) -> None:
    server.script = sending(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + http_answer({"a": 1}))
    async with asking(server, tmp_path) as (client, through):
        client.send("DELETE", f"{PODS}/x")
        assert (await client.head())[0] == 103
        assert (await client.answer())[0] == 200
        assert [status for _, status in through.director.ended] == [200]


async def test_a_client_that_does_not_wait_for_the_answer_is_cut_off(
    server: WireServer, tmp_path: Path
) -> None:
    server.script = silent
    async with asking(server, tmp_path) as (client, _):
        client.send("GET", PODS)
        client.send("GET", PODS)
        assert await client.is_closed()


async def test_what_is_not_http_or_too_large_is_refused(
    server: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair, "MAX_BODY_BYTES", 1000)
    monkeypatch.setattr(pair, "MAX_HEAD_BYTES", 1000)
    token = f"Authorization: Bearer {LOOPBACK.token}\r\n".encode()
    async with relayed(server.cluster(), tmp_path) as through:
        for data, expected in [
            (b"garbage\r\n\r\n", 400),
            (b"GET / HTTP/1.1\nA: b\n\n", 400),
            (b"GET / HTTP/1.1\r\nA: b\rAuthorization: c\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nAuthorization : b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400),
            (b"CONNECT server:443 HTTP/1.1\r\n\r\n", 401),
            (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nX: " + 1001 * b"x" + b"\r\n\r\n", 431),
            (b"POST / HTTP/1.1\r\n" + token + b"Content-Length: 1001\r\n\r\n" + 1001 * b"x", 413),
        ]:
            async with raw_client(through.port) as client:
                client.writer.write(data)
                assert (await client.answer())[0] == expected
                assert await client.is_closed()
    assert server.requests == []


async def test_an_answer_that_nobody_asked_for_closes_the_pair(server: WireServer, tmp_path: Path) -> None:
    server.script = once(http_answer({}) + http_answer({}), "until_closed")
    async with asking(server, tmp_path) as (client, through):
        client.send("GET", PODS)
        await client.answer()
        await server.until_closed()
        await through.relay.wait_quiet()


# -- back-pressure


async def test_a_slow_reader_slows_the_server_and_costs_no_memory(server: WireServer, tmp_path: Path) -> None:
    sent = 0
    block = os.urandom(2**16)

    async def script(conversation: Conversation) -> None:
        nonlocal sent
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MUCH)
        while sent < MUCH:
            await conversation.send(block)
            sent += len(block)
        await conversation.until_closed()

    server.script = script
    async with asking(server, tmp_path) as (client, _):
        client.send("GET", PODS)
        await client.head()
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < MUCH / 4
        left = MUCH
        while left:
            left -= len(await client.reader.read(2**16))
        assert sent == MUCH


async def test_a_server_that_takes_nothing_slows_the_client_after_an_upgrade(
    server: WireServer, tmp_path: Path
) -> None:
    takes = asyncio.Event()
    received = 0

    async def script(conversation: Conversation) -> None:
        nonlocal received
        await conversation.request()
        await conversation.send(SWITCHED)
        await takes.wait()
        while received < MUCH:
            received += len(await conversation.reader.read(2**20))
        await conversation.send(b"done")

    server.script = script
    async with asking(server, tmp_path) as (client, _):
        client.send("POST", f"{PODS}/x/exec", b"", *UPGRADE)
        assert (await client.head())[0] == 101
        sending_ = asyncio.create_task(write_much(client))
        await asyncio.sleep(0.5)
        assert not sending_.done()
        takes.set()
        assert await client.reader.readexactly(4) == b"done"
        await sending_


async def write_much(client: RawClient) -> None:
    block = bytes(2**16)
    for _ in range(MUCH // len(block)):
        client.writer.write(block)
        await client.writer.drain()


# -- upgrades


async def test_after_an_upgrade_bytes_pass_both_ways(server: WireServer, tmp_path: Path) -> None:
    async def script(conversation: Conversation) -> None:
        request = await conversation.request()
        assert request.headers["upgrade"] == "SPDY/3.1"
        assert request.headers["connection"] == "Upgrade"
        await conversation.send(SWITCHED + b"hello")
        assert await conversation.reader.readexactly(5) == b"early"
        await conversation.send(await conversation.reader.readexactly(3))

    server.script = script
    async with asking(server, tmp_path) as (client, _):
        client.send("POST", f"{PODS}/x/exec", b"", *UPGRADE)
        client.writer.write(b"early")
        assert (await client.head())[0] == 101
        assert await client.reader.readexactly(5) == b"hello"
        client.writer.write(b"GET")
        assert await client.reader.readexactly(3) == b"GET"
        assert await client.is_closed()


async def test_an_upgrade_that_the_server_refuses_is_the_last_request(
    server: WireServer, tmp_path: Path
) -> None:
    server.script = answering({}, status=403)
    async with asking(server, tmp_path) as (client, _):
        client.send("POST", f"{PODS}/x/exec", b"", *UPGRADE)
        assert (await client.answer())[0] == 403
        assert await client.is_closed()


async def test_an_upgrade_to_http_2_could_carry_writes_and_is_refused(
    server: WireServer, tmp_path: Path
) -> None:
    async with asking(server, tmp_path) as (client, _):
        client.send(
            "GET", PODS, b"", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x"
        )
        assert (await client.answer())[0] == 400
    assert server.requests == []


async def test_a_write_is_no_upgrade(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as (client, _):
        client.send("POST", PODS, b"", *UPGRADE)
        assert (await client.answer())[0] == 405
    assert server.requests == []


async def test_a_server_that_switches_unasked_is_cut_off(server: WireServer, tmp_path: Path) -> None:
    server.script = once(SWITCHED, "until_closed")
    async with asking(server, tmp_path) as (client, _):
        client.send("GET", PODS)
        assert (await client.head())[0] == 101
        await server.until_closed()


# -- a lost side


async def test_a_read_ends_with_its_client(server: WireServer, tmp_path: Path) -> None:
    server.script = once(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "until_closed")
    async with asking(server, tmp_path) as (client, through):
        client.send("GET", f"{PODS}?watch=true")
        await client.head()
        client.hang_up()
        await server.until_closed()
        await through.relay.wait_quiet()


async def test_a_write_whose_client_hangs_up_is_read_to_its_end(server: WireServer, tmp_path: Path) -> None:
    answers = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await answers.wait()
        await conversation.send(http_answer({"a": "b" * 2**20}, status=201))
        await conversation.until_closed()

    server.script = script
    async with asking(server, tmp_path) as (client, through):
        client.send("DELETE", f"{PODS}/x")
        await through.director.wait_for(lambda: bool(through.director.begun))
        client.hang_up()
        await asyncio.sleep(0.05)
        assert through.director.ended == []
        assert through.relay.pairs == 1
        answers.set()
        await through.director.wait_ended(1)
        assert through.director.ended[0][1] == 201
        await through.relay.wait_quiet()
        await server.until_closed()


async def test_a_client_that_hangs_up_while_it_reads_the_answer_does_not_hide_its_status(
    server: WireServer, tmp_path: Path
) -> None:
    server.script = once(http_answer({"a": "b" * MUCH}), "until_closed")
    async with asking(server, tmp_path) as (client, through):
        client.send("DELETE", f"{PODS}/x")
        await client.head()
        client.hang_up()
        await through.director.wait_ended(1)
        assert through.director.ended[0][1] == 200


async def test_an_answer_that_does_not_come_is_given_up(
    server: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_side, "ANSWER_WITHIN_S", 0.1)
    server.script = silent
    async with asking(server, tmp_path) as (client, through):
        client.send("DELETE", f"{PODS}/x")
        await through.director.wait_for(lambda: bool(through.director.begun))
        client.hang_up()
        await through.director.wait_ended(1)
        assert through.director.ended[0][1] is None
        await through.relay.wait_quiet()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_write_whose_server_is_lost_has_no_status(
    server: WireServer, tmp_path: Path, answer: bytes
) -> None:
    server.script = once(answer)
    async with asking(server, tmp_path) as (client, through):
        client.send("DELETE", f"{PODS}/x")
        assert answer.startswith(await client.reader.read())
        assert [status for _, status in through.director.ended] == [None]


async def test_a_write_that_waits_is_not_sent_once_its_client_is_gone(
    server: WireServer, tmp_path: Path
) -> None:
    gate = asyncio.Event()
    director = ScriptedDirector(gate=gate)
    async with asking(server, tmp_path, director) as (client, through):
        client.send("DELETE", f"{PODS}/x")
        await director.wait_for(lambda: bool(director.asked))
        client.hang_up()
        try:
            await director.wait_for(lambda: bool(director.cancelled), timeout_s=3)
        finally:
            gate.set()
        await through.relay.wait_quiet()
    assert (server.requests, director.begun) == ([], [])


async def test_a_write_that_waited_while_the_server_went_is_asked_again_and_sent(
    server: WireServer, tmp_path: Path
) -> None:
    gate = asyncio.Event()

    async def close_the_first(conversation: Conversation) -> None:
        if conversation.number == 1:
            await asyncio.sleep(0.05)
            return
        await conversation.request()
        await conversation.answer({})
        await conversation.until_closed()

    server.script = close_the_first
    director = ScriptedDirector(gate=gate)
    async with asking(server, tmp_path, director) as (client, _):
        client.send("DELETE", f"{PODS}/x")
        await director.wait_for(lambda: bool(director.asked))
        await server.until_closed()
        await asyncio.sleep(0.05)
        gate.set()
        assert (await client.answer())[0] == 200
    assert len(director.asked) == 2
    assert len(director.begun) == 1


async def test_a_server_that_closes_an_idle_connection_closes_the_client_s(
    server: WireServer, tmp_path: Path
) -> None:
    server.script = once(http_answer({}))
    async with asking(server, tmp_path) as (client, _):
        await client.ask("GET", PODS)
        assert await client.is_closed()


async def test_hanging_up_leaves_writes_their_answers(server: WireServer, tmp_path: Path) -> None:
    answers = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        request = await conversation.request()
        if request.method == "DELETE":
            await answers.wait()
            await conversation.answer({})
        await conversation.until_closed()

    server.script = script
    async with asking(server, tmp_path) as (client, through), raw_client(through.port) as other:
        other.send("GET", f"{PODS}?watch=true")
        client.send("DELETE", f"{PODS}/x")
        await through.director.wait_for(lambda: bool(through.director.begun))
        through.relay.hang_up()
        assert await client.is_closed()
        assert await other.is_closed()
        asyncio.get_running_loop().call_later(0.1, answers.set)
        await through.relay.wait_quiet()
        assert [status for _, status in through.director.ended] == [200]


async def test_a_relay_that_ends_ends_every_connection(server: WireServer, tmp_path: Path) -> None:
    server.script = silent
    director = ScriptedDirector()
    waiting: list[Write] = director.begun
    async with asking(server, tmp_path, director) as (client, through):
        client.send("DELETE", f"{PODS}/x")
        await director.wait_for(lambda: bool(waiting))
    assert [status for _, status in director.ended] == [None]
    assert through.relay.pairs == 0
    await server.until_closed()


async def test_a_client_whose_handshake_ends_after_the_relay_is_cut_off(
    server: WireServer, tmp_path: Path
) -> None:
    """The client has finished its part of the handshake, and has sent a request, before the relay knows of it."""
    async with relayed(server.cluster(), tmp_path) as through:
        tls = ssl.create_default_context(cadata=LOOPBACK.ca.decode())
        connecting = asyncio.create_task(asyncio.open_connection("127.0.0.1", through.port, ssl=tls))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with suppress(OSError):
        reader, writer = await connecting
        RawClient(reader, writer).send("GET", PODS)
        assert await RawClient(reader, writer).is_closed()
        writer.transport.abort()
    assert server.requests == []
