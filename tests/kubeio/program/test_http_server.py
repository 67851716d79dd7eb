"""POST over TLS on real sockets: requests are answered in order, and clients that ask too much are refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest
import trustme

from kubeio.errors import InputError
from kubeio.program.http_server import Handler, HttpRequest, HttpServer, Limits, Reply

CA = trustme.CA()


def tls(*hosts: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert(*(hosts or ("127.0.0.1",))).configure_cert(context)
    return context


def trusting(ca: trustme.CA = CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


LIMITS = Limits(body_bytes=4096, held_bytes=8192)


async def echo(request: HttpRequest) -> Reply:
    return Reply(200, request.path.encode() + b":" + request.body)


@asynccontextmanager
async def serving(
    handler: Handler = echo,
    *,
    context: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    is_plain: bool = False,
) -> AsyncIterator[HttpServer]:
    async with HttpServer(
        "127.0.0.1",
        0,
        handler,
        flag="--webhook-bind",
        tls=None if is_plain else context or tls(),
        methods=("POST",),
        limits=limits or LIMITS,
    ) as server:
        yield server


@dataclass
class Caller:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, body: bytes, *, path: str = "/a", head: str = "", method: str = "POST") -> None:
        length = "" if "chunked" in head else f"Content-Length: {len(body)}\r\n"
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{length}{head}\r\n".encode() + body)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split(" ", 2)[1])
        if status == 100:
            return status, b""
        (length,) = (
            int(line.split(":")[1]) for line in head.splitlines() if line.startswith("Content-Length")
        )
        return status, await self.reader.readexactly(length)

    async def is_hung_up(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def calling(
    server: HttpServer, context: ssl.SSLContext | None = None, *, is_plain: bool = False
) -> AsyncIterator[Caller]:
    trust = None if is_plain else context or trusting()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def test_one_connection_is_answered_again_and_again() -> None:
    async with serving() as server, calling(server) as caller:
        for number in range(3):
            await caller.ask(b"%d" % number, path=f"/assign/r?timeout={number}")
            assert await caller.answer() == (200, b"/assign/r:%d" % number)
        assert server.held_bytes == 0


async def test_requests_sent_at_once_are_answered_in_order_one_at_a_time() -> None:
    under_way = 0

    async def slow(request: HttpRequest) -> Reply:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        await asyncio.sleep(0.01)
        under_way -= 1
        return Reply(200, request.body)

    async with serving(slow) as server, calling(server) as caller:
        for number in range(5):
            await caller.ask(b"%d" % number)
        assert [await caller.answer() for _ in range(5)] == [(200, b"%d" % number) for number in range(5)]


async def test_a_request_that_is_refused_waits_for_the_answers_before_it() -> None:
    go = asyncio.Event()

    async def gate(request: HttpRequest) -> Reply:
        await go.wait()
        return Reply(200, b"first")

    async with serving(gate) as server, calling(server) as caller:
        await caller.ask(b"")
        await caller.ask(b"", method="GET")
        await asyncio.sleep(0.05)
        go.set()
        assert await caller.answer() == (200, b"first")
        assert (await caller.answer())[0] == 405
        assert await caller.is_hung_up()


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("head", ["", "Connection: close\r\n"])
async def test_an_answer_that_is_never_fetched_is_cut_even_if_it_is_the_last(
    head: str, is_plain: bool
) -> None:
    async def big(request: HttpRequest) -> Reply:
        return Reply(200, b"x" * 20_000_000)

    limits = replace(LIMITS, patience_s=0.2)
    async with (
        serving(big, limits=limits, is_plain=is_plain) as server,
        calling(server, is_plain=is_plain) as caller,
    ):
        await caller.ask(b"", head=head)
        async with asyncio.timeout(5):
            await asyncio.sleep(0.05)
            assert server.connections
            while server.connections:  # noqa: ASYNC110  # no event says that a socket is gone
                await asyncio.sleep(0.02)


async def test_connections_do_not_wait_for_each_other() -> None:
    go = asyncio.Event()

    async def gate(request: HttpRequest) -> Reply:
        if request.path == "/slow":
            await go.wait()
        return Reply(200, b"")

    async with serving(gate) as server, calling(server) as slow, calling(server) as quick:
        await slow.ask(b"", path="/slow")
        await quick.ask(b"")
        assert (await quick.answer())[0] == 200
        go.set()
        assert (await slow.answer())[0] == 200


async def test_a_body_in_chunks_is_put_together() -> None:
    async with serving() as server, calling(server) as caller:
        chunks = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        await caller.ask(chunks, head="Transfer-Encoding: chunked\r\n")
        assert await caller.answer() == (200, b"/a:abcde")


async def test_a_caller_that_asks_before_it_sends_gets_100_continue() -> None:
    async with serving() as server, calling(server) as caller:
        await caller.ask(b"", head="Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n")
        assert await caller.answer() == (100, b"")
        caller.writer.write(b"1\r\nx\r\n0\r\n\r\n")
        assert await caller.answer() == (200, b"/a:x")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001, 413),
        (b"POST / HTTP/1.1\r\nA: " + b"x" * 20_000, 431),
    ],
)
async def test_an_unserved_request_is_answered_and_the_connection_closed(
    request_: bytes, status: int
) -> None:
    async with serving(limits=Limits(body_bytes=1000, held_bytes=1000)) as server, calling(server) as caller:
        caller.writer.write(request_)
        assert (await caller.answer())[0] == status
        assert await caller.is_hung_up()
        assert server.held_bytes == 0


async def test_the_bodies_of_all_callers_together_are_limited() -> None:
    go, came = asyncio.Event(), asyncio.Event()

    async def gate(request: HttpRequest) -> Reply:
        came.set()
        await go.wait()
        return Reply(200, b"")

    limits = Limits(body_bytes=1000, held_bytes=1500)
    async with (
        serving(gate, limits=limits) as server,
        calling(server) as first,
        calling(server) as second,
    ):
        await first.ask(b"x" * 1000)
        await came.wait()
        assert server.held_bytes == 1000
        await second.ask(b"x" * 1000)
        assert (await second.answer())[0] == 503
        go.set()
        assert (await first.answer())[0] == 200
        assert server.held_bytes == 0


async def test_more_connections_than_allowed_are_turned_away() -> None:
    async with serving(limits=replace(LIMITS, connections=1)) as server, calling(server) as first:
        await first.ask(b"")
        assert (await first.answer())[0] == 200
        async with calling(server) as second:
            assert (await second.answer())[0] == 503
        await first.ask(b"")
        assert (await first.answer())[0] == 200


async def test_a_caller_that_does_not_finish_is_cut_off() -> None:
    async with serving(limits=replace(LIMITS, patience_s=0.2)) as server, calling(server) as caller:
        began = asyncio.get_running_loop().time()
        caller.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
        for byte in (b"a", b"b"):  # a byte now and then buys no time
            caller.writer.write(byte)
            await asyncio.sleep(0.05)
        assert await caller.is_hung_up()
        assert asyncio.get_running_loop().time() - began < 2
        assert server.held_bytes == 0


async def test_a_slow_answer_is_not_the_callers_fault() -> None:
    async def slow(request: HttpRequest) -> Reply:
        await asyncio.sleep(0.3)
        return Reply(200, b"done")

    async with serving(slow, limits=replace(LIMITS, patience_s=0.1)) as server, calling(server) as caller:
        await caller.ask(b"")
        assert await caller.answer() == (200, b"done")


@dataclass
class Interrupted:
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: HttpRequest) -> Reply:
        self.begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.ended.set()
        return Reply(200, b"")


async def test_a_caller_that_leaves_is_not_worked_for() -> None:
    handler = Interrupted()
    async with serving(handler) as server:
        async with calling(server) as caller:
            await caller.ask(b"x" * 10)
            await handler.begun.wait()
            caller.writer.transport.abort()
        await asyncio.wait_for(handler.ended.wait(), 5)
        assert server.held_bytes == 0


async def test_a_handler_that_fails_is_a_500_and_the_next_request_is_served() -> None:
    async def moody(request: HttpRequest) -> Reply:
        if request.body == b"bad":
            raise ZeroDivisionError("ours")
        return Reply(200, request.body)

    async with serving(moody) as server, calling(server) as caller:
        await caller.ask(b"bad")
        assert await caller.answer() == (500, b"ZeroDivisionError\n")
        await caller.ask(b"good")
        assert await caller.answer() == (200, b"good")


async def test_the_end_of_the_scope_ends_what_runs() -> None:
    handler = Interrupted()
    async with serving(handler) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting())
        await Caller(reader, writer).ask(b"")
        await handler.begun.wait()
    assert handler.ended.is_set()
    writer.close()


async def test_another_certificate_serves_from_the_next_handshake_on_and_old_connections_go_on() -> None:
    context = tls()
    other = trustme.CA()
    async with serving(context=context) as server, calling(server) as old:
        await old.ask(b"1")
        assert (await old.answer())[0] == 200
        other.issue_cert("127.0.0.1").configure_cert(context)
        async with calling(server, trusting(other)) as new:
            await new.ask(b"2")
            assert (await new.answer())[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            async with calling(server, trusting()):
                pass
        await old.ask(b"3")
        assert (await old.answer())[0] == 200


async def test_without_a_certificate_handshakes_fail_and_the_server_lives() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with serving(context=context) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with calling(server):
                pass
        CA.issue_cert("127.0.0.1").configure_cert(context)
        async with calling(server) as caller:
            await caller.ask(b"")
            assert (await caller.answer())[0] == 200


async def test_a_host_that_is_not_known_is_named_with_its_flag() -> None:
    with pytest.raises(
        InputError, match=r"--bind: 'nowhere\.invalid:0' names a host that is not known; name an address"
    ):
        async with HttpServer("nowhere.invalid", 0, echo, flag="--bind"):
            pass


async def test_an_address_that_is_taken_is_named_with_its_flag() -> None:
    async with serving() as server:
        with pytest.raises(InputError, match=r"--webhook-bind: .* cannot be listened on.*choose a free port"):
            async with HttpServer("127.0.0.1", server.port, echo, tls=tls(), flag="--webhook-bind"):
                pass
