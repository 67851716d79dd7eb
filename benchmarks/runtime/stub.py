"""A list/watch server of the benchmark's own: it writes an event to a socket and says in it when it did.

Run as `python -m benchmarks.runtime.stub` in a process of its own. It serves discovery of one resource, its
list, and one watch that shows a change after the other at irregular times; each change carries CLOCK_MONOTONIC of
the moment just before it was handed to the socket. Everything else is not found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from kubeio.program.http_server import write_port
from kubeio.program.runtime import run as run_process

_BOOKMARK_EVERY_S: Final = 20.0
_FILLING: Final = "x" * 600
_GROUP, _VERSION = "example.com", "v1"


class Stub:
    """*objects* Websites in *namespace*; *samples* changes of them, *pause_s* (at least, at most) apart.

    The first comes *settle_s* after the list.
    """

    def __init__(
        self,
        *,
        namespace: str,
        objects: int,
        samples: int,
        settle_s: float = 2.0,
        pause_s: tuple[float, float],
        rng: random.Random,
    ) -> None:
        self._namespace = namespace
        self._objects = objects
        self._samples = samples
        self._settle_s = settle_s
        self._pause_s = pause_s
        self._rng = rng
        self._version = 1000

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api", self._core)
        app.router.add_get("/apis", self._groups)
        app.router.add_get(f"/apis/{_GROUP}/{_VERSION}", self._resources)
        collection = f"/apis/{_GROUP}/{_VERSION}/namespaces/{self._namespace}/websites"
        app.router.add_get(collection, self._read)
        return app

    async def _core(self, request: web.Request) -> web.Response:
        if "," not in request.headers.get("Accept", ","):
            return web.json_response(_aggregated(""))
        return web.json_response({"kind": "APIVersions", "versions": []})

    async def _groups(self, request: web.Request) -> web.Response:
        if "," not in request.headers.get("Accept", ","):  # our client takes aggregated discovery only
            return web.json_response(_aggregated(_GROUP))
        version = {"groupVersion": f"{_GROUP}/{_VERSION}", "version": _VERSION}
        group = {"name": _GROUP, "versions": [version], "preferredVersion": version}
        return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})

    async def _resources(self, _: web.Request) -> web.Response:
        verbs = ["get", "list", "watch"]
        one = {
            "name": "websites",
            "singularName": "website",
            "namespaced": True,
            "kind": "Website",
            "verbs": verbs,
        }
        listed = {"kind": "APIResourceList", "groupVersion": f"{_GROUP}/{_VERSION}", "resources": [one]}
        return web.json_response(listed)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request)
        items = [self._object(index) for index in range(self._objects)]
        meta = {"resourceVersion": str(self._version)}
        listed = {
            "kind": "WebsiteList",
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "metadata": meta,
            "items": items,
        }
        return web.json_response(listed)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """The stream of a watch: the first list if it is asked for, the changes, then bookmarks."""
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if request.query.get("sendInitialEvents") == "true":
            for index in range(self._objects):
                await answer.write(_event("ADDED", self._object(index)))
            await answer.write(self._bookmark({"k8s.io/initial-events-end": "true"}))
        await asyncio.sleep(self._settle_s)
        while self._samples > 0:
            self._samples -= 1
            await asyncio.sleep(self._rng.uniform(*self._pause_s))
            await answer.write(self._change())
        while True:
            await asyncio.sleep(_BOOKMARK_EVERY_S)
            await answer.write(self._bookmark({}))

    def _change(self) -> bytes:
        """The event of one change, made at the last moment. All objects take turns: no change waits for another."""
        self._version += 1
        changed = self._object(self._version % self._objects)
        changed["metadata"]["resourceVersion"] = str(self._version)
        changed["spec"]["html"] += f" sent-at {time.monotonic():.6f}"
        return _event("MODIFIED", changed)

    def _object(self, index: int) -> dict[str, Any]:
        meta = {
            "name": f"site-{index:07d}",
            "namespace": self._namespace,
            "uid": f"00000000-0000-4000-8000-{index:012d}",
            "resourceVersion": str(1 + index % 999),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        spec = {"html": f"<h1>site-{index:07d}</h1>{_FILLING}"}
        return {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": "Website", "metadata": meta, "spec": spec}

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        meta = {"resourceVersion": str(self._version), "annotations": annotations}
        kind = {"kind": "Website", "apiVersion": f"{_GROUP}/{_VERSION}", "metadata": meta}
        return _event("BOOKMARK", kind)


def _aggregated(group: str) -> dict[str, Any]:
    """Aggregated discovery of *group*; the core group (empty) has nothing here."""
    one = {
        "resource": "websites",
        "responseKind": {"kind": "Website"},
        "scope": "Namespaced",
        "singularResource": "website",
        "verbs": ["get", "list", "watch"],
    }
    items = [{"metadata": {"name": group}, "versions": [{"version": _VERSION, "resources": [one]}]}]
    return {"kind": "APIGroupDiscoveryList", "items": items if group else []}


def _event(kind: str, document: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": document}, separators=(",", ":")).encode() + b"\n"


async def serve(stub: Stub, port_file: Path) -> None:
    """Serve on loopback until cancelled; *port_file* says where."""
    runner = web.AppRunner(stub.app(), shutdown_timeout=1.0, handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        write_port(port_file, runner.addresses[0][1])
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--objects", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--pause-ms", type=float, nargs=2, default=(5.0, 25.0))
    flags = parser.parse_args()
    least_ms, most_ms = flags.pause_ms
    stub = Stub(
        namespace=flags.namespace,
        objects=flags.objects,
        samples=flags.samples,
        pause_s=(least_ms / 1000, most_ms / 1000),
        rng=random.Random(1),  # noqa: S311 - pauses, no secret
    )
    return run_process(serve(stub, flags.port_file))


if __name__ == "__main__":
    sys.exit(main())
