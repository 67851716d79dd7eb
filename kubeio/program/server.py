"""Probes and metrics over one small HTTP server: GET and HEAD only, nothing is ever read from a body.

Owns its sockets and their limits; knows nothing of what is healthy (that are the checks passed in). Started
by every process of ours: `sharder.app`, `shard_controller.app`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, cast
from urllib.parse import unquote

import httptools
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kubeio.errors import InputError
from kubeio.program.door import Door, Entry, Visitor

_log = structlog.get_logger("kubeio")
_PATIENCE_S: Final = 15.0
"""To send a whole request, and to fetch an answer; also how long an idle connection is kept."""
_MAX_HEAD_BYTES: Final = 16 * 1024
_MAX_CONNECTIONS: Final = 100
_TEXT: Final = "text/plain; charset=utf-8"
_NOBODY: Final = Visitor()
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Check = Callable[[], str | None]
"""None: fine. Text: why not."""

Page = Callable[[str], bytes | None]
"""What stands at a path below its own (`/ns/name`; empty for itself); None: nothing does."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """Pages by the path that they begin with, for those whom *door* admits."""

    pages: Mapping[str, Page]
    door: Door

    def find(self, path: str) -> tuple[Page, str] | None:
        """The page for *path* and what is left of it."""
        for begin, page in self.pages.items():
            if path == begin or path.startswith(begin + "/"):
                return page, path[len(begin) :]
        return None


class Reply(NamedTuple):
    status: int
    content_type: str
    body: bytes


_TURNED_AWAY: Final = {
    Entry.UNKNOWN: b"only from this machine, or with a bearer token that the API server accepts\n",
    Entry.DENIED: b"the account has no right to get this nonResourceURL\n",
    Entry.UNDECIDED: b"the API server could not be asked about the token; see the log\n",
}


def parse_bind(field: str, bind: str) -> tuple[str, int]:
    """Host and port of *bind*: `host:port` or `[v6]:port`; an empty host is every interface.

    Raises: InputError naming *field*.
    """
    host, colon, port = bind.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        remedy = "write HOST:PORT, such as 127.0.0.1:8081 or [::1]:8081; port 0 picks a free one"
        raise InputError(field, bind, "is not an address", remedy)
    return bare or "0.0.0.0", int(port)


def write_port(path: Path | None, port: int) -> None:
    """Make *port* known in one step: readers never see half a file.

    Raises: InputError if *path* cannot be written to.
    """
    if path is None:
        return
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_text(f"{port}\n")
        fresh.replace(path)
    except OSError as error:
        raise InputError(
            "--probes-port-file",
            str(path),
            f"cannot be written to ({error.strerror})",
            "name a file in a folder that exists",
        ) from None


class ProbeServer:
    """`/healthz`, `/livez`, `/readyz`, `/metrics` and *routes*, while the scope lasts; `port` is known inside.

    *checks* count for all three probes, *ready_checks* for `/readyz` only: what a restart would not cure belongs
    there. `?verbose=1` lists every check; a probe that fails always does. A check that raises has failed.
    *routes* give the bytes of a page; HTML, JSON and SVG are recognised. *guarded* pages are for those whom
    their door admits. Raises InputError if the address is taken.
    """

    def __init__(
        self,
        bind: str,
        port: int,
        registry: CollectorRegistry,
        checks: Mapping[str, Check],
        routes: Mapping[str, Callable[[], bytes]] = MappingProxyType({}),
        *,
        ready_checks: Mapping[str, Check] = MappingProxyType({}),
        guarded: Guarded | None = None,
        patience_s: float = _PATIENCE_S,
        max_connections: int = _MAX_CONNECTIONS,
    ) -> None:
        self.bind: Final = bind
        self.port = port
        self.patience_s: Final = patience_s
        self.connections: set[_Connection] = set()
        self._registry = registry
        self._checks = checks
        self._ready_checks = ready_checks
        self._routes = routes
        self._guarded = guarded
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> ProbeServer:
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: _Connection(self), self.bind, self.port
            )
        except OSError as error:
            raise InputError(
                "--probes-bind",
                f"{self.bind}:{self.port}",
                f"cannot be listened on ({os.strerror(error.errno).lower() if error.errno else error})",
                "choose a free port, or 0 for any",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.abort()
            # what ended the block is the block's: only visitors who are being asked about are waited for here
            await self._tasks.__aexit__(None, None, None)
            await self._server.wait_closed()

    @property
    def is_full(self) -> bool:
        return len(self.connections) >= self._max_connections

    def answer(self, method: str, target: str, accept: str, visitor: Visitor = _NOBODY) -> Reply | None:
        """The answer to one request; None if the API server must be asked about *visitor* first: see `ask`."""
        path = unquote(target.partition("?")[0])
        if method not in ("GET", "HEAD"):
            return Reply(405, _TEXT, b"only GET and HEAD\n")
        if self._guarded is not None and self._guarded.find(path) is not None:
            entry = self._guarded.door.at_once(visitor)
            return None if entry is None else self._behind_the_door(path, entry)
        return self._shown(path, lambda: self._page(path, target.partition("?")[2], accept))

    def ask(self, connection: _Connection, target: str, visitor: Visitor) -> asyncio.Task[None]:
        """Answer *connection* once it is known whether *visitor* may see *target*."""
        path = unquote(target.partition("?")[0])
        return self._tasks.create_task(self._ask(connection, path, visitor), name="visitor")

    async def _ask(self, connection: _Connection, path: str, visitor: Visitor) -> None:
        entry = Entry.UNDECIDED
        try:
            if self._guarded is not None:
                entry = await self._guarded.door.admit(visitor)
        except Exception:
            # whoever asks must get an answer, and the server must go on
            _log.exception("visitor not reviewed", path=path)
        connection.answer(self._behind_the_door(path, entry))

    def _behind_the_door(self, path: str, entry: Entry) -> Reply:
        if entry is not Entry.ADMITTED:
            return Reply(entry.value, _TEXT, _TURNED_AWAY[entry])
        return self._shown(path, lambda: self._inner_page(path))

    def _inner_page(self, path: str) -> Reply:
        found = self._guarded.find(path) if self._guarded is not None else None
        body = found[0](found[1]) if found is not None else None
        return Reply(404, _TEXT, b"no such page\n") if body is None else Reply(200, _content_type(body), body)

    @staticmethod
    def _shown(path: str, page: Callable[[], Reply]) -> Reply:
        try:
            return page()
        except Exception as error:
            # A page that fails must neither end the process nor hide: the probe's reader gets a 500.
            _log.exception("page failed", path=path)
            return Reply(500, _TEXT, f"{type(error).__name__}\n".encode())

    def _page(self, path: str, query: str, accept: str) -> Reply:
        match path:
            case "/healthz" | "/livez":
                return _probe(self._checks, is_verbose=_is_verbose(query))
            case "/readyz":
                return _probe({**self._checks, **self._ready_checks}, is_verbose=_is_verbose(query))
            case "/metrics":
                encode, content_type = choose_encoder(accept)
                return Reply(200, content_type, encode(self._registry))
        route = self._routes.get(path)
        if route is None:
            return Reply(404, _TEXT, b"no such page\n")
        body = route()
        return Reply(200, _content_type(body), body)


def _is_verbose(query: str) -> bool:
    return any(part in ("verbose", "verbose=1", "verbose=true", "verbose=") for part in query.split("&"))


def _probe(checks: Mapping[str, Check], *, is_verbose: bool) -> Reply:
    problems = {name: _run(check) for name, check in checks.items()}
    is_fine = not any(problems.values())
    if is_fine and not is_verbose:
        return Reply(200, _TEXT, b"ok\n")
    lines = [f"[-] {name}: {why}" if why else f"[+] {name}: ok" for name, why in problems.items()]
    lines.append("ok" if is_fine else "failed")
    return Reply(200 if is_fine else 503, _TEXT, ("\n".join(lines) + "\n").encode())


def _run(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        # What cannot be checked is not healthy.
        return f"the check failed ({type(error).__name__}: {error})"


def _content_type(body: bytes) -> str:
    head = body[:32].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "text/html; charset=utf-8"
    if head.startswith(b"<svg"):
        return "image/svg+xml"
    return "application/json" if head.startswith((b"{", b"[")) else _TEXT


class _Connection(asyncio.Protocol):
    """One client. Cut when it has not sent a whole request, or not fetched its answer, in time."""

    def __init__(self, server: ProbeServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._head_bytes = 0
        self._target = b""
        self._accept = ""
        self._has_body = False
        self._visitor = _NOBODY
        self._asking: asyncio.Task[None] | None = None
        self._is_asked_for_head = False

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods but not the type
        self._transport = cast(asyncio.Transport, transport)
        self._wait_again()
        if self._server.is_full:
            self._send(Reply(503, _TEXT, b"too many connections\n"), is_last=True)
        else:
            self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._asking is not None:
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._send(Reply(400, _TEXT, b"no upgrades\n"), is_last=True)
        except httptools.HttpParserError:
            self._send(Reply(400, _TEXT, b"not HTTP/1.1\n"), is_last=True)
        else:
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._send(Reply(431, _TEXT, b"the request is too large\n"), is_last=True)

    def pause_writing(self) -> None:
        """The client does not fetch what it asked for: ask it nothing more until it does."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._wait_again()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- httptools' callbacks

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"accept":
                self._accept = value.decode("latin-1")
            case b"content-length":
                self._has_body = value.strip() != b"0"
            case b"transfer-encoding":
                self._has_body = True
            case b"host":
                self._visitor = self._visitor._replace(host=value.decode("latin-1"))
            case b"authorization":
                self._visitor = self._visitor._replace(authorization=value.decode("latin-1"))
            case b"forwarded" | b"x-forwarded-for" | b"x-forwarded-host" | b"x-real-ip":
                self._visitor = self._visitor._replace(is_forwarded=True)

    def on_headers_complete(self) -> None:
        if self._asking is not None or self._transport is None:
            return
        method = self._parser.get_method().decode("latin-1")
        if self._has_body and method in ("GET", "HEAD"):
            self._send(Reply(400, _TEXT, b"no body is read\n"), is_last=True)
            return
        target = self._target.decode("latin-1")
        peer = self._transport.get_extra_info("peername")
        visitor = self._visitor._replace(address=str(peer[0]) if peer else "")
        reply = self._server.answer(method, target, self._accept, visitor)
        if reply is None:
            self._asking, self._is_asked_for_head = self._server.ask(self, target, visitor), method == "HEAD"
            return
        is_last = reply.status in (401, 405) or not self._parser.should_keep_alive()
        self._send(reply, is_head=method == "HEAD", is_last=is_last)

    def on_message_complete(self) -> None:
        self._target = b""
        self._accept = ""
        self._has_body = False
        self._visitor = _NOBODY
        self._head_bytes = 0
        self._wait_again()

    def answer(self, reply: Reply) -> None:
        """Called by the server when the visitor has been asked about. Whatever came meanwhile is not looked at."""
        self._asking = None
        self._send(reply, is_head=self._is_asked_for_head, is_last=True)

    # -- inside

    def _wait_again(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(self._server.patience_s, self.abort)

    def _send(self, reply: Reply, *, is_head: bool = False, is_last: bool = False) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\nContent-Type: {reply.content_type}\r\n"
            f"Content-Length: {len(reply.body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            + ("Allow: GET, HEAD\r\n" if reply.status == 405 else "")
            + ("WWW-Authenticate: Bearer\r\n" if reply.status == 401 else "")
            + ("Connection: close\r\n" if is_last else "")
            + "\r\n"
        )
        self._transport.write(head.encode("latin-1") + (b"" if is_head else reply.body))
        if is_last:
            self._transport.close()
