"""Whether a sharder publishes its rings at a URL: what is said of other ports, and what is sent there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kubeio.clock import SystemClock
from kubeio.errors import InputError, KubeError
from kubeio.program.access_gate import AccessGate
from kubeio.program.http_server import HttpServer
from kubeio.program.pages import GuardedPages, Page, json_page
from kubeio.program.probes import FLAG, Probes
from ringleader.dashboard.endpoint import SharderLost
from ringleader.dashboard.leader import at_url
from sharder.live.stream import RIGHT
from tests.addresses import own_address
from tests.sharder.live.scenes import Scene, state_of
from tests.sharder.live.served import OneToken, published


@asynccontextmanager
async def probes_with(pages: dict[str, Page]) -> AsyncIterator[str]:
    """URL of a probes port with these *pages*."""
    guarded = GuardedPages(AccessGate(OneToken(RIGHT), path=RIGHT, clock=SystemClock()), pages)
    probes = Probes(CollectorRegistry(), {}, guarded=guarded)
    async with HttpServer("127.0.0.1", 0, probes.answer, flag=FLAG) as server:
        yield f"http://127.0.0.1:{server.port}"


async def refused(url: str) -> str:
    """The message for *url*."""
    async with at_url(url) as endpoint:
        with pytest.raises(KubeError) as caught:
            await endpoint.check()
    return str(caught.value)


async def test_a_sharder_is_known_by_what_it_publishes() -> None:
    async with published(state_of(websites=Scene(["web-0"]))) as sharder:
        for url in (f"http://127.0.0.1:{sharder.port}/", f"127.0.0.1:{sharder.port}"):
            async with at_url(url) as endpoint:
                await endpoint.check()


async def test_the_port_of_a_replica_is_named_as_such() -> None:
    queue = json_page(lambda below: msgspec.json.encode({"shard": "web-1-8f03c2aa"}))
    async with probes_with({"/debug/queue": queue}) as url:
        message = await refused(url)
    assert message.startswith(
        f"--endpoint: {url!r} is the port of the replica web-1-8f03c2aa, not of a sharder; "
    )


async def test_an_older_sharder_is_said_to_be_one() -> None:
    async with probes_with({}) as url:
        message = await refused(url)
    assert f"{url!r} has no /debug/rings: it is no sharder, or one of an older version; " in message
    assert "upgrade the sharder" in message


async def test_another_server_is_no_sharder() -> None:
    async with probes_with({RIGHT: json_page(lambda below: b"[1, 2]")}) as url:
        assert "answers, but is no sharder" in await refused(url)


async def test_a_port_where_nothing_listens_does_not_answer() -> None:
    async with at_url("http://127.0.0.1:1") as endpoint:
        with pytest.raises(SharderLost, match=r"^http://127\.0\.0\.1:1 does not answer: "):
            await endpoint.check()


async def test_an_address_of_another_machine_wants_a_token_and_gets_none() -> None:
    async with published(state_of(), bind="0.0.0.0") as sharder:
        message = await refused(f"http://{own_address()}:{sharder.port}")
    assert "asks for a token (401); use the address of a kubectl port-forward on this machine" in message


async def test_no_credentials_are_sent_to_an_endpoint() -> None:
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    message = await refused(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()
    assert "does not admit this account (403)" in message
    assert heads
    assert all("authorization" not in head.lower() for head in heads)


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "http://", "http://a:b@127.0.0.1:1", "http://127.0.0.1:x"]
)
async def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InputError) as caught:
        async with at_url(url):
            pass
    assert caught.value.field == "--endpoint"
