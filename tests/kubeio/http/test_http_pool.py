"""Connections are kept, shared in turn, aged out, and never given back dirty."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from kubeio.errors import Unreachable
from kubeio.http.connection import Connection
from kubeio.http.dialer import Dialer
from kubeio.http.messages import BrokenMessage
from kubeio.http.pool import Pool, PoolClosed
from kubeio.rest.client import Client
from tests.kubeio.http.wire_server import Conversation, Script, WireServer, http_answer, once, silent


def _dialer(server: WireServer) -> Dialer:
    cluster = server.cluster()
    return Dialer(cluster.endpoint, cluster.trust)


async def connection_of(
    client: Client, method: str = "GET", path: str = "/a", *, timeout_s: float = 5.0
) -> int:
    """The number of the connection that a request was answered on."""
    body = b"{}" if method != "GET" else None
    response = await client.request(method, path, body=body, timeout_s=timeout_s)
    number = json.loads(response.body)["connection"]
    assert isinstance(number, int)
    return number


async def failure_of(
    client: Client, method: str = "PATCH", *, timeout_s: float = 5.0, match: str = "."
) -> Unreachable:
    """How a request fails, in less than a second."""
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=match) as caught:
        await connection_of(client, method, timeout_s=timeout_s)
    assert time.monotonic() - begun < 1
    return caught.value


def numbered(*then: bytes | float | str) -> Script:
    """Answer one request with the connection's number, then: send bytes, pause, or call what the text names."""

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.answer({"connection": conversation.number})
        for step in then:
            if isinstance(step, bytes):
                await conversation.send(step)
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step == "request":
                await conversation.request()
            else:
                conversation.close()
        await conversation.until_closed()

    return script


def answer_after(seconds: float) -> Script:
    async def script(conversation: Conversation) -> None:
        while True:
            request = await conversation.request()
            await asyncio.sleep(seconds)
            await conversation.answer({"path": request.path, "connection": conversation.number})

    return script


async def test_connection_is_kept_between_requests(server: WireServer) -> None:
    async with server.client() as client:
        assert [await connection_of(client) for _ in range(5)] == [1, 1, 1, 1, 1]


async def test_no_more_connections_than_allowed(server: WireServer) -> None:
    most = 0

    async def script(conversation: Conversation) -> None:
        nonlocal most
        while True:
            await conversation.request()
            most = max(most, server.open)
            await asyncio.sleep(0.01)
            await conversation.answer({"connection": conversation.number})

    server.script = script
    async with server.client(max_connections=3) as client:
        numbers = await asyncio.gather(*(connection_of(client) for _ in range(20)))
    assert set(numbers) == {1, 2, 3}
    assert most == 3


async def test_who_waits_for_a_connection_is_served_in_order_of_arrival(server: WireServer) -> None:
    server.script = answer_after(0.02)
    async with server.client(max_connections=1) as client, asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(connection_of(client, path=f"/{number}"))
        await asyncio.sleep(0.021)
        group.create_task(connection_of(client, path="/late"))
    assert [request.path for request in server.requests] == ["/0", "/1", "/2", "/late"]


async def test_waiting_for_a_connection_counts_against_the_time_of_the_call(server: WireServer) -> None:
    server.script = silent
    async with server.client(max_connections=1) as client:
        holder = asyncio.ensure_future(client.request("GET", "/hold", timeout_s=5))
        await asyncio.sleep(0.05)
        assert not (await failure_of(client, timeout_s=0.2, match="no connection in time")).maybe_done
        holder.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holder


async def test_no_answer_in_time_ends_the_call_and_its_connection(server: WireServer) -> None:
    server.script = silent
    async with server.client() as client:
        assert (await failure_of(client, timeout_s=0.2, match="no answer in time")).maybe_done
        await server.until_closed()
        server.script = None
        assert await connection_of(client) == 2


async def test_shorter_deadline_counts_on_a_connection_that_served_a_longer_one(server: WireServer) -> None:
    server.script = numbered()
    async with server.client() as client:
        await connection_of(client, timeout_s=30)
        await failure_of(client, timeout_s=0.2, match="no answer in time")


async def test_later_deadline_counts_on_a_connection_that_served_a_shorter_one(server: WireServer) -> None:
    server.script = numbered("request", 0.4, http_answer({"connection": 99}))
    async with server.client() as client:
        await connection_of(client, timeout_s=0.2)
        assert await connection_of(client, timeout_s=5) == 99


async def test_cancelled_call_closes_its_connection_and_the_next_gets_its_own_answer(
    server: WireServer,
) -> None:
    server.script = answer_after(0.1)
    async with server.client(max_connections=1) as client:
        slow = asyncio.ensure_future(client.request("GET", "/slow"))
        await asyncio.sleep(0.05)
        slow.cancel()
        answer = json.loads((await client.request("GET", "/next")).body)
        assert answer == {"path": "/next", "connection": 2}
        with pytest.raises(asyncio.CancelledError):
            await slow


async def test_call_cancelled_while_waiting_passes_its_connection_on(server: WireServer) -> None:
    server.script = answer_after(0.02)
    async with server.client(max_connections=1) as client:
        calls = [asyncio.ensure_future(connection_of(client, path=f"/{n}")) for n in range(4)]
        await asyncio.sleep(0.01)
        calls[1].cancel()
        calls[2].cancel()
        assert await asyncio.wait_for(calls[3], 2) == 1
        await calls[0]
    assert "/1" not in [request.path for request in server.requests]


async def test_connection_close_header_is_obeyed(server: WireServer) -> None:
    async def polite(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.answer({"connection": conversation.number}, headers="Connection: close\r\n")
        await conversation.until_closed()

    server.script = polite
    async with server.client() as client:
        assert [await connection_of(client, "PATCH") for _ in range(3)] == [1, 2, 3]


GOES_AWAY = numbered("request", "close")
"""The kept connection dies under the next request."""


async def test_get_is_repeated_once_when_its_kept_connection_turned_out_closed(server: WireServer) -> None:
    server.script = GOES_AWAY
    async with server.client() as client:
        assert [await connection_of(client) for _ in range(2)] == [1, 2]
    assert len(server.requests) == 3


@pytest.mark.parametrize("method", ["PATCH", "POST", "PUT", "DELETE"])
async def test_write_is_never_repeated(server: WireServer, method: str) -> None:
    server.script = GOES_AWAY
    async with server.client() as client:
        assert await connection_of(client) == 1
        assert (await failure_of(client, method)).maybe_done
    assert [request.method for request in server.requests] == ["GET", method]


async def test_get_is_not_repeated_on_a_fresh_connection(server: WireServer) -> None:
    server.script = once(b"")
    async with server.client() as client:
        await failure_of(client, "GET")
    assert len(server.requests) == 1


async def test_get_is_not_repeated_when_an_answer_had_begun(server: WireServer) -> None:
    server.script = numbered("request", b"HTTP/1.1 200 OK\r\n", 0.02, "close")
    async with server.client() as client:
        await connection_of(client)
        await failure_of(client, "GET")
    assert len(server.requests) == 2


@pytest.mark.parametrize("after_s", [0.0, 0.02], ids=["at once", "while idle"])
async def test_unrequested_bytes_spoil_the_connection(server: WireServer, after_s: float) -> None:
    unasked = http_answer({"message": "you were idle"}, status=408)
    server.script = numbered(after_s, unasked) if after_s else numbered(unasked)
    async with server.client() as client:
        assert await connection_of(client, "PATCH") == 1
        await server.until_closed()
        assert await connection_of(client, "PATCH") == 2


async def test_get_is_not_repeated_twice(server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        if conversation.number <= 3:
            await asyncio.sleep(0.02)
            await conversation.answer({"connection": conversation.number})
            await conversation.request()
        conversation.close()

    server.script = script
    async with server.client() as client:
        await asyncio.gather(*(connection_of(client) for _ in range(3)))
        await failure_of(client, "GET")
    assert len(server.requests) == 5, "one of the kept ones, then a fresh one, and no more"


async def test_closed_client_refuses_and_ends_calls_under_way(server: WireServer) -> None:
    server.script = silent
    client = server.client(max_connections=1)
    calls = [asyncio.ensure_future(client.request("GET", "/a")) for _ in range(3)]
    await asyncio.sleep(0.05)
    await client.close()
    for call in calls:
        with pytest.raises(Unreachable):
            await asyncio.wait_for(call, 2)
    assert not (await failure_of(client, match="closed")).maybe_done


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("https://127.0.0.1:1", r"PATCH /a on https://127.0.0.1:1: cannot connect: .*refused"),
        ("https://nowhere.invalid:6443", "name is not known"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_reported_and_nothing_was_done(
    server: WireServer, url: str, reported: str
) -> None:
    async with server.client(cluster=server.cluster(url=url)) as client:
        assert not (await failure_of(client, match=reported)).maybe_done


async def test_server_that_accepts_and_says_nothing_is_given_up_in_time(
    plain_server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_server.script = Conversation.until_closed
    cluster = plain_server.cluster(url=plain_server.url.replace("http:", "https:"))
    async with plain_server.client(cluster=cluster) as client:
        await failure_of(client, timeout_s=0.2, match="no connection in time")
        monkeypatch.setattr("kubeio.http.dialer.CONNECT_TIMEOUT_S", 0.2)
        assert not (await failure_of(client, match=r"no connection within 0\.2 s")).maybe_done
        with pytest.raises(Unreachable, match=r"no connection within 0\.2 s"):
            async with client.stream("/w"):
                pytest.fail("there is no stream")


async def test_failed_dials_give_their_slots_back(server: WireServer) -> None:
    async def dial(identity: object) -> Connection:
        await asyncio.sleep(0)
        raise BrokenMessage("no", sent=False, answered=False)

    pool = Pool(dial, limit=2)
    for _ in range(5):
        results = await asyncio.gather(*(pool.acquire(None) for _ in range(6)), return_exceptions=True)
        assert all(isinstance(result, BrokenMessage) for result in results)
    await pool.close()
    with pytest.raises(PoolClosed):
        await pool.acquire(None)


async def test_long_idle_connections_are_closed(server: WireServer) -> None:
    """The one that was used since outlives the others."""
    pool = Pool(_dialer(server).dial, limit=4, max_idle_s=2.0)
    connections = await asyncio.gather(*(pool.acquire(None) for _ in range(3)))
    for connection in connections:
        pool.release(connection)
    await asyncio.sleep(1.0)
    assert server.open == 3
    kept = pool.take(None)
    assert kept is not None
    pool.release(kept)
    seen = [server.open]
    async with asyncio.timeout(30):
        while seen[-1]:
            await asyncio.sleep(0.01)
            seen += [server.open] if server.open != seen[-1] else []
    assert 1 in seen, "the connection that was used last was closed with the others"
    await pool.close()


async def test_kept_connection_that_the_server_closed_is_replaced(server: WireServer) -> None:
    leave = asyncio.Event()

    async def leaving(conversation: Conversation) -> None:
        await leave.wait()

    server.script = leaving
    pool = Pool(_dialer(server).dial, limit=1)
    connection = await pool.acquire(None)
    await asyncio.sleep(0.01)  # the last bytes of the handshake go out
    pool.release(connection)
    leave.set()
    await connection.wait_closed()
    async with asyncio.timeout(2):
        assert await pool.acquire(None) is not connection, "its slot is free"
    await pool.close()


@pytest.mark.parametrize("given", ["connection", "slot"])
async def test_connection_that_comes_together_with_a_cancellation_is_passed_on(
    server: WireServer, given: str
) -> None:
    pool = Pool(_dialer(server).dial, limit=1)
    connection = await pool.acquire(None)
    await asyncio.sleep(0.01)
    first, second = (asyncio.ensure_future(pool.acquire(None)) for _ in range(2))
    await asyncio.sleep(0)
    pool.release(connection) if given == "connection" else pool.discard(connection)
    first.cancel()
    got = await asyncio.wait_for(second, 2)
    assert (got is connection) is (given == "connection")
    with pytest.raises(asyncio.CancelledError):
        await first
    pool.discard(got)
    async with asyncio.timeout(2):
        assert await pool.acquire(None) is not got
    await pool.close()


async def test_storm_of_cancellations_leaves_no_slot_behind(server: WireServer) -> None:
    server.script = answer_after(0.003)
    async with server.client(max_connections=4) as client:
        for round_ in range(10):
            calls = [asyncio.ensure_future(connection_of(client)) for _ in range(12)]
            await asyncio.sleep(0.001 * round_)
            for call in calls[::2]:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        results = await asyncio.gather(*(connection_of(client) for _ in range(4)))
        assert len(results) == 4
        assert server.open <= 4
