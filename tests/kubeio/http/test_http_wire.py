"""What the connection makes of every shape and every accident of an HTTP/1.1 answer."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from kubeio.errors import BadRequest, Unreachable
from kubeio.http.connection import MAX_HEADER_BYTES
from kubeio.rest.client import Response
from tests.kubeio.http.wire_server import (
    CHUNKED_HEAD,
    Conversation,
    WireServer,
    answering,
    chunked,
    chunked_answer,
    http_answer,
    once,
    sending,
)


async def ask(server: WireServer, *, method: str = "GET", timeout_s: float = 5.0) -> Response:
    async with server.client() as client:
        return await client.request(method, "/a", timeout_s=timeout_s)


async def test_answer_with_content_length(server: WireServer) -> None:
    server.script = answering(b"hello", headers="X-One: 1\r\n")
    response = await ask(server)
    assert (response.status, response.body, response.headers["x-one"]) == (200, b"hello", "1")


@pytest.mark.parametrize("piece", [0, 1, 2, 7])
async def test_answer_in_chunks_arrives_in_pieces_of_any_size(server: WireServer, piece: int) -> None:
    server.script = sending(chunked_answer(b"hel", b"lo", b"!" * 1_000), piece=piece)
    assert (await ask(server)).body == b"hello" + b"!" * 1_000


async def test_answer_without_length_ends_with_the_connection(plain_server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it")
        conversation.writer.close()

    plain_server.script = script
    assert (await ask(plain_server)).body == b"all of it"


@pytest.mark.parametrize(
    ("data", "status", "body", "connections"),
    [
        (b"HTTP/1.1 204 Nothing\r\n\r\n", 204, b"", 1),
        (b"HTTP/1.1 205 Nothing\r\nContent-Length: 0\r\n\r\n", 205, b"", 1),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", 2),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
            + http_answer(b"real"),
            200,
            b"real",
            1,
        ),
    ],
    ids=["no content", "empty", "HTTP/1.0 keeps no connection", "informational"],
)
async def test_an_answer_of_any_legal_shape_is_read_to_its_end(
    server: WireServer, data: bytes, status: int, body: bytes, connections: int
) -> None:
    server.script = sending(data)
    if data.startswith(b"HTTP/1.0"):
        server.script = once(data)
    async with server.client() as client:
        for _ in range(2):
            response = await client.request("PUT", "/a", body=b"{}")
            assert (response.status, response.body) == (status, body)
    assert server.connections == connections


GZIP = "Content-Encoding: gzip\r\n"
REFUSED = {
    "redirect": (http_answer(b"", status=302, headers="Location: https://elsewhere/\r\n"), "302"),
    "not modified, unasked": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", "304"),
    "other protocol": (
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        "switch protocols",
    ),
    "gzip cut off": (
        http_answer(gzip.compress(b"x" * 10_000 + bytes(range(256)) * 40)[:-20], headers=GZIP),
        "cut off",
    ),
    "gzip damaged": (http_answer(b"this is not gzip", headers=GZIP), "header check|gzip"),
    "unknown compression": (http_answer(b"???", headers="Content-Encoding: br\r\n"), "compressed as b'br'"),
    "endless header": (
        http_answer(b"", headers=f"X-1: {'x' * 2 * MAX_HEADER_BYTES}\r\n"),
        "headers of more than",
    ),
    "endless headers": (
        http_answer(b"", headers=f"X-1: {'x' * (MAX_HEADER_BYTES // 2000)}\r\n" * 4000),
        "headers of more than",
    ),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
    "TLS": (b"\x15\x03\x01\x00\x02\x02\x46", "not HTTP"),
    "no status": (b"HTTP/1.1 abc OK\r\n\r\n", "not HTTP"),
    "HTML": (b"<html>no</html>\r\n\r\n", "not HTTP"),
}


@pytest.mark.parametrize(("data", "reported"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_an_answer_is_refused(server: WireServer, data: bytes, reported: str) -> None:
    server.script = sending(data)
    with pytest.raises((BadRequest, Unreachable), match=reported) as caught:
        await ask(server, timeout_s=2)
    assert isinstance(caught.value, BadRequest) == reported.isdigit()


async def test_head_has_no_body_whatever_its_headers_say(server: WireServer) -> None:
    server.script = sending(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")
    response = await ask(server, method="HEAD", timeout_s=2)
    assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "12345")


@pytest.mark.parametrize("members", [1, 3])
async def test_gzip_answer_is_unpacked_as_it_comes(server: WireServer, members: int) -> None:
    plain = json.dumps({"items": list(range(20_000))}).encode()
    part = len(plain) // members + 1
    data = b"".join(gzip.compress(plain[i : i + part]) for i in range(0, len(plain), part))
    server.script = sending(http_answer(data, headers=GZIP), piece=997)
    assert (await ask(server)).body == plain
    assert server.requests[0].headers["accept-encoding"] == "gzip"


async def test_huge_bodies_and_large_but_legal_headers_are_taken_whole(server: WireServer) -> None:
    body = b"0123456789abcdef" * (2 * 1024 * 1024)
    server.script = answering(body, headers=f"X-Big: {'x' * 60_000}\r\n")
    response = await ask(server, timeout_s=30)
    assert response.body == body
    assert len(response.headers["x-big"]) == 60_000


TRUNCATED = {
    "nothing": b"",
    "half a status line": b"HTTP/1.1 20",
    "half the headers": b"HTTP/1.1 200 OK\r\nContent-Le",
    "headers only": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    "half the body": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe",
    "half a chunk size": CHUNKED_HEAD + b"5",
    "half a chunk": CHUNKED_HEAD + b"5\r\nhe",
    "no last chunk": CHUNKED_HEAD + chunked(b"hello", end=False),
    "half the last chunk": CHUNKED_HEAD + chunked(b"hello", end=False) + b"0\r\n",
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("data", TRUNCATED.values(), ids=TRUNCATED.keys())
async def test_truncated_answer_is_no_answer(server: WireServer, data: bytes, how: str) -> None:
    server.script = once(data, how)
    with pytest.raises(Unreachable, match=r"GET /a on https://127.0.0.1:") as caught:
        await ask(server)
    assert caught.value.maybe_done
    assert server.connections == 1


async def test_early_answer_to_a_large_request_is_taken_and_its_connection_dropped(
    plain_server: WireServer,
) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.reader.readuntil(b"\r\n\r\n")
        await conversation.answer({"message": "too big"}, status=413)
        await asyncio.sleep(0.2)

    plain_server.script = script
    async with plain_server.client() as client:
        with pytest.raises(BadRequest, match="413"):
            await client.request("POST", "/a", body=b"x" * 30_000_000)
        plain_server.script = None
        assert json.loads((await client.request("PUT", "/b", body=b"", timeout_s=5)).body)["connection"] == 2
