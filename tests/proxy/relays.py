"""A relay before a control plane, directed by the test, and the clients that come through it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kubeio.access.cluster import Cluster, load_cluster
from kubeio.rest.client import Client
from kubeio.rest.request_info import RequestInfo
from proxy.alias import Alias
from proxy.controller_files import KUBECONFIG, write_files
from proxy.director import Admitted, Selection, Write
from proxy.locks import EchoLocks
from proxy.loopback import Loopback, make_certificates
from proxy.refusals import Refusal
from proxy.relay import Relay

SHARD, VISIBLE = "shard.ringleader.dev/web", "visible.ringleader.dev/web"
NAME = "web-1"
TERMS = f"{SHARD}={NAME},{VISIBLE}={NAME}"
LABELS = {SHARD: NAME, VISIBLE: NAME}
LOOPBACK = Loopback(make_certificates(datetime.now(UTC)))
"""One for all tests: its keys take time."""


@dataclass
class ScriptedDirector:
    """Selects *selections* by resource, labels creates and updates of them, and admits what *verdict* lets pass."""

    selections: Mapping[str, Selection] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=lambda: LABELS)
    verdict: Callable[[Write], Refusal | None] = lambda _: None
    translation: Callable[[bytes], Refusal | None] = lambda _: None
    """Of an answer of status 422."""
    hides: Alias | None = None
    """Alias in answers about what is selected."""
    gate: asyncio.Event | None = None
    """Writes wait for it."""
    begun: list[Write] = field(default_factory=list)
    ended: list[tuple[Write, int | None]] = field(default_factory=list)
    asked: list[Write] = field(default_factory=list)
    cancelled: list[Write] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def selection(self, request: RequestInfo) -> Selection | None:
        return self.selections.get(request.group_resource)

    def alias(self, request: RequestInfo) -> Alias | None:
        return self.hides if request.group_resource in self.selections else None

    def reads_body(self, write: RequestInfo) -> bool:
        return write.group_resource in self.selections

    async def admit(self, write: Write) -> Admitted | Refusal:
        self.asked.append(write)
        self.changed.set()
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.append(write)
                self.changed.set()
                raise
        refusal = self.verdict(write)
        if refusal is not None:
            return refusal
        return Admitted(self.labels if write.info.group_resource in self.selections else {})

    def begin(self, write: Write) -> None:
        self.begun.append(write)
        self.changed.set()

    def instead_of(self, write: Write, answer: bytes) -> Refusal | None:
        return self.translation(answer)

    def end(self, write: Write, status: int | None) -> None:
        self.ended.append((write, status))
        self.changed.set()

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Return when *condition*, of the lists above, is true."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def wait_ended(self, count: int) -> None:
        """Return when *count* writes have ended."""
        await self.wait_for(lambda: len(self.ended) >= count)


class RawClient:
    """One connection of a client that writes and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(
        self, method: str, target: str, body: bytes = b"", *headers: str, token: str = LOOPBACK.token
    ) -> None:
        """Send a request with *headers*, a line each; nothing is awaited."""
        lines = [f"{method} {target} HTTP/1.1", "Host: relay", *headers]
        lines += [f"Authorization: Bearer {token}"] if token else []
        lines += [f"Content-Length: {len(body)}"] if body else []
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers (names in lower case) of the next answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        return int(first.split()[1]), {name.lower(): value for name, _, value in pairs}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer, whose length it says."""
        status, headers = await self.head()
        return status, headers, await self.reader.readexactly(int(headers.get("content-length", "0")))

    async def ask(
        self, method: str, target: str, body: bytes = b"", *headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request and read its answer."""
        self.send(method, target, body, *headers)
        return await self.answer()

    async def is_closed(self) -> bool:
        """Whether the relay closes without another byte."""
        try:
            return not await asyncio.wait_for(self.reader.read(1), 5)
        except (ConnectionError, ssl.SSLError):
            return True

    def hang_up(self) -> None:
        """Close at once."""
        self.writer.transport.abort()


@asynccontextmanager
async def raw_client(port: int, *, limit: int = 2**16) -> AsyncIterator[RawClient]:
    """A connection to the relay on *port*; *limit*: bytes that are read ahead."""
    tls = ssl.create_default_context(cadata=LOOPBACK.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=limit)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


@dataclass(frozen=True)
class Relayed:
    """A relay that serves, and the kubeconfig of its controller."""

    relay: Relay
    director: ScriptedDirector
    locks: EchoLocks
    port: int
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / KUBECONFIG

    def client(self) -> Client:
        """A client of ours that comes through the relay."""
        return Client(load_cluster(kubeconfig=str(self.kubeconfig)))


@asynccontextmanager
async def relayed(
    server: Path | Cluster,
    folder: Path,
    director: ScriptedDirector | None = None,
    *,
    locks: Iterable[str] = (),
    impersonation: Iterable[tuple[str, str]] = (),
) -> AsyncIterator[Relayed]:
    """A relay to *server*, or to that of a kubeconfig; its controller's files are in *folder*."""
    director = director or ScriptedDirector()
    echo = EchoLocks(frozenset(locks))
    relay = Relay(
        server if isinstance(server, Cluster) else load_cluster(kubeconfig=str(server)),
        loopback=LOOPBACK,
        director=director,
        locks=echo,
        impersonation=impersonation,
    )
    async with relay.serving() as port:
        write_files(folder, port=port, ca=LOOPBACK.ca, token=LOOPBACK.token, namespace="default")
        yield Relayed(relay, director, echo, port, folder)
