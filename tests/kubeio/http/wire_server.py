"""A small server that does on its sockets exactly what a test tells it: whole answers, halves, resets, silence.

A script is a coroutine function that gets a `Conversation`: it reads requests and writes bytes. Each new
connection runs the script anew.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import trustme

from kubeio.access.cluster import Cluster, parse_server
from kubeio.access.credentials import FixedCredentials
from kubeio.http.endpoint import Credential, Credentials, Endpoint, Proxy, Trust
from kubeio.rest.client import Client

TOKEN = Credential("Bearer secret")


class Tls:
    """A CA and certificates that it signed."""

    def __init__(self, authority: trustme.CA) -> None:
        self.authority = authority
        self.ca_pem = authority.cert_pem.bytes()

    def server_context(self, *names: str, client_ca: bool = False) -> ssl.SSLContext:
        """A server's context with a certificate for *names* (loopback); *client_ca*: clients must show one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(*(names or ("127.0.0.1", "::1", "localhost"))).configure_cert(context)
        if client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.ca_pem.decode())
        return context


@dataclass(frozen=True, slots=True)
class Request:
    """What came."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    repeated: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class Hangup(Exception):
    """The client closed."""


class Conversation:
    """One connection as the server sees it."""

    def __init__(
        self, server: WireServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.number = server.connections

    async def request(self) -> Request:
        """The next request, whole; noted in `server.requests`. Raises Hangup."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError) as error:
            raise Hangup from error
        first, *lines = head[:-4].split("\r\n")
        method, target, version = first.split(" ")
        assert version == "HTTP/1.1"
        pairs = tuple((name.lower(), value) for name, _, value in (line.partition(": ") for line in lines))
        headers = dict(pairs)
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body, pairs)
        self.server.requests.append(request)
        return request

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: object = None, *, status: int = 200, headers: str = "") -> None:
        await self.send(http_answer(body, status=status, headers=headers))

    def reset(self) -> None:
        """Close by RST: the peer's kernel throws away what it has not yet read."""
        sock = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """Close at once."""
        self.writer.transport.abort()

    async def until_closed(self) -> None:
        """Wait until the client goes away."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Conversation], Awaitable[None]]


@dataclass
class WireServer:
    """Listens on loopback; `script` may be changed between requests."""

    tls: Tls | None
    context: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    script: Script | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    failures: list[BaseException] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        if self.tls is not None and self.context is None:
            self.context = self.tls.server_context()
        self._server = await asyncio.start_server(self._serve, self.host, 0, ssl=self.context, limit=2**22)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # transports that were aborted say goodbye
        assert not self.failures, self.failures

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.context else 'http'}://{host}:{self.port}"

    def cluster(
        self,
        *,
        credentials: Credentials | None = None,
        url: str = "",
        trust: Trust | None = None,
        proxy: Proxy | None = None,
        impersonation: tuple[tuple[str, str], ...] = (),
    ) -> Cluster:
        server = url or self.url
        endpoint: Endpoint = parse_server(server, field_="server")
        return Cluster(
            server=server,
            namespace="default",
            user="tester",
            endpoint=endpoint,
            trust=trust or Trust(ca=self.tls.ca_pem if self.tls else b""),
            proxy=proxy,
            impersonation=impersonation,
            credentials=credentials or FixedCredentials(TOKEN),
        )

    def client(self, *, max_connections: int = 64, cluster: Cluster | None = None) -> Client:
        return Client(cluster or self.cluster(), max_connections=max_connections)

    async def until_closed(self) -> None:
        """Wait until the client has closed every connection."""
        async with asyncio.timeout(2):
            while self.open:  # noqa: ASYNC110 - the sockets are of the other side
                await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        script = self.script or answer_everything
        try:
            await script(Conversation(self, reader, writer))
        except (Hangup, ConnectionError, ssl.SSLError, asyncio.CancelledError):
            pass
        except BaseException as error:
            self.failures.append(error)
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.transport.abort()


async def answer_everything(conversation: Conversation) -> None:
    """Answer each request with its method, path and number of the connection."""
    while True:
        request = await conversation.request()
        await conversation.answer(
            {"method": request.method, "path": request.path, "connection": conversation.number}
        )


async def silent(conversation: Conversation) -> None:
    """Take one request and say nothing."""
    await conversation.request()
    await conversation.until_closed()


def answering(body: object = None, *, status: int = 200, headers: str = "") -> Script:
    """Answer every request with *body*."""
    return sending(http_answer(body, status=status, headers=headers))


def sending(data: bytes, *, piece: int = 0) -> Script:
    """Answer every request with *data* as it is, in pieces of *piece* bytes."""

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            for begin in range(0, len(data), piece or len(data)):
                await conversation.send(data[begin : begin + (piece or len(data))])
                if piece:
                    await asyncio.sleep(0)

    return script


def once(data: bytes, how: str = "close") -> Script:
    """Answer the first request with *data*; then `close`, `reset`, or `until_closed`: wait for the client to close."""

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(data)
        if how == "until_closed":
            await conversation.until_closed()
        else:
            await asyncio.sleep(0.02)
            getattr(conversation, how)()

    return script


def chunked_answer(*pieces: bytes, status: str = "200 OK") -> bytes:
    """A whole answer in chunks."""
    return CHUNKED_HEAD.replace(b"200 OK", status.encode()) + chunked(*pieces)


def encode(body: object) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def http_answer(body: object = None, *, status: int = 200, headers: str = "") -> bytes:
    """A whole answer with content-length; *headers*: more lines, each ended by CRLF."""
    data = encode(body)
    return f"HTTP/1.1 {status} Whatever\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """*pieces* in chunks."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return body + (b"0\r\n\r\n" if end else b"")


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def zipped(data: bytes) -> bytes:
    return gzip.compress(data)


def failure_status(
    status: int, reason: str, message: str = "because", **details: object
) -> dict[str, object]:
    """A Status object, as API servers send it."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": status,
    }


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
