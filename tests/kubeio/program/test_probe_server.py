"""Probes and metrics as kubelet, Prometheus and a careless client meet them: over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, Counter

from kubeio.errors import InputError
from kubeio.program.server import Check, ProbeServer


def new_server(
    checks: Mapping[str, Check] | None = None,
    *,
    registry: CollectorRegistry | None = None,
    patience_s: float = 5.0,
    max_connections: int = 100,
    ready_checks: Mapping[str, Check] | None = None,
    pages: Mapping[str, bytes] | None = None,
) -> ProbeServer:
    return ProbeServer(
        "127.0.0.1",
        0,
        registry or CollectorRegistry(),
        checks or {},
        {path: partial(bytes, body) for path, body in (pages or {}).items()},
        ready_checks=ready_checks or {},
        patience_s=patience_s,
        max_connections=max_connections,
    )


async def exchange(server: ProbeServer, request: bytes) -> bytes:
    """Send *request* and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def get(server: ProbeServer, target: str, headers: str = "") -> tuple[int, str, str]:
    """Status, head and body."""
    request = f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
    head, _, body = (await exchange(server, request.encode())).decode().partition("\r\n\r\n")
    return int(head.split()[1]), head, body


async def test_probes_are_ok_when_nothing_is_wrong() -> None:
    async with new_server({"lease": lambda: None}) as server:
        assert server.port > 0
        for path in ("/healthz", "/livez", "/readyz"):
            status, _, body = await get(server, path)
            assert (status, body) == (200, "ok\n")


async def test_failing_check_is_named_with_its_reason() -> None:
    checks: dict[str, Check] = {"lease": lambda: "not renewed for 12 s", "loop": lambda: None}
    async with new_server(checks) as server:
        for path in ("/healthz", "/livez", "/readyz"):
            status, _, body = await get(server, path)
            assert status == 503
            assert body == "[-] lease: not renewed for 12 s\n[+] loop: ok\nfailed\n"


async def test_ready_checks_do_not_count_for_health() -> None:
    async with new_server(ready_checks={"caches": lambda: "not synced"}) as server:
        assert (await get(server, "/healthz"))[0] == 200
        assert (await get(server, "/readyz"))[0] == 503


async def test_verbose_lists_the_checks() -> None:
    async with new_server({"lease": lambda: None}) as server:
        for query in ("verbose=1", "verbose", "x=y&verbose=true"):
            assert (await get(server, f"/healthz?{query}"))[2] == "[+] lease: ok\nok\n"


async def test_check_that_raises_has_failed() -> None:
    def broken() -> str | None:
        raise KeyError("x")

    async with new_server({"broken": broken}) as server:
        status, _, body = await get(server, "/healthz")
        assert status == 503
        assert "KeyError" in body


async def test_metrics_of_the_given_registry_in_the_format_that_is_asked_for() -> None:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    async with new_server(registry=registry) as server:
        _, head, body = await get(server, "/metrics")
        assert "things_total 3.0" in body
        assert "Content-Type: text/plain; version=" in head
        _, head, body = await get(
            server, "/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n"
        )
        assert "application/openmetrics-text" in head
        assert body.endswith("# EOF\n")


async def test_extra_pages_have_fitting_types_and_a_broken_one_is_a_500() -> None:
    pages = {"/": b"<!doctype html><p>", "/state": json.dumps({"a": 1}).encode(), "/x.svg": b"<svg></svg>"}

    def broken() -> bytes:
        raise ValueError

    server = ProbeServer(
        "127.0.0.1",
        0,
        CollectorRegistry(),
        {},
        {**{path: partial(bytes, body) for path, body in pages.items()}, "/broken": broken},
    )
    async with server:
        assert "text/html" in (await get(server, "/"))[1]
        assert "application/json" in (await get(server, "/state"))[1]
        assert "image/svg+xml" in (await get(server, "/x.svg"))[1]
        assert (await get(server, "/broken"))[0] == 500
        assert (await get(server, "/healthz"))[0] == 200


async def test_unknown_pages_and_other_methods_are_refused() -> None:
    async with new_server() as server:
        assert (await get(server, "/secrets"))[0] == 404
        answer = await exchange(server, b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        assert answer.startswith(b"HTTP/1.1 405 ")
        assert b"Allow: GET, HEAD" in answer
        answer = await exchange(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert (await exchange(server, b"\x16\x03\x01 hello\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_head_has_the_length_and_no_body() -> None:
    async with new_server() as server:
        answer = await exchange(server, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"Content-Length: 3" in answer
        assert answer.endswith(b"\r\n\r\n")


async def test_kept_connection_answers_several_requests_even_in_one_packet() -> None:
    async with new_server() as server:
        request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = await exchange(server, request + request + last)
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert answer.count(b"HTTP/1.1 404 ") == 1


async def test_request_that_never_ends_is_cut() -> None:
    async with new_server(patience_s=0.2) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        began = asyncio.get_running_loop().time()
        for byte in (b"G", b"E", b"T"):  # a byte now and then buys no time
            writer.write(byte)
            await asyncio.sleep(0.05)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        assert asyncio.get_running_loop().time() - began < 2
        writer.close()
        assert not server.connections


async def test_answer_that_is_never_fetched_is_cut() -> None:
    page = b"x" * 20_000_000
    async with new_server(patience_s=0.2, pages={"/big": page}) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(5):
            await asyncio.sleep(0.05)
            assert server.connections
            while server.connections:  # noqa: ASYNC110  # nothing tells when a socket is gone
                await asyncio.sleep(0.02)
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_request_without_end_of_its_head_is_too_large() -> None:
    async with new_server() as server:
        answer = await exchange(server, b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000)
        assert answer.startswith(b"HTTP/1.1 431 ") or answer == b""  # reset may overtake the answer


async def test_too_many_connections_are_turned_away_and_the_others_stay() -> None:
    async with new_server(max_connections=2) as server:
        kept = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
        kept[0][1].write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await kept[0][0].readline()).startswith(b"HTTP/1.1 200")
        for _, writer in kept:
            writer.close()


async def test_address_in_use_is_said_in_one_sentence() -> None:
    async with new_server() as server:
        second = ProbeServer("127.0.0.1", server.port, CollectorRegistry(), {})
        with pytest.raises(InputError, match=r"probes-bind.*cannot be listened on.*choose a free port"):
            await second.__aenter__()
