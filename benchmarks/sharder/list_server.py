"""A server with any number of objects that exist only as numbers: for memory at rest with a million of them.

Stands before a real control plane and passes everything on (Leases, the ring, discovery), except reads of the ring's
resource: those it answers itself, honouring label selectors, pages and streamed lists. Every object has an owner that
lives, so that a sharder has nothing to write.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web

from benchmarks.measuring.stock import object_names
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from ring import HashRing, object_key

_VERSION: Final = "1000"
_BOOKMARK_EVERY_S: Final = 20.0
_PAGE: Final = 500
_PASSED_ON: Final = ("Accept", "Content-Type", "User-Agent", "Accept-Encoding")
_SHAPE: Final = "PartialObjectMetadata"
_API: Final = "meta.k8s.io/v1"
_SET: Final = re.compile(r"(?P<key>\S+) (?P<operator>in|notin) \((?P<values>[^)]*)\)\Z")


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether an object with *labels* is selected; the forms `k`, `!k`, `k=v`, `k in (a,b)`, `k notin (a,b)`."""
    requirements = re.split(r",(?![^(]*\))", selector) if selector else []
    return all(_meets(requirement.strip(), labels) for requirement in requirements)


def _meets(requirement: str, labels: Mapping[str, str]) -> bool:
    if found := _SET.match(requirement):
        is_in = labels.get(found["key"]) in [value.strip() for value in found["values"].split(",")]
        return is_in == (found["operator"] == "in")
    if requirement.startswith("!"):
        return requirement[1:] not in labels
    key, equals, value = requirement.partition("=")
    return labels.get(key) == value.removeprefix("=") if equals else key in labels


@dataclass(frozen=True, slots=True)
class Crowd:
    """*count* objects, each with the owner that a ring of *shards* (by member) gives it."""

    resource: ApiResource
    namespace: str
    keys: RingKeys
    count: int
    shards: Mapping[str, str]

    def owners(self) -> list[str]:
        names = [object_key(self.resource.group, self.namespace, name) for name in object_names(self.count)]
        return [self.shards[member] for member in HashRing(sorted(self.shards)).owners(names)]


class ListServer:
    """Plain HTTP on loopback, in front of *upstream*."""

    def __init__(self, crowd: Crowd, *, upstream: str, token: str, tls: ssl.SSLContext | None) -> None:
        self._crowd = crowd
        self._owners = crowd.owners()
        self._upstream = upstream
        self._token = token
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self.url = ""
        self.objects_listed = 0
        self.writes = 0
        """Writes to objects, all refused: there should be none."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ListServer]:
        """Serve during the block."""
        app = web.Application()
        collection = self._crowd.resource.path()
        namespaced = self._crowd.resource.path(namespace=self._crowd.namespace)
        for path in (collection, namespaced):
            app.router.add_get(path, self._read)
        app.router.add_route("*", namespaced + "/{name}", self._refuse)
        app.router.add_route("*", "/{tail:.*}", self._pass_on)
        runner = web.AppRunner(app, shutdown_timeout=1.0, handler_cancellation=True)
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(ssl=self._tls or True, limit=0)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, auto_decompress=False
        ) as session:
            self._session = session
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()

    # -- the objects ---------------------------------------------------------------------------------------

    async def _read(self, request: web.Request) -> web.StreamResponse:
        selected = self._selected(request.query.get("labelSelector", ""))
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request, selected)
        return self._page(request, selected)

    def _selected(self, selector: str) -> frozenset[str]:
        """The owners whose objects *selector* selects: all objects of one owner bear the same labels."""
        owners = set(self._crowd.shards.values())
        return frozenset(owner for owner in owners if matches(selector, {self._crowd.keys.shard: owner}))

    def _page(self, request: web.Request, selected: frozenset[str]) -> web.Response:
        limit = int(request.query.get("limit") or 0)
        start = int(request.query.get("continue") or 0)
        items: list[str] = []
        index = start
        while selected and index < self._crowd.count and (not limit or len(items) < limit):
            if self._owners[index] in selected:
                items.append(self._object(index))
            index += 1
        self.objects_listed += len(items)
        meta = {"resourceVersion": _VERSION}
        if selected and index < self._crowd.count:
            meta["continue"] = str(index)
        head = f'{{"kind":"{_SHAPE}List","apiVersion":"{_API}","metadata":{json.dumps(meta)},"items":['
        return web.Response(text=f"{head}{','.join(items)}]}}", content_type="application/json")

    async def _watch(self, request: web.Request, selected: frozenset[str]) -> web.StreamResponse:
        """The stream of a watch: the first list if it is asked for, then bookmarks."""
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if request.query.get("sendInitialEvents") == "true":
            for lines in self._initial(selected):
                await answer.write(lines)
            await answer.write(self._bookmark({"k8s.io/initial-events-end": "true"}))
        while True:
            await asyncio.sleep(_BOOKMARK_EVERY_S)
            await answer.write(self._bookmark({}))

    def _initial(self, selected: frozenset[str]) -> Iterator[bytes]:
        lines: list[str] = []
        for index, owner in enumerate(self._owners if selected else ()):
            if owner in selected:
                lines.append(f'{{"type":"ADDED","object":{self._object(index)}}}\n')
            if len(lines) == _PAGE:
                yield "".join(lines).encode()
                self.objects_listed += len(lines)
                lines = []
        yield "".join(lines).encode()
        self.objects_listed += len(lines)

    def _bookmark(self, annotations: Mapping[str, str]) -> bytes:
        meta = {"resourceVersion": _VERSION, "annotations": dict(annotations)}
        event = {"type": "BOOKMARK", "object": {"kind": _SHAPE, "apiVersion": _API, "metadata": meta}}
        return json.dumps(event).encode() + b"\n"

    def _object(self, index: int) -> str:
        """The metadata of one object, about as long as a real one's."""
        return (
            f'{{"kind":"{_SHAPE}","apiVersion":"{_API}","metadata":{{"name":"site-{index:07d}",'
            f'"namespace":"{self._crowd.namespace}","uid":"00000000-0000-4000-8000-{index:012d}",'
            f'"resourceVersion":"{1 + index % 1000}","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z",'
            f'"labels":{{"{self._crowd.keys.shard}":"{self._owners[index]}"}},"managedFields":[{_MANAGED}]}}}}'
        )

    async def _refuse(self, request: web.Request) -> web.Response:
        self.writes += 1
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": 405,
            "reason": "MethodNotAllowed",
        }
        return web.json_response(status, status=405)

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
            kept = {
                name: answer.headers[name]
                for name in ("Content-Type", "Content-Encoding", "Retry-After")
                if name in answer.headers
            }
            back = web.StreamResponse(status=answer.status, headers=kept)
            await back.prepare(request)
            async for chunk in answer.content.iter_any():
                await back.write(chunk)
            await back.write_eof()
            return back


_MANAGED: Final = json.dumps(
    {
        "manager": "ringleader-sharder",
        "operation": "Update",
        "apiVersion": "example.com/v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:shard.ringleader.dev/websites": {}}}},
    }
)

__all__ = ["Crowd", "ListServer", "matches"]
