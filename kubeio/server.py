"""Probes and metrics on one small HTTP server: GET and HEAD, nothing else. Parsing is httptools'.

`/livez` and `/healthz` say whether the process should go on, `/readyz` whether it works, `/metrics` what it counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final

import httptools
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from kubeio.errors import InputError

Check = Callable[[], str | None]
"""None: well; else why not."""

_REQUEST_S: Final = 10.0
_MAX_HEAD: Final = 16 * 1024
_PLAIN: Final = "text/plain; charset=utf-8"
_NO_CHECKS: Final[Mapping[str, Check]] = {}
_NO_ROUTES: Final[Mapping[str, Callable[[], bytes]]] = {}


def parse_bind(field: str, bind: str) -> tuple[str, int]:
    """Host and port of *bind*, `host:port` or `[v6]:port`; an empty host is every interface.

    Raises: InputError naming *field*.
    """
    host, colon, port = bind.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_v6 = bare != host
    if not colon or not port.isdigit() or int(port) > 65535 or (":" in bare and not is_v6):
        remedy = "write HOST:PORT, such as 127.0.0.1:8081 or [::1]:8081; port 0 picks a free one"
        raise InputError(field, bind, "is not an address", remedy)
    return bare or "0.0.0.0", int(port)


class ProbeServer:
    """Serves until its block ends. *checks* is by endpoint: `healthz` (also served as `/livez`) and `readyz`.

    *routes* are further paths with JSON bodies. `port` is the one that was bound, also if 0 was asked for.
    """

    def __init__(
        self,
        bind: str,
        port: int,
        registry: CollectorRegistry,
        checks: Mapping[str, Check] = _NO_CHECKS,
        *,
        routes: Mapping[str, Callable[[], bytes]] = _NO_ROUTES,
    ) -> None:
        self._bind = bind
        self.port = port
        self._registry = registry
        self._checks = checks
        self._routes = routes
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> ProbeServer:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Exchange(self.answer), self._bind, self.port)
        except OSError as error:
            where = f"{self._bind}:{self.port}"
            reason = error.strerror or str(error)
            raise InputError(
                "--probes-bind", where, f"cannot be bound ({reason})", "use a free port, or 0"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for one request."""
        if method not in ("GET", "HEAD"):
            return 405, _PLAIN, b"only GET and HEAD are served\n"
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if path in ("/healthz", "/livez", "/readyz"):
            return self._probe("readyz" if path == "/readyz" else "healthz")
        route = self._routes.get(path)
        if route is None:
            return 404, _PLAIN, b"not found: /livez, /readyz and /metrics are served\n"
        return 200, "application/json", route()

    def _probe(self, name: str) -> tuple[int, str, bytes]:
        check = self._checks.get(name)
        problem = check() if check is not None else None
        if problem is None:
            return 200, _PLAIN, b"ok\n"
        return 503, _PLAIN, f"{problem}\n".encode()


class _Exchange(asyncio.Protocol):
    """One connection: one request at a time, closed when it is slow or says too much."""

    def __init__(self, answer: Callable[[str, str], tuple[int, str, bytes]]) -> None:
        self._answer = answer
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._received = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio's promise for TCP servers
        self._transport = transport
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > _MAX_HEAD:
            self._close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._respond(400, _PLAIN, b"not an HTTP request\n", keep=False)

    # httptools' callbacks

    def on_message_begin(self) -> None:
        self._url = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_message_complete(self) -> None:
        self._received = 0
        method = self._parser.get_method().decode()
        path = self._url.split(b"?", 1)[0].decode("latin-1")
        status, kind, body = self._answer(method, path)
        keep = self._parser.should_keep_alive()
        self._respond(status, kind, body, keep=keep, with_body=method != "HEAD")

    def _respond(self, status: int, kind: str, body: bytes, *, keep: bool, with_body: bool = True) -> None:
        if self._transport is None:
            return
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"Cache-Control: no-store\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        )
        self._transport.write(head.encode() + (body if with_body else b""))
        if keep:
            self._arm()
        else:
            self._close()

    def _arm(self) -> None:
        self._disarm()
        self._deadline = asyncio.get_running_loop().call_later(_REQUEST_S, self._close)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
