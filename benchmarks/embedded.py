"""`python -m benchmarks.embedded`: how fast the server patches, and what its objects weigh.

Run by hand, not a test. The client is a process of its own (this one); the server's share is told by the CPU
time of its process, so that the figure per core means something on a busy machine too.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import httptools
import yaml

from devcluster.embedded.plane import EmbeddedPlane, embedded_plane

_CRD: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "websites.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "websites", "kind": "Website"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"html": {"type": "string"}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
_LABEL: Final = "shard.ringleader.dev/bench"
_SITES: Final = "/apis/example.com/v1/namespaces/default/websites"
Request = tuple[str, str, str, bytes]
"""Method, path, content type, body."""


class _Client(asyncio.Protocol):
    """One keep-alive connection: the next request as soon as the last was answered."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 300:
            self._load.failed += 1
        self._load.done += 1
        self._send()

    def _send(self) -> None:
        request = next(self._load.requests, None)
        if self._transport is None:
            return
        if request is None:
            self._transport.close()
            self._load.finished()
            return
        method, path, media, body = request
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self._load.token}\r\n"
        head += f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


class Load:
    """Sends all requests over some connections."""

    def __init__(self, plane: EmbeddedPlane, requests: itertools.chain[Request]) -> None:
        config = yaml.safe_load(plane.kubeconfig.read_text(encoding="utf-8"))
        self.token: str = config["users"][0]["user"]["token"]
        self.requests = requests
        self.done = self.failed = 0
        self._port = int(urlsplit(plane.url).port or 0)
        self._open = 0
        self._over = asyncio.Event()

    def finished(self) -> None:
        self._open -= 1
        if not self._open:
            self._over.set()

    async def run(self, connections: int) -> float:
        """Seconds that it took."""
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        self._open = connections
        for _ in range(connections):
            await loop.create_connection(lambda: _Client(self), "127.0.0.1", self._port, ssl=tls)
        await self._over.wait()
        return time.perf_counter() - began


def _creates(count: int) -> itertools.chain[Request]:
    html = "x" * 600
    return itertools.chain(
        ("POST", _SITES, "application/json", _site(number, html)) for number in range(count)
    )


def _site(number: int, html: str) -> bytes:
    labels = {_LABEL: f"shard-{number % 10}", "app": "bench"}
    meta = {"name": f"site-{number:06d}", "labels": labels, "annotations": {"example.com/note": "y" * 100}}
    return json.dumps(
        {"apiVersion": "example.com/v1", "kind": "Website", "metadata": meta, "spec": {"html": html}}
    ).encode()


def _patches(count: int, objects: int, make: Callable[[int], tuple[str, bytes]]) -> itertools.chain[Request]:
    return itertools.chain(
        ("PATCH", f"{_SITES}/site-{number % objects:06d}", *make(number)) for number in range(count)
    )


def _fenced(number: int) -> tuple[str, bytes]:
    pointer = "/metadata/labels/" + _LABEL.replace("/", "~1")
    operations = [
        {"op": "test", "path": "/metadata/labels/app", "value": "bench"},
        {"op": "replace", "path": pointer, "value": f"shard-{number % 7}"},
    ]
    return "application/json-patch+json", json.dumps(operations).encode()


def _merge(number: int) -> tuple[str, bytes]:
    return "application/merge-patch+json", b'{"metadata":{"labels":{"%s":"s-%d"}}}' % (
        _LABEL.encode(),
        number % 7,
    )


def _cpu_s(plane: EmbeddedPlane) -> float:
    fields = Path(f"/proc/{plane.pids[0]}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _watchers(plane: EmbeddedPlane, count: int) -> list[asyncio.Transport]:
    """Open watches with a selector that read and throw away."""

    class Sink(asyncio.Protocol):
        pass

    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    load = Load(plane, itertools.chain())
    opened = []
    for number in range(count):
        transport, _ = await asyncio.get_running_loop().create_connection(
            Sink, "127.0.0.1", int(urlsplit(plane.url).port or 0), ssl=tls
        )
        path = f"{_SITES}?watch=true&resourceVersion=0&labelSelector={_LABEL}%3Dshard-{number}"
        head = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {load.token}\r\n\r\n"
        transport.write(head.encode())
        opened.append(transport)
    return opened


async def measure(directory: Path, *, objects: int, patches: int, connections: int, watchers: int) -> None:
    async with embedded_plane(directory) as plane:
        await plane.order(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json.dumps(_CRD).encode(),
        )
        empty = plane.rss_bytes()
        await _report(plane, "create", objects, _creates(objects), connections)
        _say("memory", empty_mb=empty / 1e6, loaded_mb=plane.rss_bytes() / 1e6, objects=objects)
        opened = await _watchers(plane, watchers)
        for name, make in (("json patch", _fenced), ("merge patch", _merge)):
            await _report(plane, name, patches, _patches(patches, objects, make), connections)
        for transport in opened:
            transport.close()
        _say("memory", after_patches_mb=plane.rss_bytes() / 1e6)


async def _report(
    plane: EmbeddedPlane, what: str, count: int, requests: itertools.chain[Request], connections: int
) -> None:
    load, cpu = Load(plane, requests), _cpu_s(plane)
    took = await load.run(connections)
    used = _cpu_s(plane) - cpu
    _say(
        what, count=count, failed=load.failed, per_s=count / took, per_core_s=count / used, cores=used / took
    )


def _say(what: str, **figures: float) -> None:
    sys.stdout.write(json.dumps({"what": what, **{k: round(v, 2) for k, v in figures.items()}}) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedded", description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--patches", type=int, default=30_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--watchers", type=int, default=5)
    options = parser.parse_args()
    import uvloop

    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(
            measure(
                Path(directory),
                objects=options.objects,
                patches=options.patches,
                connections=options.connections,
                watchers=options.watchers,
            )
        )


if __name__ == "__main__":
    main()
