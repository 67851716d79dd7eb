"""`make bench-client`: how many PATCHes one core sends; our connection and client beside aiohttp, all on uvloop.

A stub TLS server runs in a process of its own, each candidate in workers of pyperf. A value is the *client's* CPU time
for a PATCH, so that a busy machine changes it little. The result stands in docs/adr/0001-client.md.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, cast

import aiohttp
import httptools
import msgspec
import uvloop
import yaml

from benchmarks.measuring.senders import spread
from benchmarks.micro import make_runner, mean, print_table
from kubeio.access.cluster import load_cluster
from kubeio.http.dialer import Dialer
from kubeio.http.messages import BrokenMessage
from kubeio.labels import json_pointer
from kubeio.models import HasMeta
from kubeio.patch import JsonPatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client

WEBSITES: Final = ApiResource("example.com", "v1", "websites", "Website")
_LABEL: Final = json_pointer("metadata", "labels", "shard.ringleader.dev/bench")
_VERSION: Final = json_pointer("metadata", "resourceVersion")
_ANSWER_BYTES: Final = 600
_WARM_UP: Final = 20
"""PATCHes over each connection before those that count."""

Send = Callable[[int], Awaitable[None]]


class _Stub(asyncio.Protocol):
    """Answers every request with the same object of about 600 bytes."""

    def __init__(self) -> None:
        meta = {"name": "site-000001", "namespace": "default", "uid": "0" * 36, "resourceVersion": "123456"}
        doc = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": meta, "spec": {"html": ""}}
        doc["spec"] = {"html": "x" * (_ANSWER_BYTES - len(msgspec.json.encode(doc)))}
        body = msgspec.json.encode(doc)
        head = (
            "HTTP/1.1 200 OK\r\nAudit-Id: 7e6f5d4c-0000-4000-8000-000000000000\r\n"
            "Cache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
            "X-Kubernetes-Pf-Flowschema-Uid: 00000000-0000-4000-8000-000000000000\r\n"
            "X-Kubernetes-Pf-Prioritylevel-Uid: 00000000-0000-4000-8000-000000000001\r\n"
            f"Date: Sat, 21 Nov 2026 00:00:00 GMT\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._answer = head.encode() + body
        self._parser = httptools.HttpRequestParser(self)
        self._answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._answers:
            self._transport.write(self._answer * self._answers)
            self._answers = 0

    def on_message_complete(self) -> None:
        self._answers += 1


async def serve(certificate: str) -> None:
    """Serve until stopped; the port is printed when ready."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.get_running_loop().create_server(_Stub, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# -- candidates, in workers of pyperf -----------------------------------------------------------------------


async def with_client(loops: int, directory: Path, connections: int, kind: Any) -> float:
    cluster = load_cluster(kubeconfig=str(directory / "kubeconfig"))
    async with Client(cluster, max_connections=connections) as client:

        async def send(number: int) -> None:
            await client.patch(WEBSITES, f"site-{number}", patch(), namespace="default", type=kind)

        return await cpu_s(send, loops, connections)


async def with_connection(loops: int, directory: Path, connections: int, _: Any) -> float:
    cluster = load_cluster(kubeconfig=str(directory / "kubeconfig"))
    dialer = Dialer(cluster.endpoint, cluster.trust)
    loop = asyncio.get_running_loop()
    free = [await dialer.dial(None) for _ in range(connections)]
    fixed = (
        f"Host: {cluster.endpoint.authority}\r\nAuthorization: Bearer bench\r\nAccept: application/json\r\n"
        "Content-Type: application/json-patch+json\r\n"
    )

    async def send(number: int) -> None:
        connection = free.pop()
        body = patch().encode()
        path = WEBSITES.path(namespace="default", name=f"site-{number}")
        head = f"PATCH {path} HTTP/1.1\r\n{fixed}Content-Length: {len(body)}\r\n\r\n"
        answer = await connection.exchange(head.encode() + body, deadline=loop.time() + 30)
        if isinstance(answer, BrokenMessage):
            raise answer
        free.append(connection)

    used_s = await cpu_s(send, loops, connections)
    for connection in free:
        connection.abort()
        await connection.wait_closed()
    return used_s


async def with_aiohttp(loops: int, directory: Path, connections: int, _: Any) -> float:
    server = load_cluster(kubeconfig=str(directory / "kubeconfig")).server
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    connector = aiohttp.TCPConnector(limit=connections, ssl=context)
    headers = {
        "Authorization": "Bearer bench",
        "Accept": "application/json",
        "Content-Type": "application/json-patch+json",
    }
    async with aiohttp.ClientSession(server, connector=connector, headers=headers) as session:

        async def send(number: int) -> None:
            path = WEBSITES.path(namespace="default", name=f"site-{number}")
            async with session.patch(path, data=patch().encode()) as answer:
                await answer.read()
                answer.raise_for_status()

        return await cpu_s(send, loops, connections)


CANDIDATES: Final[dict[str, tuple[Callable[[int, Path, int, Any], Coroutine[Any, Any, float]], Any]]] = {
    "our connection alone": (with_connection, None),
    "kubeio.Client.patch, raw answer": (with_client, bytes),
    "kubeio.Client.patch, metadata decoded": (with_client, HasMeta),
    "aiohttp": (with_aiohttp, None),
}


def patch() -> JsonPatch:
    return JsonPatch().test(_VERSION, "123456").add(_LABEL, "shard-a-0011aabb")


async def cpu_s(send: Send, requests: int, connections: int) -> float:
    """CPU seconds of *requests*, after connections are open and warm."""
    await spread(send, range(connections * _WARM_UP), at_once=connections)
    gc.collect()
    began = time.process_time()
    await spread(send, range(requests), at_once=connections)
    return time.process_time() - began


def start_stub(directory: Path) -> subprocess.Popen[str]:
    """A stub that serves; certificates and a kubeconfig for it are in *directory*."""
    import trustme  # not in the processes that are measured

    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(directory / "server.pem")
    command = [sys.executable, "-m", "benchmarks.client", "--serve", str(directory / "server.pem")]
    stub = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    server = {"server": f"https://127.0.0.1:{(stub.stdout or sys.stdin).readline().strip()}"}
    document = {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "stub", "user": "bench"}}],
        "clusters": [{"name": "stub", "cluster": {**server, "certificate-authority": "ca.pem"}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
    }
    (directory / "kubeconfig").write_text(yaml.safe_dump(document))
    return stub


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        uvloop.run(serve(sys.argv[2]))
        return
    runner = make_runner(
        "benchmarks.client",
        {"connections": (64, "requests under way")},
        handed_on=("directory",),
        min_time_s=0.5,
    )
    options = runner.parse_args()
    if options.worker:
        measure(runner, Path(options.directory), options.connections)
        return
    with tempfile.TemporaryDirectory() as name:
        options.directory = name
        stub = start_stub(Path(name))
        try:
            found = measure(runner, Path(name), options.connections)
        finally:
            stub.terminate()
            stub.wait()
    rows = {name: [f"{1 / each_s:,.0f}", f"{each_s * 1e6:.1f} us"] for name, each_s in found.items()}
    print_table("one core, a stub TLS server", ["PATCH/s per core", "CPU each"], rows)


def measure(runner: Any, directory: Path, connections: int) -> dict[str, float]:
    """CPU seconds of a PATCH by candidate."""

    def value(loops: int, name: str) -> float:
        run, kind = CANDIDATES[name]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            return loop.run(run(loops, directory, connections, kind))

    return {name: mean(runner.bench_time_func(name, value, name)) for name in CANDIDATES}


if __name__ == "__main__":
    main()
