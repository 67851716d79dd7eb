"""A link under a real TLS exchange: held, cut, slowed; the other side sees what a network would show."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import trustme

from devcluster.link import Link


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest_asyncio.fixture
async def server_port(authority: trustme.CA) -> AsyncIterator[int]:
    """A TLS server that answers each line with the line."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls, limit=2**21)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


class Caller:
    """A client of the echo server, through a link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def through(cls, link: Link, tls: ssl.SSLContext) -> Caller:
        connected = asyncio.open_connection("127.0.0.1", link.port, ssl=tls, limit=2**21)
        return cls(*await asyncio.wait_for(connected, 5))

    async def say(self, line: bytes, *, timeout_s: float = 5) -> bytes:
        self._writer.write(line)
        await self._writer.drain()
        return await asyncio.wait_for(self._reader.readline(), timeout_s)

    async def hear(self, timeout_s: float = 5) -> bytes:
        return await asyncio.wait_for(self._reader.readline(), timeout_s)

    def hang_up(self) -> None:
        self._writer.transport.abort()


@pytest_asyncio.fixture
async def link(server_port: int) -> AsyncIterator[Link]:
    async with Link("127.0.0.1", server_port) as link:
        yield link


@pytest_asyncio.fixture
async def caller(link: Link, tls: ssl.SSLContext) -> AsyncIterator[Caller]:
    """A client whose connection across the link stands."""
    caller = await Caller.through(link, tls)
    yield caller
    caller.hang_up()


async def test_bytes_pass_both_ways_under_the_servers_own_certificate(link: Link, caller: Caller) -> None:
    assert link.url == f"https://127.0.0.1:{link.port}"
    assert await caller.say(b"hello\n") == b"hello\n"
    long = b"x" * 1_000_000 + b"\n"
    assert await caller.say(long) == long
    assert link.connections == 1


async def test_held_bytes_wait_and_then_arrive_in_order(link: Link, caller: Caller) -> None:
    assert await caller.say(b"before\n") == b"before\n"
    link.hold()
    for line in (b"first\n", b"second\n"):
        with pytest.raises(TimeoutError):
            await caller.say(line, timeout_s=0.2)
    assert link.held_up == 1
    link.release()
    assert link.held_up == 0
    assert [await caller.hear(), await caller.hear()] == [b"first\n", b"second\n"]


class Listener:
    """A plain server: what it heard, and how the last connection ended."""

    def __init__(self) -> None:
        self.heard = b""
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1024):
                self.heard += chunk
                writer.write(b"answer")
            self.end.set_result("closed")
        except ConnectionResetError:
            self.end.set_result("reset")
        finally:
            writer.close()


@pytest.mark.parametrize("ending", ["closed", "reset"])
async def test_what_was_sent_arrives_after_its_sender_is_gone(ending: str) -> None:
    listener = Listener()
    server = await asyncio.start_server(listener.listen, "127.0.0.1", 0)
    async with server, Link("127.0.0.1", server.sockets[0].getsockname()[1]) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"one")
        assert await reader.read(16) == b"answer"
        link.hold()
        writer.write(b"two")
        await asyncio.sleep(0.05)  # the link has it
        if ending == "reset":
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await asyncio.sleep(0.1)
        assert (listener.heard, listener.end.done()) == (b"one", False)
        link.release()
        assert await asyncio.wait_for(listener.end, 5) == ending
        assert listener.heard == b"onetwo"


async def test_what_the_server_sends_to_a_sender_that_is_gone_does_not_stop_what_that_had_sent() -> None:
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send without a pause, as a watch does; hear one message."""
        writer.write(b"-" * 1_000_000)
        got.set_result(await reader.read(16))
        writer.transport.abort()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with server, Link("127.0.0.1", server.sockets[0].getsockname()[1]) as link:
        link.hold()
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        await asyncio.sleep(0.1)
        link.delay_s = 0.3  # so that the server's bytes meet the closed door first
        writer.write(b"late")
        await asyncio.sleep(0.05)
        writer.transport.abort()
        link.release()
        assert await asyncio.wait_for(got, 5) == b"late"


async def test_new_connection_across_a_held_link_stands_but_shakes_no_hands(
    link: Link, tls: ssl.SSLContext
) -> None:
    link.hold()
    connecting = asyncio.ensure_future(Caller.through(link, tls))
    await asyncio.sleep(0.2)
    assert not connecting.done()
    assert link.connections == 1
    link.release()
    caller = await connecting
    assert await caller.say(b"late\n") == b"late\n"
    caller.hang_up()


async def test_cut_link_resets_what_stands_and_refuses_what_comes(
    link: Link, caller: Caller, tls: ssl.SSLContext
) -> None:
    await caller.say(b"hello\n")
    link.cut()
    with pytest.raises(ConnectionResetError):
        await caller.hear()
    assert link.is_cut
    assert link.connections == 0
    with pytest.raises(ConnectionRefusedError):
        await Caller.through(link, tls)
    port = link.port
    link.restore()
    assert link.port == port
    again = await Caller.through(link, tls)
    assert await again.say(b"again\n") == b"again\n"
    again.hang_up()


async def test_cut_and_restored_at_once_still_resets(link: Link, caller: Caller, tls: ssl.SSLContext) -> None:
    link.cut()
    link.restore()
    with pytest.raises(ConnectionResetError):
        await caller.hear()
    again = await Caller.through(link, tls)
    assert await again.say(b"again\n") == b"again\n"
    again.hang_up()


async def test_held_connection_can_be_cut(link: Link, caller: Caller) -> None:
    link.hold()
    with pytest.raises(TimeoutError):
        await caller.say(b"lost\n", timeout_s=0.1)
    link.cut()
    with pytest.raises(ConnectionResetError):
        await caller.hear()


async def test_delay_is_added_in_each_direction_and_does_not_add_up_over_chunks(
    link: Link, caller: Caller
) -> None:
    await caller.say(b"warm\n")
    link.delay_s = 0.15
    for line, within_s in ((b"slow\n", 0.6), (b"x" * 1_000_000 + b"\n", 1.0)):
        began = time.monotonic()
        await caller.say(line)
        assert 0.29 < time.monotonic() - began < within_s


async def test_server_that_is_away_resets_the_caller(unused_tcp_port: int) -> None:
    async with Link("127.0.0.1", unused_tcp_port) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5)
        writer.close()


async def test_end_of_one_side_reaches_the_other(link: Link, caller: Caller) -> None:
    await caller.say(b"bye\n")
    caller.hang_up()
    async with asyncio.timeout(5):
        while link.connections:  # noqa: ASYNC110 - the other side's end
            await asyncio.sleep(0.01)


async def test_failure_in_the_block_comes_out_as_it_is(server_port: int, tls: ssl.SSLContext) -> None:
    ports = []

    async def fail() -> None:
        async with Link("127.0.0.1", server_port) as link:
            ports.append(link.port)
            (await Caller.through(link, tls)).hang_up()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", ports[0])


async def test_link_that_was_not_entered_has_no_port() -> None:
    link = Link("127.0.0.1", 1)
    with pytest.raises(RuntimeError, match="not been entered"):
        _ = link.port
