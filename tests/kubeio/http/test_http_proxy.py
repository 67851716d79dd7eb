"""Through an HTTP proxy by CONNECT."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kubeio.errors import Unreachable
from kubeio.http.endpoint import Proxy
from kubeio.rest.client import Client
from tests.kubeio.http.wire_server import WireServer, basic, chunked_answer, sending


@dataclass
class ConnectProxy:
    """Lets bytes through after CONNECT, or answers with *refusal*."""

    refusal: bytes = b""
    heads: list[str] = field(default_factory=list)
    port: int = 0
    open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self.refusal:
            writer.write(self.refusal)
            writer.close()
            return
        host, _, port = head.split(" ")[1].rpartition(":")
        upstream_reader, upstream = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        self.open += 1
        await asyncio.gather(copy(reader, upstream), copy(upstream_reader, writer))
        self.open -= 1


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def through(
    server: WireServer, *, authorization: str = "", refusal: bytes = b""
) -> AsyncIterator[tuple[ConnectProxy, Client]]:
    """A proxy, and a client that reaches *server* through it."""
    proxy = ConnectProxy(refusal)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    cluster = server.cluster(proxy=Proxy("127.0.0.1", proxy.port, authorization))
    try:
        async with server.client(cluster=cluster) as client:
            yield proxy, client
    finally:
        listener.close()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("is_plain", [False, True])
async def test_requests_go_through_the_proxy_whether_tls_is_inside_or_not(
    server: WireServer, plain_server: WireServer, is_plain: bool
) -> None:
    target = plain_server if is_plain else server
    async with through(target) as (proxy, client):
        for _ in range(2):
            assert (await client.request("GET", "/a")).status == 200
        (head,) = proxy.heads
        assert head.startswith(f"CONNECT 127.0.0.1:{target.port} HTTP/1.1\r\n")
        assert "secret" not in head, "the API token is none of the proxy's business"


async def test_streams_go_through_the_proxy(server: WireServer) -> None:
    server.script = sending(chunked_answer(b"a\n", b"b\n"))
    async with through(server) as (_, client), client.stream("/w") as lines:
        assert [line async for line in lines] == [b"a", b"b"]


async def test_proxy_gets_its_own_credentials(server: WireServer) -> None:
    async with through(server, authorization=basic("joe", "p:w")) as (proxy, client):
        await client.request("GET", "/a")
        assert f"Proxy-Authorization: {basic('joe', 'p:w')}\r\n" in proxy.heads[0]


@pytest.mark.parametrize(
    ("refusal", "reported"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
            r"proxy 127\.0\.0\.1:.* refused: .* 407 Proxy Auth",
        ),
        (b"hello", "refused"),
        (b"SSH-2.0-x\r\n\r\n", "refused"),
    ],
)
async def test_refusal_of_the_proxy_is_reported(server: WireServer, refusal: bytes, reported: str) -> None:
    async with through(server, refusal=refusal) as (_, client):
        with pytest.raises(Unreachable, match=reported) as caught:
            await client.request("GET", "/a", timeout_s=2)
    assert not caught.value.maybe_done


async def test_closing_the_client_closes_its_tunnels(server: WireServer) -> None:
    async with through(server) as (proxy, client):
        await client.request("GET", "/a")
        assert proxy.open == 1
        await client.close()
        await asyncio.sleep(0.05)
        assert proxy.open == 0
