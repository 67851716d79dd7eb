"""How many PATCHes one core sends: our connection beside aiohttp, both on uvloop, against a stub TLS server.

`python -m benchmarks.client [--requests N] [--json]`. The stub and each candidate run in processes of their
own; the figure is requests per second of the *client's* CPU time, so that a busy machine changes it little.
Nothing else calls this; the result stands in docs/adr/0001-client.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httptools
import msgspec
import uvloop
import yaml

from kubeio.access.cluster import load_cluster
from kubeio.http.dialer import Dialer
from kubeio.http.messages import BrokenMessage
from kubeio.labels import json_pointer
from kubeio.models import HasMeta
from kubeio.patch import JsonPatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CANDIDATES = ("connection", "client", "client-decoded", "aiohttp")
MEANING = {
    "connection": "kubeio.http.connection alone",
    "client": "kubeio.Client.patch, raw answer",
    "client-decoded": "kubeio.Client.patch, metadata decoded",
    "aiohttp": "aiohttp",
}
_LABEL = json_pointer("metadata", "labels", "shard.ringleader.dev/bench")
_VERSION = json_pointer("metadata", "resourceVersion")
_ANSWER_BYTES = 600

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


async def serve(directory: Path) -> None:
    """Serve until stopped; writes the port to *directory*/port when ready."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    server = await asyncio.get_running_loop().create_server(_Stub, "127.0.0.1", 0, ssl=context)
    part = directory / "port.part"
    part.write_text(str(server.sockets[0].getsockname()[1]))
    part.rename(directory / "port")
    await server.serve_forever()


async def measure(candidate: str, directory: Path, *, requests: int, concurrency: int) -> dict[str, Any]:
    """CPU and wall time of *requests* PATCHes by *candidate*."""
    run = {"connection": _connection, "aiohttp": _aiohttp}.get(candidate, _client)
    return await run(candidate, directory, requests, concurrency)


async def _client(candidate: str, directory: Path, requests: int, concurrency: int) -> dict[str, Any]:
    cluster = load_cluster(kubeconfig=str(directory / "kubeconfig"))
    kind: Any = HasMeta if candidate == "client-decoded" else bytes
    async with Client(cluster, max_connections=concurrency) as client:

        async def send(number: int) -> None:
            await client.patch(WEBSITES, f"site-{number}", _patch(), namespace="default", type=kind)

        return await _timed(send, requests, concurrency)


async def _connection(candidate: str, directory: Path, requests: int, concurrency: int) -> dict[str, Any]:
    cluster = load_cluster(kubeconfig=str(directory / "kubeconfig"))
    dialer = Dialer(cluster.endpoint, cluster.trust)
    loop = asyncio.get_running_loop()
    free = [await dialer.dial(None) for _ in range(concurrency)]
    fixed = (
        f"Host: {cluster.endpoint.authority}\r\nAuthorization: Bearer bench\r\nAccept: application/json\r\n"
        "Content-Type: application/json-patch+json\r\n"
    )

    async def send(number: int) -> None:
        connection = free.pop()
        body = _patch().encode()
        path = WEBSITES.path(namespace="default", name=f"site-{number}")
        head = f"PATCH {path} HTTP/1.1\r\n{fixed}Content-Length: {len(body)}\r\n\r\n"
        answer = await connection.exchange(head.encode() + body, deadline=loop.time() + 30)
        if isinstance(answer, BrokenMessage):
            raise answer
        free.append(connection)

    figures = await _timed(send, requests, concurrency)
    for connection in free:
        connection.abort()
        await connection.wait_closed()
    return figures


async def _aiohttp(candidate: str, directory: Path, requests: int, concurrency: int) -> dict[str, Any]:
    import aiohttp

    server = load_cluster(kubeconfig=str(directory / "kubeconfig")).server
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    connector = aiohttp.TCPConnector(limit=concurrency, ssl=context)
    headers = {
        "Authorization": "Bearer bench",
        "Accept": "application/json",
        "Content-Type": "application/json-patch+json",
    }
    async with aiohttp.ClientSession(server, connector=connector, headers=headers) as session:

        async def send(number: int) -> None:
            path = WEBSITES.path(namespace="default", name=f"site-{number}")
            async with session.patch(path, data=_patch().encode()) as answer:
                await answer.read()
                answer.raise_for_status()

        return await _timed(send, requests, concurrency)


def _patch() -> JsonPatch:
    return JsonPatch().test(_VERSION, "123456").add(_LABEL, "shard-a-0011aabb")


async def _timed(send: Send, requests: int, concurrency: int) -> dict[str, Any]:
    await _spread(send, min(requests, concurrency * 20), concurrency)  # connect and warm up
    cpu, wall = time.process_time(), time.perf_counter()
    await _spread(send, requests, concurrency)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "requests": requests,
        "per_cpu_s": round(requests / cpu),
        "per_wall_s": round(requests / wall),
        "cpu_us": round(cpu / requests * 1e6, 1),
        "peak_rss_mb": round(peak_mb, 1),
    }


async def _spread(send: Send, requests: int, concurrency: int) -> None:
    numbers = iter(range(requests))

    async def worker() -> None:
        for number in numbers:
            await send(number)

    async with asyncio.TaskGroup() as group:
        for index in range(concurrency):
            group.create_task(worker(), name=f"sender-{index}")


def prepare(directory: Path) -> None:
    """Certificates of the stub."""
    import trustme  # not in the processes whose memory is measured

    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(directory / "server.pem")


def write_kubeconfig(directory: Path, port: int) -> None:
    document = {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "stub", "user": "bench"}}],
        "clusters": [
            {
                "name": "stub",
                "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.pem"},
            }
        ],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
    }
    (directory / "kubeconfig").write_text(yaml.safe_dump(document))


def compare(candidates: list[str], *, requests: int, concurrency: int, rounds: int) -> list[dict[str, Any]]:
    """Measure each candidate *rounds* times in turn, each time in a new process; the best round counts."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        prepare(directory)
        me = [sys.executable, "-m", "benchmarks.client", "--directory", name]
        stub = subprocess.Popen([*me, "--serve"])
        try:
            deadline = time.monotonic() + 20
            while not (directory / "port").exists():
                if time.monotonic() > deadline or stub.poll() is not None:
                    raise RuntimeError("the stub server did not start")
                time.sleep(0.02)
            write_kubeconfig(directory, int((directory / "port").read_text()))
            sizes = ["--requests", str(requests), "--concurrency", str(concurrency)]
            best: dict[str, dict[str, Any]] = {}
            for _ in range(rounds):
                for candidate in candidates:
                    done = subprocess.run(
                        [*me, "--one", candidate, *sizes], check=True, stdout=subprocess.PIPE
                    )
                    figures = json.loads(done.stdout)
                    if candidate not in best or figures["per_cpu_s"] > best[candidate]["per_cpu_s"]:
                        best[candidate] = {"candidate": candidate, **figures}
            return list(best.values())
        finally:
            stub.terminate()
            stub.wait()


def table(rows: list[dict[str, Any]]) -> str:
    """The rows for people."""
    lines = [f"{'candidate':40} {'PATCH/s per core':>17} {'us each':>8} {'PATCH/s':>8} {'peak MB':>8}"]
    lines.extend(
        f"{MEANING[row['candidate']]:40} {row['per_cpu_s']:>17,} {row['cpu_us']:>8} "
        f"{row['per_wall_s']:>8,} {row['peak_rss_mb']:>8}"
        for row in rows
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--candidate", action="append", choices=CANDIDATES)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", choices=CANDIDATES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        uvloop.run(serve(args.directory))
    elif args.one:
        sizes = {"requests": args.requests, "concurrency": args.concurrency}
        print(json.dumps(uvloop.run(measure(args.one, args.directory, **sizes))))
    else:
        candidates = args.candidate or list(CANDIDATES)
        rows = compare(candidates, requests=args.requests, concurrency=args.concurrency, rounds=args.rounds)
        print(json.dumps({"python": sys.version.split()[0], "rows": rows}) if args.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
