"""What the connection makes of every shape and every accident of an HTTP/1.1 answer."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from kubeio.errors import BadRequest, Unreachable
from kubeio.http.connection import MAX_HEADER_BYTES
from kubeio.rest.client import Response
from tests.kubeio.rest.wire_server import (
    CHUNKED_HEAD,
    Conversation,
    Script,
    WireServer,
    chunked,
    http_answer,
    zipped,
)


async def ask(server: WireServer, *, method: str = "GET", timeout_s: float = 5.0) -> Response:
    async with server.client() as client:
        return await client.request(method, "/a", timeout_s=timeout_s)


def always(data: bytes, *, then_close: bool = False, piece: int = 0) -> Script:
    """Answer each request with *data*, in pieces of *piece* bytes."""

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            for begin in range(0, len(data), piece or len(data)):
                await conversation.send(data[begin : begin + (piece or len(data))])
                if piece:
                    await asyncio.sleep(0)
            if then_close:
                conversation.close()
                return

    return script


async def test_answer_with_content_length(server: WireServer) -> None:
    server.script = always(http_answer(b"hello", headers="X-One: 1\r\n"))
    response = await ask(server)
    assert (response.status, response.body, response.headers["x-one"]) == (200, b"hello", "1")


async def test_answer_in_chunks(server: WireServer) -> None:
    server.script = always(CHUNKED_HEAD + chunked(b"hel", b"lo", b"!" * 10_000))
    assert (await ask(server)).body == b"hello" + b"!" * 10_000


@pytest.mark.parametrize("piece", [1, 2, 7])
async def test_answer_arrives_in_tiny_pieces(server: WireServer, piece: int) -> None:
    server.script = always(CHUNKED_HEAD + chunked(b"hel", b"lo"), piece=piece)
    assert (await ask(server)).body == b"hello"


async def test_answer_without_length_ends_with_the_connection(plain_server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it")
        conversation.writer.close()

    plain_server.script = script
    assert (await ask(plain_server)).body == b"all of it"


async def test_http_1_0_answer_is_taken_and_its_connection_not_kept(server: WireServer) -> None:
    server.script = always(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
    async with server.client() as client:
        for _ in range(2):
            assert (await client.request("GET", "/a")).body == b"ok"
    assert server.connections == 2


@pytest.mark.parametrize("status", [204, 205])
async def test_answer_without_body(server: WireServer, status: int) -> None:
    length = "" if status == 204 else "Content-Length: 0\r\n"
    server.script = always(f"HTTP/1.1 {status} Nothing\r\n{length}\r\n".encode())
    async with server.client() as client:
        for _ in range(2):
            response = await client.request("DELETE", "/a")
            assert (response.status, response.body) == (status, b"")
    assert server.connections == 1


async def test_304_has_no_body_and_is_an_error_since_nobody_asked_conditionally(server: WireServer) -> None:
    server.script = always(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n")
    async with server.client() as client:
        with pytest.raises(BadRequest, match="304"):
            await client.request("GET", "/a", timeout_s=2)


async def test_redirect_is_an_error_and_not_followed(server: WireServer) -> None:
    server.script = always(http_answer(b"", status=302, headers="Location: https://elsewhere/\r\n"))
    with pytest.raises(BadRequest, match="302"):
        await ask(server)


async def test_head_has_no_body_whatever_its_headers_say(server: WireServer) -> None:
    server.script = always(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")
    response = await ask(server, method="HEAD", timeout_s=2)
    assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "12345")


async def test_informational_answers_are_passed_over(server: WireServer) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    server.script = always(b"HTTP/1.1 100 Continue\r\n\r\n" + hints + http_answer(b"real"))
    async with server.client() as client:
        for _ in range(2):
            assert (await client.request("PUT", "/a", body=b"{}")).body == b"real"
    assert server.connections == 1


async def test_switching_protocols_is_refused(server: WireServer) -> None:
    server.script = always(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
    with pytest.raises(Unreachable, match="switch protocols"):
        await ask(server)


@pytest.mark.parametrize("members", [1, 3])
async def test_gzip_answer_is_unpacked_as_it_comes(server: WireServer, members: int) -> None:
    plain = json.dumps({"items": list(range(20_000))}).encode()
    part = len(plain) // members + 1
    data = b"".join(gzip.compress(plain[i : i + part]) for i in range(0, len(plain), part))
    server.script = always(http_answer(data, headers="Content-Encoding: gzip\r\n"), piece=997)
    assert (await ask(server)).body == plain
    assert server.requests[0].headers["accept-encoding"] == "gzip"


async def test_gzip_answer_cut_off_inside_is_no_answer(server: WireServer) -> None:
    data = zipped(b"x" * 10_000 + bytes(range(256)) * 40)[:-20]
    server.script = always(http_answer(data, headers="Content-Encoding: gzip\r\n"))
    with pytest.raises(Unreachable, match="cut off"):
        await ask(server)


async def test_damaged_gzip_is_no_answer(server: WireServer) -> None:
    server.script = always(http_answer(b"this is not gzip", headers="Content-Encoding: gzip\r\n"))
    with pytest.raises(Unreachable, match=r"header check|gzip"):
        await ask(server)


async def test_unknown_compression_is_no_answer(server: WireServer) -> None:
    server.script = always(http_answer(b"???", headers="Content-Encoding: br\r\n"))
    with pytest.raises(Unreachable, match="compressed as b'br'"):
        await ask(server)


async def test_huge_answer_is_taken_whole(server: WireServer) -> None:
    body = b"0123456789abcdef" * (2 * 1024 * 1024)
    server.script = always(http_answer(body))
    assert (await ask(server, timeout_s=30)).body == body


async def test_large_but_legal_headers_are_taken(server: WireServer) -> None:
    server.script = always(http_answer(b"ok", headers=f"X-Big: {'x' * 60_000}\r\n"))
    assert len((await ask(server)).headers["x-big"]) == 60_000


@pytest.mark.parametrize("lines", [1, 4000])
async def test_endless_headers_are_cut_off(server: WireServer, lines: int) -> None:
    each = "x" * (MAX_HEADER_BYTES * 2 // lines)
    headers = "".join(f"X-{number}: {each}\r\n" for number in range(lines))
    server.script = always(http_answer(b"never", headers=headers))
    with pytest.raises(Unreachable, match="headers of more than"):
        await ask(server)


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"<html>no</html>\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_no_answer(server: WireServer, garbage: bytes) -> None:
    server.script = always(garbage)
    with pytest.raises(Unreachable, match="not HTTP"):
        await ask(server)


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
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(data)
        await asyncio.sleep(0.01)
        getattr(conversation, how)()

    server.script = script
    with pytest.raises(Unreachable) as caught:
        await ask(server)
    assert caught.value.maybe_done
    assert "GET /a on https://127.0.0.1:" in str(caught.value)
    assert server.connections == 1


async def test_slow_answer_within_the_time_is_an_answer(server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        for byte in http_answer(b"slow"):
            await conversation.send(bytes([byte]))
            await asyncio.sleep(0.001)

    server.script = script
    assert (await ask(server)).body == b"slow"


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
