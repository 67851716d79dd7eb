"""Probes and metrics as kubelet, Prometheus and a careless client meet them: over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

import pytest
from prometheus_client import CollectorRegistry, Counter

from kubeio.clock import ManualClock
from kubeio.program.access_gate import AccessGate
from kubeio.program.http_server import HttpServer
from kubeio.program.pages import GuardedPages, json_page
from kubeio.program.probes import FLAG, Check, Probes
from kubeio.rest.reviews import User


def new_server(
    checks: Mapping[str, Check] | None = None,
    *,
    registry: CollectorRegistry | None = None,
    ready_checks: Mapping[str, Check] | None = None,
    pages: Mapping[str, Callable[[list[str]], bytes | None]] | None = None,
) -> HttpServer:
    gate = AccessGate(OneToken(), path="/debug/objects", clock=ManualClock())
    guarded = GuardedPages(gate, {path: json_page(content) for path, content in (pages or {}).items()})
    probes = Probes(
        registry or CollectorRegistry(), checks or {}, ready_checks=ready_checks or {}, guarded=guarded
    )
    return HttpServer("127.0.0.1", 0, probes.answer, flag=FLAG)


async def exchange(server: HttpServer, request: bytes, *, address: str = "127.0.0.1") -> bytes:
    """Send *request* from *address* and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def get(server: HttpServer, target: str, headers: str = "") -> tuple[int, str, str]:
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


async def test_pages_are_json_and_a_broken_one_is_a_500() -> None:
    bodies = {"state": json.dumps({"a": 1}).encode()}

    def page(below: list[str]) -> bytes:
        return bodies[below[0]]

    async with new_server(pages={"/pages": page}) as server:
        assert b"application/json" in await exchange(server, ask("/pages/state"))
        assert (await exchange(server, ask("/pages/broken"))).split()[1] == b"500"
        assert (await get(server, "/healthz"))[0] == 200


async def test_unknown_pages_and_other_methods_are_refused() -> None:
    async with new_server() as server:
        assert (await get(server, "/secrets"))[0] == 404
        answer = await exchange(server, b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        assert answer.startswith(b"HTTP/1.1 405 ")
        assert b"Allow: GET, HEAD" in answer
        answer = await exchange(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        assert answer.startswith(b"HTTP/1.1 413 ")


async def test_head_has_the_length_and_no_body() -> None:
    async with new_server() as server:
        answer = await exchange(server, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"Content-Length: 3" in answer
        assert answer.endswith(b"\r\n\r\n")


class OneToken:
    """Accepts the token `good`, whose bearer may see everything; slow enough for others to come in between."""

    async def bearer(self, token: str) -> User | None:
        await asyncio.sleep(0.05)
        if token == "broken":
            raise RuntimeError("as told")
        return User("ada") if token == "good" else None

    async def may(self, user: User, *, verb: str, path: str) -> bool:
        return (user.username, verb, path) == ("ada", "get", "/debug/objects")


def guarded_server() -> HttpServer:
    return new_server(
        pages={
            "/debug/objects": lambda below: (
                b'{"path": "%s"}' % "/".join(below).encode() if below != ["ns", "gone"] else None
            )
        }
    )


def ask(target: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


async def test_a_guarded_page_is_shown_to_this_machine() -> None:
    async with guarded_server() as server:
        answer = await exchange(server, ask("/debug/objects/ns/blog?x=y"))
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"Content-Type: application/json" in answer
        assert answer.endswith(b'{"path": "ns/blog"}')
        assert (await exchange(server, ask("/debug/objects/ns/gone"))).startswith(b"HTTP/1.1 404 ")
        assert (await exchange(server, ask("/debug/objectsandmore"))).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], b"401"),
        (["Authorization: Bearer forged"], b"401"),
        (["Authorization: Bearer good"], b"200"),
        (["Authorization: Bearer broken"], b"500"),
    ],
    ids=["no token", "forged", "good", "review fails"],
)
async def test_a_guarded_page_needs_a_token_from_elsewhere(headers: list[str], status: bytes) -> None:
    async with guarded_server() as server:
        answer = await exchange(server, ask("/debug/objects/ns/blog", *headers), address="127.0.0.2")
        assert answer.split()[1] == status
        assert (b"WWW-Authenticate: Bearer" in answer) == (status == b"401")
        assert (b"ns/blog" in answer) == (status == b"200")


async def test_a_name_that_was_pointed_at_loopback_is_not_this_machine() -> None:
    async with guarded_server() as server:
        rebound = b"GET /debug/objects/a/b HTTP/1.1\r\nHost: evil.example.com\r\nConnection: close\r\n\r\n"
        assert (await exchange(server, rebound)).startswith(b"HTTP/1.1 401 ")


async def test_what_comes_while_a_visitor_is_reviewed_is_not_answered_with_his_rights() -> None:
    async with guarded_server() as server:
        first = b"GET /debug/objects/a/b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"
        second = b"GET /debug/objects/c/d HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await exchange(server, first + second, address="127.0.0.2")
        assert answer.count(b"HTTP/1.1 200 OK") == 1
        assert b"c/d" not in answer


async def test_rights_of_one_request_do_not_carry_over_to_the_next() -> None:
    async with guarded_server() as server:
        first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good\r\n\r\n"
        second = b"GET /debug/objects/c/d HTTP/1.1\r\n\r\n"
        answer = await exchange(server, first + second)
        assert answer.count(b"HTTP/1.1 200 OK") == 1
        assert answer.count(b"HTTP/1.1 401 ") == 1


async def test_a_visitor_who_leaves_is_forgotten_and_the_server_goes_on() -> None:
    async with guarded_server() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
        writer.write(ask("/debug/objects/a/b", "Authorization: Bearer good"))
        await asyncio.sleep(0.01)
        writer.transport.abort()
        answer = await exchange(server, ask("/debug/objects/a/b", method="HEAD"))
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert answer.endswith(b"\r\n\r\n")
    assert not server.connections
