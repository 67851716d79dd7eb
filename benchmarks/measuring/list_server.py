"""A server of any number of objects that exist only as numbers, before a control plane that answers everything else.

It honours label selectors, pages and streamed lists, and gives whole objects or their metadata. Objects with owners are
for memory at rest with a million of them: their owners renew, so that a sharder has nothing to write. `python -m
benchmarks.measuring.list_server` shows changes one after the other, each with the instant just before it was handed to
the socket.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from aiohttp import web

from benchmarks.measuring.stock import object_names
from devcluster.embedded.selectors import parse_label_selector
from kubeio.access.cluster import load_cluster
from kubeio.program.http_server import write_port
from kubeio.program.runtime import run as run_process
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from ring import HashRing, object_key

_BOOKMARK_EVERY_S: Final = 20.0
_PAGE: Final = 500
_PASSED_ON: Final = ("Accept", "Content-Type", "User-Agent", "Accept-Encoding")
_PASSED_BACK: Final = ("Content-Type", "Content-Encoding", "Retry-After")
_PARTIAL: Final = "PartialObjectMetadata"
_FILLING: Final = "x" * 600
_Shape = Callable[[int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Crowd:
    """*count* objects, each with the owner that a ring of *shards* (by member) gives it; without shards, with none."""

    resource: ApiResource
    namespace: str
    keys: RingKeys
    count: int
    shards: Mapping[str, str]

    def owners(self) -> list[str]:
        if not self.shards:
            return [""] * self.count
        names = [object_key(self.resource.group, self.namespace, name) for name in object_names(self.count)]
        return [self.shards[member] for member in HashRing(sorted(self.shards)).owners(names)]

    def labels(self, owner: str) -> dict[str, str]:
        return {self.keys.shard: owner} if owner else {}


@dataclass(frozen=True, slots=True)
class Changes:
    """So many changes, *pause_s* (at least, at most) apart; the first *settle_s* after the list."""

    count: int = 0
    pause_s: tuple[float, float] = (0.005, 0.025)
    settle_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A write to an object that is only a number."""

    path: str
    body: bytes
    headers: Mapping[str, str]


class ListServer:
    """Plain HTTP on loopback, in front of *upstream*."""

    def __init__(
        self,
        crowd: Crowd,
        *,
        upstream: str,
        token: str,
        tls: ssl.SSLContext | None,
        changes: Changes | None = None,
    ) -> None:
        self._crowd = crowd
        self._owners = crowd.owners()
        self._upstream = upstream
        self._token = token
        self._tls = tls
        self._changes = changes or Changes()
        self._version = 1000
        self._session: aiohttp.ClientSession | None = None
        self.url = ""
        self.objects_listed = 0
        self.writes: list[Refused] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ListServer]:
        """Serve during the block."""
        app = web.Application()
        namespaced = self._crowd.resource.path(namespace=self._crowd.namespace)
        for path in (self._crowd.resource.path(), namespaced):
            app.router.add_get(path, self._read)
        app.router.add_route("*", namespaced + "/{name:.*}", self._refuse)
        app.router.add_route("*", "/{tail:.*}", self._pass_on)
        runner = web.AppRunner(app, shutdown_timeout=1.0, handler_cancellation=True, access_log=None)
        connector = aiohttp.TCPConnector(ssl=self._tls or True, limit=0)
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), connector=connector, auto_decompress=False
        ) as session:
            self._session = session
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()

    # -- the objects ---------------------------------------------------------------------------------------

    async def _read(self, request: web.Request) -> web.StreamResponse:
        selector = parse_label_selector(request.query.get("labelSelector", ""))
        shape = self._partial if _PARTIAL in request.headers.get("Accept", "") else self._whole
        # all objects of one owner have the same labels
        selected = {owner for owner in set(self._owners) if selector.matches(self._crowd.labels(owner))}
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request, selected, shape)
        return self._page(request, selected, shape)

    def _page(self, request: web.Request, selected: set[str], shape: _Shape) -> web.Response:
        limit = int(request.query.get("limit") or 0)
        index = int(request.query.get("continue") or 0)
        items: list[str] = []
        while selected and index < self._crowd.count and (not limit or len(items) < limit):
            if self._owners[index] in selected:
                items.append(json.dumps(shape(index)))
            index += 1
        self.objects_listed += len(items)
        meta = {"resourceVersion": str(self._version)}
        if selected and index < self._crowd.count:
            meta["continue"] = str(index)
        kind = self._kind(shape)
        head = f'{{"kind":"{kind["kind"]}List","apiVersion":"{kind["apiVersion"]}","metadata":{json.dumps(meta)},'
        return web.Response(text=f'{head}"items":[{",".join(items)}]}}', content_type="application/json")

    async def _watch(self, request: web.Request, selected: set[str], shape: _Shape) -> web.StreamResponse:
        """The stream of a watch: the first list if requested, changes, then bookmarks."""
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if request.query.get("sendInitialEvents") == "true":
            for lines in self._initial(selected, shape):
                await answer.write(lines)
            await answer.write(self._bookmark({"k8s.io/initial-events-end": "true"}, shape))
        changes, rng = self._changes, random.Random(1)  # noqa: S311 - pauses, no secret
        await asyncio.sleep(changes.settle_s if changes.count else 0)
        for _ in range(changes.count):
            await asyncio.sleep(rng.uniform(*changes.pause_s))
            await answer.write(self._change())
        self._changes = Changes()
        while True:
            await asyncio.sleep(_BOOKMARK_EVERY_S)
            await answer.write(self._bookmark({}, shape))

    def _initial(self, selected: set[str], shape: _Shape) -> Iterator[bytes]:
        lines: list[bytes] = []
        for index, owner in enumerate(self._owners if selected else ()):
            if owner in selected:
                self.objects_listed += 1
                lines.append(_event("ADDED", shape(index)))
            if len(lines) == _PAGE:
                yield b"".join(lines)
                lines = []
        yield b"".join(lines)

    def _change(self) -> bytes:
        """The event of one change, made at the last moment. Round robin: no change waits for another."""
        self._version += 1
        changed = self._whole(self._version % self._crowd.count)
        changed["metadata"]["resourceVersion"] = str(self._version)
        changed["spec"]["html"] += f" sent-at {time.monotonic():.6f}"
        return _event("MODIFIED", changed)

    def _bookmark(self, annotations: Mapping[str, str], shape: _Shape) -> bytes:
        meta = {"resourceVersion": str(self._version), "annotations": dict(annotations)}
        return _event("BOOKMARK", {**self._kind(shape), "metadata": meta})

    def _kind(self, shape: _Shape) -> dict[str, Any]:
        if shape == self._partial:
            return {"kind": _PARTIAL, "apiVersion": "meta.k8s.io/v1"}
        return {"kind": self._crowd.resource.kind, "apiVersion": self._crowd.resource.api_version}

    def _partial(self, index: int) -> dict[str, Any]:
        """The metadata of one object, about as long as a real one's."""
        return {"kind": _PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": self._metadata(index)}

    def _whole(self, index: int) -> dict[str, Any]:
        spec = {"html": f"<h1>site-{index:07d}</h1>{_FILLING}"}
        return {**self._kind(self._whole), "metadata": self._metadata(index), "spec": spec}

    def _metadata(self, index: int) -> dict[str, Any]:
        return {
            "name": f"site-{index:07d}",
            "namespace": self._crowd.namespace,
            "uid": f"00000000-0000-4000-8000-{index:012d}",
            "resourceVersion": str(1 + index % 999),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": self._crowd.labels(self._owners[index]),
            "managedFields": [_MANAGED],
        }

    async def _refuse(self, request: web.Request) -> web.Response:
        self.writes.append(Refused(request.raw_path, await request.read(), dict(request.headers)))
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 405}
        return web.json_response({**status, "reason": "MethodNotAllowed"}, status=405)

    # -- everything else -----------------------------------------------------------------------------------

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        """Send *request* upstream and its answer back, as it comes."""
        if self._session is None:
            raise web.HTTPServiceUnavailable
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers["Authorization"] = f"Bearer {self._token}"
        body = await request.read()
        url = self._upstream + request.raw_path
        async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
            kept = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
            back = web.StreamResponse(status=answer.status, headers=kept)
            with contextlib.suppress(ConnectionResetError):  # the client is gone
                await back.prepare(request)
                async for chunk in answer.content.iter_any():
                    await back.write(chunk)
                await back.write_eof()
            return back


_MANAGED: Final = {
    "manager": "ringleader-sharder",
    "operation": "Update",
    "apiVersion": "example.com/v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:shard.ringleader.dev/websites": {}}}},
}


def _event(kind: str, document: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": document}, separators=(",", ":")).encode() + b"\n"


def anonymous_kubeconfig(path: Path, url: str) -> Path:
    """A kubeconfig for a list server, which adds the credentials itself, written to *path*."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "list-server", "cluster": {"server": url}}],
        "users": [{"name": "anonymous", "user": {}}],
        "contexts": [{"name": "list-server", "context": {"cluster": "list-server", "user": "anonymous"}}],
        "current-context": "list-server",
    }
    path.write_text(json.dumps(document))
    return path


async def serve(options: argparse.Namespace) -> None:
    """Show changes on loopback until cancelled; `--port-file` gets the port."""
    cluster = load_cluster(kubeconfig=str(options.kubeconfig))
    token = yaml.safe_load(options.kubeconfig.read_text())["users"][0]["user"]["token"]
    resource = ApiResource("example.com", "v1", "websites", "Website")
    crowd = Crowd(resource, options.namespace, RingKeys("websites"), options.objects, {})
    tls = ssl.create_default_context(cadata=cluster.trust.ca.decode())
    server = ListServer(
        crowd, upstream=cluster.server, token=token, tls=tls, changes=Changes(options.changes)
    )
    async with server.serving():
        write_port(options.port_file, int(server.url.rpartition(":")[2]))
        await asyncio.Event().wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--kubeconfig", "--port-file"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--objects", "--changes"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--namespace", required=True)
    return run_process(serve(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
