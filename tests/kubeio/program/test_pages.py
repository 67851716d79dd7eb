"""Guarded pages and streams, as browsers and strangers meet them: over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeio.clock import ManualClock
from kubeio.program import pages
from kubeio.program.access_gate import AccessGate, RequestOrigin
from kubeio.program.http_server import HttpServer, Limits, Reply, ServerConnection, Stream
from kubeio.program.pages import NO_PAGE, GuardedPages
from kubeio.rest.reviews import User

HOME = Reply(200, b"<!doctype html>home", "text/html; charset=utf-8", (("Content-Security-Policy", "x"),))


async def home(below: list[str]) -> Reply:
    return NO_PAGE if below else HOME


class Reviews:
    """Knows the token `good` of one who may, and `other` of one who may not; `down` cannot be asked about."""

    def __init__(self) -> None:
        self.is_away = False
        self.revoked = ""

    async def bearer(self, token: str) -> User | None:
        if token == "down" or self.is_away:
            raise TimeoutError
        return User(username=token) if token in ("good", "other") and token != self.revoked else None

    async def may(self, user: User, *, verb: str, path: str) -> bool:
        assert (verb, path) == ("get", "/page")
        return user.username == "good"


async def echo(below: list[str]) -> Reply:
    if below == ["fails"]:
        raise ValueError
    return Reply(200, repr(below).encode(), "application/json")


class Ticker:
    """A stream of three lines, and of more when it is asked for."""

    def __init__(self) -> None:
        self.connections: list[ServerConnection] = []
        self.came = asyncio.Event()
        self.left = asyncio.Event()

    async def open(self, below: list[str]) -> Reply | Stream:
        return NO_PAGE if below else Stream("text/event-stream", self.send)

    async def send(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        self.came.set()
        try:
            connection.push(b"one\n\n")
            await asyncio.Event().wait()
        finally:
            self.left.set()


@asynccontextmanager
async def site(
    ticker: Ticker | None = None,
    *,
    patience_s: float = 15.0,
    reviews: Reviews | None = None,
    clock: ManualClock | None = None,
) -> AsyncIterator[HttpServer]:
    ticker = ticker or Ticker()
    gate = AccessGate(reviews or Reviews(), path="/page", clock=clock or ManualClock())
    guarded = GuardedPages(
        gate, {"/": home, "/echo": echo, "/echo/events": ticker.open, "/events": ticker.open}
    )
    limits = Limits(patience_s=patience_s)
    async with HttpServer("127.0.0.1", 0, guarded.answer, flag="--bind", limits=limits) as server:
        yield server


async def ask(
    at: HttpServer, target: str, headers: str = "", *, host: str = "127.0.0.1", method: str = "GET"
) -> tuple[int, str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), head, body


async def test_this_machine_sees_everything() -> None:
    async with site() as at:
        status, head, body = await ask(at, "/")
        assert (status, body) == (200, "<!doctype html>home")
        assert "Content-Security-Policy: x" in head
        assert (await ask(at, "/echo/a%2Fb/c?x=1"))[2] == "['a/b', 'c']"


@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("bad", 401), ("other", 403), ("down", 503), ("good", 200)]
)
@pytest.mark.parametrize("target", ["/", "/echo/a", "/events"])
async def test_others_need_a_token_with_the_right(target: str, token: str, status: int) -> None:
    headers = f"Authorization: Bearer {token}\r\n" if token else ""
    async with site() as at:
        found, head, body = await ask(at, target, headers, host="page.example.com", method="HEAD")
        assert found == status
        assert body == ""
        assert ("WWW-Authenticate: Bearer" in head) == (status == 401)


async def test_the_longest_path_is_the_page() -> None:
    async with site() as at:
        assert (await ask(at, "/echo/event"))[2] == "['event']"
        assert "text/event-stream" in (await ask(at, "/echo/events", method="HEAD"))[1]
        assert (await ask(at, "/echo/events/more"))[0] == 404


async def test_pages_of_other_sites_fetch_nothing() -> None:
    async with site() as at:
        for where in ("cross-site", "same-site"):
            headers = f"Sec-Fetch-Site: {where}\r\nSec-Fetch-Mode: no-cors\r\n"
            assert (await ask(at, "/echo/a", headers))[0] == 401
            assert (await ask(at, "/", headers.replace("no-cors", "navigate")))[0] == 200
        assert (await ask(at, "/echo/a", "Sec-Fetch-Site: same-origin\r\n"))[0] == 200


def test_a_link_may_be_followed_from_anywhere() -> None:
    here = RequestOrigin("127.0.0.1", "localhost:8085", fetch_site="cross-site", fetch_mode="navigate")
    assert here.is_local
    assert not here._replace(fetch_mode="cors").is_local


async def test_there_is_nothing_else_and_nothing_is_written() -> None:
    async with site() as at:
        for target in ("/other", "/events/more", "/metrics", "//"):
            assert (await ask(at, target))[0] == 404
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert (await ask(at, "/echo/a", method=method))[0] == 405


async def test_a_page_that_fails_is_told_and_the_others_go_on() -> None:
    async with site() as at:
        assert (await ask(at, "/echo/fails"))[::2] == (500, "ValueError\n")
        assert (await ask(at, "/echo/a"))[0] == 200


async def test_a_stream_goes_on_past_the_patience_and_ends_with_its_visitor() -> None:
    ticker = Ticker()
    async with site(ticker, patience_s=0.2) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Type: text/event-stream" in head
        assert b"Content-Length" not in head
        assert await reader.readuntil(b"\n\n") == b"one\n\n"
        await asyncio.sleep(0.5)
        ticker.connections[0].push(b"two\n\n")
        assert await reader.readuntil(b"\n\n") == b"two\n\n"
        writer.close()
        await asyncio.wait_for(ticker.left.wait(), 5)


async def test_a_visitor_who_fetches_nothing_is_cut_after_the_patience() -> None:
    ticker = Ticker()
    async with site(ticker, patience_s=0.3) as at:
        _, writer = await asyncio.open_connection("127.0.0.1", at.port, limit=1)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await ticker.came.wait()
        for _ in range(200):
            ticker.connections[0].push(b"x" * 100_000)
        assert ticker.connections[0].is_backed_up
        await asyncio.wait_for(ticker.left.wait(), 5)
        writer.close()


async def test_a_stream_ends_when_its_token_is_revoked_and_outlives_an_outage_of_the_api_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "REVIEW_S", 0.05)
    ticker, reviews, clock = Ticker(), Reviews(), ManualClock()
    async with site(ticker, reviews=reviews, clock=clock) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(b"GET /events HTTP/1.1\r\nHost: page.example.com\r\nAuthorization: Bearer good\r\n\r\n")
        await reader.readuntil(b"one\n\n")
        reviews.is_away = True
        clock.advance(11)
        await asyncio.sleep(0.3)
        ticker.connections[0].push(b"two\n\n")
        assert await asyncio.wait_for(reader.readuntil(b"\n\n"), 30) == b"two\n\n"
        reviews.is_away, reviews.revoked = False, "good"
        await asyncio.wait_for(ticker.left.wait(), 30)
        writer.close()


async def test_the_server_ends_while_somebody_looks() -> None:
    async with site() as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\n\n")
    assert await asyncio.wait_for(reader.read(), 5) in (b"", b"one\n\n")
    writer.close()
