"""Through an HTTP proxy by CONNECT."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kubeio.errors import Unreachable
from kubeio.http.endpoint import Proxy
from tests.kubeio.rest.wire_server import CHUNKED_HEAD, Conversation, WireServer, basic, chunked


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
async def running(proxy: ConnectProxy) -> AsyncIterator[ConnectProxy]:
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        await asyncio.sleep(0.02)


async def test_requests_go_through_the_proxy_with_tls_inside(server: WireServer) -> None:
    async with running(ConnectProxy()) as proxy:
        cluster = server.cluster(proxy=Proxy("127.0.0.1", proxy.port))
        async with server.client(cluster=cluster) as client:
            for _ in range(2):
                assert (await client.request("GET", "/a")).status == 200
        assert len(proxy.heads) == 1
        assert proxy.heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
        assert "secret" not in proxy.heads[0], "the API token is none of the proxy's business"


async def test_streams_go_through_the_proxy(server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(CHUNKED_HEAD + chunked(b"a\n", b"b\n"))

    server.script = script
    async with running(ConnectProxy()) as proxy:
        cluster = server.cluster(proxy=Proxy("127.0.0.1", proxy.port))
        async with server.client(cluster=cluster) as client, client.stream("/w") as lines:
            assert [line async for line in lines] == [b"a", b"b"]


async def test_proxy_gets_its_own_credentials(server: WireServer) -> None:
    async with running(ConnectProxy()) as proxy:
        cluster = server.cluster(proxy=Proxy("127.0.0.1", proxy.port, basic("joe", "p:w")))
        async with server.client(cluster=cluster) as client:
            await client.request("GET", "/a")
        assert f"Proxy-Authorization: {basic('joe', 'p:w')}\r\n" in proxy.heads[0]


async def test_refusal_of_the_proxy_is_told(server: WireServer) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with running(ConnectProxy(refusal=refusal)) as proxy:
        cluster = server.cluster(proxy=Proxy("127.0.0.1", proxy.port))
        async with server.client(cluster=cluster) as client:
            with pytest.raises(
                Unreachable, match=r"proxy 127\.0\.0\.1:.* refused: .* 407 Proxy Auth"
            ) as caught:
                await client.request("GET", "/a")
    assert not caught.value.maybe_done


@pytest.mark.parametrize("garbage", [b"hello", b"SSH-2.0-x\r\n\r\n"])
async def test_proxy_that_is_none_is_told(server: WireServer, garbage: bytes) -> None:
    async with running(ConnectProxy(refusal=garbage)) as proxy:
        cluster = server.cluster(proxy=Proxy("127.0.0.1", proxy.port))
        async with server.client(cluster=cluster) as client:
            with pytest.raises(Unreachable, match="refused"):
                await client.request("GET", "/a", timeout_s=2)


async def test_plain_http_goes_through_connect_too(plain_server: WireServer) -> None:
    async with running(ConnectProxy()) as proxy:
        cluster = plain_server.cluster(proxy=Proxy("127.0.0.1", proxy.port))
        async with plain_server.client(cluster=cluster) as client:
            for _ in range(2):
                assert (await client.request("GET", "/a")).status == 200
        assert len(proxy.heads) == 1


async def test_closing_the_client_closes_its_tunnels(server: WireServer) -> None:
    async with running(ConnectProxy()) as proxy:
        cluster = server.cluster(proxy=Proxy("127.0.0.1", proxy.port))
        async with server.client(cluster=cluster) as client:
            await client.request("GET", "/a")
            assert proxy.open == 1
        await asyncio.sleep(0.05)
        assert proxy.open == 0
