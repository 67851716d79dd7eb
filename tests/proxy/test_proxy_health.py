"""Readiness of a proxy: its own, and its controller's as the controller itself says it."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kubeio.clock import SystemClock
from kubeio.errors import InputError
from kubeio.shard.lease_validity import LeaseValidity
from proxy.controller_process import BehindRelay
from proxy.health import ControllerProbe, Health
from tests.kubeio.http.wire_server import WireServer
from tests.proxy.relays import LOOPBACK, relayed

FLAG = "--controller-readiness"


class Clock(SystemClock):
    """A clock that a test sets."""

    at = 0.0

    def now(self) -> float:
        return self.at


@dataclass
class Server:
    """A server that gives *answer* to each request. *asked*: first lines of the requests."""

    answer: bytes
    port: int = 0
    asked: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def controller(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    answering = Server(answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.asked.append(await reader.readline())
        writer.write(answering.answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        answering.port = server.sockets[0].getsockname()[1]
        yield answering


async def problem_of(probe: ControllerProbe) -> str | None:
    """What *probe* finds at its first question."""
    before = probe.problem
    async with probe.asking(), asyncio.timeout(10):
        while probe.problem == before:  # noqa: ASYNC110 - asked beside
            await asyncio.sleep(0.01)
    return probe.problem


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_controller_that_says_so_is_ready(scheme: str) -> None:
    tls = LOOPBACK.tls if scheme == "https" else None
    async with controller(b"HTTP/1.1 200 OK\r\n\r\nok", tls) as server:
        probe = ControllerProbe(f"{scheme}://127.0.0.1:{server.port}/readyz?verbose", field=FLAG)
        assert probe.problem == "it was not asked yet"
        assert await problem_of(probe) is None
        assert server.asked[0] == b"GET /readyz?verbose HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", "it answered 500"),
        (b"", "it answered nothing"),
        (b"\x15\x03\x01 x\r\n", "it answered x"),
    ],
)
async def test_a_controller_that_says_otherwise_is_not_ready(answer: bytes, why: str) -> None:
    async with controller(answer) as server:
        assert await problem_of(ControllerProbe(f"http://127.0.0.1:{server.port}", field=FLAG)) == why


async def test_a_controller_that_does_not_answer_is_not_ready() -> None:
    async with controller(b"") as server:
        pass
    problem = await problem_of(ControllerProbe(f"http://127.0.0.1:{server.port}/", field=FLAG))
    assert problem is not None
    assert "Connect" in problem


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8081", "http://127.0.0.1/readyz", "ftp://x:1", "http://x:99999"]
)
def test_an_address_that_cannot_be_asked_is_bad_input(url: str) -> None:
    with pytest.raises(
        InputError, match=r"--controller-readiness.*write it as http://127\.0\.0\.1:8081/readyz"
    ):
        ControllerProbe(url, field=FLAG)


async def test_a_proxy_is_ready_when_all_of_it_is() -> None:
    clock = Clock()
    probe = ControllerProbe("http://127.0.0.1:1/", field=FLAG)
    health = Health(clock, readiness=probe)
    assert health.why_not_ready() == "the shard has no Lease yet"
    health.validity = LeaseValidity(duration_s=15, sent_at=0.0)
    assert health.why_not_ready() == "no controller: objects are not listed yet"
    health.why_down = lambda: None
    assert health.why_not_ready() == "the controller is not ready: it was not asked yet"
    probe.problem = None
    assert health.why_not_ready() is None
    clock.at = 10.0
    assert health.why_not_ready() == "the shard's Lease is too old"


FINE, FAILED = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 Internal Server Error\r\n\r\n"


async def test_a_controller_hangs_if_it_answered_once_and_then_fails_for_long() -> None:
    async with controller(FAILED) as server:
        probe = ControllerProbe(f"http://127.0.0.1:{server.port}", field=FLAG, hung_s=0.4)
        hung = asyncio.create_task(probe.wait_hung())
        await asyncio.sleep(1)
        assert not hung.done(), "it may take long to begin"
        server.answer = FINE
        await asyncio.sleep(1)
        assert not hung.done()
        server.answer = FAILED
        assert await asyncio.wait_for(hung, 10) == "it answered 500"


async def test_a_controller_that_hangs_is_ended(server: WireServer, tmp_path: Path) -> None:
    async with controller(FINE) as its, relayed(server.cluster(), tmp_path) as through:
        process = BehindRelay(
            ["sleep", "60"],
            through.relay,
            through.locks,
            environment=os.environ,
            stop_within_s=5,
            liveness=ControllerProbe(f"http://127.0.0.1:{its.port}", field=FLAG, hung_s=0.4),
        )
        await process.start()
        waiting = asyncio.create_task(process.wait())
        await asyncio.sleep(1)
        assert not waiting.done()
        its.answer = FAILED
        assert await asyncio.wait_for(waiting, 20) == -signal.SIGTERM
        await process.stop()
