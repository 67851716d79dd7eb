"""Lines of a watch, however the bytes are cut, and how a stream ends."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.errors import Expired, Forbidden, Unreachable
from kubeio.http.lines import MAX_LAG_BYTES, LineSplitter, LineTooLong
from tests.kubeio.http.wire_server import (
    CHUNKED_HEAD,
    Conversation,
    Script,
    WireServer,
    chunked,
    chunked_answer,
    failure_status,
    http_answer,
    once,
    silent,
)

LINES = st.lists(st.binary(min_size=1, max_size=40).filter(lambda line: b"\n" not in line), max_size=12)


@given(LINES, st.lists(st.integers(min_value=0, max_value=500), max_size=20), st.booleans())
def test_lines_are_whole_wherever_the_bytes_are_cut(
    lines: list[bytes], cuts: list[int], ends_with_newline: bool
) -> None:
    data = b"\n".join(lines) + (b"\n" if ends_with_newline and lines else b"")
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = LineSplitter()
    got = [line for begin, end in itertools.pairwise(edges) for line in splitter.feed(data[begin:end])]
    rest = splitter.rest()
    assert got + ([rest] if rest else []) == lines
    assert not (ends_with_newline and rest)


def test_line_without_end_is_refused() -> None:
    splitter = LineSplitter(max_line_bytes=10)
    assert splitter.feed(b"0123456789\n" + b"x" * 10) == [b"0123456789"]
    with pytest.raises(LineTooLong):
        splitter.feed(b"x")


def streaming(*pieces: bytes, end: bool = True, gap_s: float = 0.0) -> Script:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(CHUNKED_HEAD)
        for piece in pieces:
            await conversation.send(chunked(piece, end=False))
            await asyncio.sleep(gap_s)
        if end:
            await conversation.send(b"0\r\n\r\n")
        await conversation.until_closed()

    return script


async def collect(server: WireServer, seen: list[bytes] | None = None) -> list[bytes]:
    lines_seen = [] if seen is None else seen
    async with server.client() as client, client.stream("/w", query={"watch": "1"}) as lines:
        async for line in lines:
            lines_seen.append(line)
    return lines_seen


async def test_lines_come_one_by_one_wherever_chunks_end(server: WireServer) -> None:
    server.script = streaming(b'{"a":1}\n{"b"', b":2}", b'\n\n{"c":3}\n', gap_s=0.005)
    assert await collect(server) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_watch_asks_for_no_compression(server: WireServer) -> None:
    server.script = streaming(b"x\n")
    await collect(server)
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert server.requests[0].target == "/w?watch=1"


async def test_compressed_stream_is_understood_all_the_same(server: WireServer) -> None:
    answer = chunked_answer(gzip.compress(b"a\nb"), gzip.compress(b"c\n"))
    server.script = once(answer.replace(b"Transfer", b"Content-Encoding: gzip\r\nTransfer"))
    assert await collect(server) == [b"a", b"bc"]


async def test_line_is_given_before_the_next_one_comes(server: WireServer) -> None:
    server.script = streaming(b"first\n", end=False)
    async with server.client() as client, client.stream("/w") as lines:
        assert await asyncio.wait_for(anext(aiter(lines)), 2) == b"first"


async def test_last_line_needs_no_newline_when_the_stream_ends_well(server: WireServer) -> None:
    server.script = streaming(b"a\nb")
    assert await collect(server) == [b"a", b"b"]


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_stream_that_is_cut_off_gives_whole_lines_and_then_fails(server: WireServer, how: str) -> None:
    server.script = once(CHUNKED_HEAD + chunked(b"a\nb\nhal", end=False), how)
    seen: list[bytes] = []
    with pytest.raises(Unreachable, match="GET /w on https://"):
        await collect(server, seen)
    assert seen == [b"a", b"b"]


async def test_failure_instead_of_a_stream_is_typed(server: WireServer) -> None:
    server.script = once(http_answer(failure_status(410, "Expired", "too old"), status=410), "until_closed")
    with pytest.raises(Expired, match="too old"):
        await collect(server)
    await server.until_closed()
    server.script = once(chunked_answer(b'{"message":', b'"no"}', status="403 No"))
    with pytest.raises(Forbidden, match="no"):
        await collect(server)


async def test_stream_that_does_not_begin_in_time_is_given_up(server: WireServer) -> None:
    server.script = silent
    begun = time.monotonic()
    async with server.client() as client:
        with pytest.raises(Unreachable, match="no answer in time"):
            async with client.stream("/w", connect_timeout_s=0.2):
                pytest.fail("there is no stream")
    assert time.monotonic() - begun < 1


async def test_silence_of_a_stream_is_no_failure(server: WireServer) -> None:
    server.script = streaming(b"a\n", b"b\n", gap_s=0.4)
    async with server.client() as client, client.stream("/w", connect_timeout_s=0.2) as lines:
        assert [line async for line in lines] == [b"a", b"b"]


async def test_leaving_a_stream_closes_its_connection(server: WireServer) -> None:
    server.script = streaming(b"a\n", end=False)
    async with server.client() as client:
        async with client.stream("/w") as lines:
            async for _ in lines:
                break
        await server.until_closed()


async def test_cancelled_reader_closes_its_connection(server: WireServer) -> None:
    server.script = streaming(end=False)
    is_reading = asyncio.Event()
    async with server.client() as client:

        async def read() -> None:
            async with client.stream("/w") as lines:
                is_reading.set()
                await anext(aiter(lines))

        reader = asyncio.ensure_future(read())
        await is_reading.wait()
        assert server.open == 1
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await server.until_closed()


async def test_streams_take_no_place_in_the_pool(server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        while True:
            request = await conversation.request()
            if request.path == "/w":
                await conversation.send(CHUNKED_HEAD + chunked(b"a\n", end=False))
            else:
                await conversation.answer(b"ok")

    server.script = script
    async with (
        server.client(max_connections=1) as client,
        client.stream("/w") as one,
        client.stream("/w") as two,
    ):
        assert await anext(aiter(one)) == await anext(aiter(two)) == b"a"
        assert (await client.request("GET", "/a", timeout_s=2)).body == b"ok"


async def test_closing_the_client_ends_its_streams(server: WireServer) -> None:
    server.script = streaming(b"a\n", end=False)
    client = server.client()

    async def read() -> None:
        async with client.stream("/w") as lines:
            iterator = aiter(lines)
            assert await anext(iterator) == b"a"
            await client.close()
            await asyncio.wait_for(anext(iterator), 2)

    with pytest.raises(Unreachable):
        await read()


async def test_slow_consumer_holds_the_sender_and_loses_nothing(server: WireServer) -> None:
    line = b"x" * 9_999 + b"\n"
    sent = 0

    async def flood(conversation: Conversation) -> None:
        nonlocal sent
        await conversation.request()
        await conversation.send(CHUNKED_HEAD)
        for _ in range(3_000):
            await conversation.send(chunked(line, end=False))
            sent += len(line)
        await conversation.send(b"0\r\n\r\n")
        await conversation.until_closed()

    server.script = flood
    async with server.client() as client, client.stream("/w") as lines:
        iterator = aiter(lines)
        await anext(iterator)
        await asyncio.sleep(0.3)
        # what is on its way fills the buffers of two kernels, of TLS and of the sender, too
        assert MAX_LAG_BYTES // 2 < sent < len(line) * 2_500
        assert len([received async for received in iterator]) == 2_999


async def test_line_larger_than_the_lag_is_taken(server: WireServer) -> None:
    big = b"y" * (3 * MAX_LAG_BYTES)
    server.script = streaming(big[: MAX_LAG_BYTES * 2], big[MAX_LAG_BYTES * 2 :] + b"\nz\n")
    assert await collect(server) == [big, b"z"]
