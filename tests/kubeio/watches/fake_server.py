"""An API server in memory that behaves: versions, pages, history, watches; and that misbehaves on request.

It stands in for `kubeio.rest.client.Client` under `Reflector`, on virtual time. The same promises are tested over
real sockets against the embedded control plane.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from kubeio.decoding import object_from
from kubeio.errors import BadRequest, Expired, KubeError, ServerFailure, Unreachable
from kubeio.http.lines import Lines
from kubeio.http.messages import BrokenMessage
from kubeio.models import ObjectKey
from kubeio.resource import ApiResource
from kubeio.rest.client import Client, Page

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
BOOKMARK_S = 60.0


class FakeServer:
    """Websites. Writes are `put` and `remove`; the attributes below them are faults."""

    def __init__(self, *, has_watch_list: bool = False) -> None:
        self.has_watch_list = has_watch_list
        self.version = 100
        self.objects: dict[ObjectKey, bytes] = {}
        self.requests: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.open_streams = 0
        # faults
        self.refuse: list[KubeError] = []  # answers to the next requests, in order
        self.is_down = False
        self.ignores_watch_list = False
        self.ends_streams_after: int | None = None
        """So many lines, and the server gives a slow reader up."""
        self.stale_list_at: int | None = None  # lists show this version
        self.polite_end_after_s: float | None = None
        self.error_event: dict[str, Any] | None = None  # what the next watch says first
        self.torn_line = False
        self.repeats_line = False  # the next event comes twice
        self.sends_bookmarks = True
        self._compacted = 0
        self._history: list[tuple[int, str, bytes]] = []
        self._snapshots: dict[int, dict[ObjectKey, bytes]] = {}
        self._written = asyncio.Event()
        self._cut = 0
        self._frozen = 0
        self._opened = 0
        self._awaited = ("", asyncio.Event())

    @property
    def client(self) -> Client:
        return cast(Client, self)

    # -- writes

    def put(self, name: str, *, spec: int | str = 0, namespace: str = "default", owner: str = "") -> str:
        """Create or update a Website; returns its version. *spec* is JSON if it is text."""
        self.version += 1
        key = ObjectKey(namespace, name)
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = self._render(key, spec, owner)
        self._tell(kind, self.objects[key])
        return str(self.version)

    def remove(self, name: str, *, namespace: str = "default") -> str:
        """Delete it, or have it leave the selection: the stream cannot tell."""
        self.version += 1
        key = ObjectKey(namespace, name)
        document = json.loads(self.objects.pop(key))
        document["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", json.dumps(document).encode())
        return str(self.version)

    def snapshot(self) -> dict[ObjectKey, bytes]:
        return dict(self.objects)

    # -- faults

    def compact(self) -> None:
        """Forget all history and every continue token."""
        self._compacted = self.version
        self._history.clear()
        self._snapshots.clear()

    def cut_streams(self) -> None:
        """Reset every open watch."""
        self._cut += 1
        self._wake()

    def freeze_streams(self) -> None:
        """Open watches stay open and never say anything again."""
        self._frozen = self._opened

    async def wait_for_request(self, verb: str) -> None:
        """Until the next request *verb* comes."""
        self._awaited = (verb, asyncio.Event())
        await self._awaited[1].wait()

    # -- what Reflector calls

    async def list_page(
        self,
        resource: ApiResource,
        *,
        limit: int = 500,
        continue_: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        **selection: object,
    ) -> Page:
        assert resource == WEBSITES
        assert not (continue_ and resource_version), "a real server refuses both"
        self._request("LIST", {"rv": resource_version, "match": resource_version_match, "limit": str(limit)})
        await asyncio.sleep(0.01)
        at = self.version if self.stale_list_at is None else self.stale_list_at
        if resource_version and int(resource_version) > self.version:
            raise ServerFailure("LIST", status=504, reason="Timeout", message="Too large resource version")
        start = 0
        if continue_:
            at, start = (int(part) for part in continue_.split(":"))
            if at not in self._snapshots:
                raise Expired("LIST", status=410, reason="Expired")
        listed = self._snapshots.setdefault(at, self._snapshot_at(at))
        keys = sorted(listed)
        end = start + limit if limit else len(keys)
        more = f"{at}:{end}" if end < len(keys) else ""
        objects = [object_from(listed[key]) for key in keys[start:end]]
        return Page(objects, str(at), more, None)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = "", **_: object
    ) -> AsyncIterator[Lines]:
        assert path == "/apis/example.com/v1/websites"
        assert query["watch"] == "true"
        wants_list = query.get("sendInitialEvents") == "true"
        self._request("WATCHLIST" if wants_list else "WATCH", dict(query))
        await asyncio.sleep(0.01)
        if wants_list and not self.has_watch_list and not self.ignores_watch_list:
            raise BadRequest("WATCH", status=400, message="sendInitialEvents is forbidden")
        since = int(query.get("resourceVersion", "0"))
        if not wants_list and since < self._compacted and len(self.queries) % 2:
            raise Expired("WATCH", status=410, reason="Expired")
        self.open_streams += 1
        lines = Lines(lambda: None, lambda: None)
        sender = asyncio.create_task(
            self._send(lines, self._lines(since, wants_list, int(query["timeoutSeconds"])))
        )
        try:
            yield lines
        except BrokenMessage as broken:
            raise Unreachable("WATCH", broken.reason, maybe_done=True) from broken
        finally:
            self.open_streams -= 1
            sender.cancel()

    # -- inside

    async def _send(self, lines: Lines, written: AsyncIterator[bytes]) -> None:
        """What the socket does with what the server writes."""
        try:
            sent = 0
            async for line in written:
                lines.feed(line + b"\n")
                sent += 1
                if sent == self.ends_streams_after:
                    break
        except KubeError as error:
            lines.fail(BrokenMessage(str(error), sent=True, answered=True))
        else:
            lines.end()

    async def _lines(self, since: int, wants_list: bool, lasts_s: int) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + (lasts_s if self.polite_end_after_s is None else self.polite_end_after_s)
        cut = self._cut
        self._opened += 1
        number = self._opened
        if self.error_event is not None:
            event, self.error_event = self.error_event, None
            yield _line("ERROR", json.dumps(event).encode())
            return
        if wants_list:
            since = self.version
            for line in self._initial_lines(since):
                yield line
        bookmark_at = loop.time() + BOOKMARK_S
        while loop.time() < ends_at:
            if self._cut != cut:
                raise Unreachable("WATCH", "connection reset", maybe_done=True)
            if number <= self._frozen:
                await self._wait(ends_at)
                continue
            if since < self._compacted:
                yield _line("ERROR", b'{"kind":"Status","code":410,"reason":"Expired","message":"too old"}')
                return
            fresh = next((entry for entry in self._history if entry[0] > since), None)
            if fresh is not None:
                since, kind, raw = fresh
                if self.repeats_line:
                    self.repeats_line = False
                    yield _line(kind, raw)
                torn, self.torn_line = self.torn_line, False
                yield _line(kind, raw)[:-20] if torn else _line(kind, raw)
            elif loop.time() >= bookmark_at:
                bookmark_at += BOOKMARK_S
                if self.sends_bookmarks:
                    yield _bookmark(since)
            else:
                await self._wait(min(bookmark_at, ends_at))

    def _initial_lines(self, version: int) -> list[bytes]:
        lines = [_line("ADDED", raw) for raw in self.objects.values()]
        return [*lines, _bookmark(version, ends_initial=True)] if self.has_watch_list else lines

    async def _wait(self, until: float) -> None:
        news = self._written
        try:
            # at least a tick: loop time is rounded, a timer may fire a hair before its time
            async with asyncio.timeout_at(max(until, asyncio.get_running_loop().time() + 0.001)):
                await news.wait()
        except TimeoutError:
            pass

    def _request(self, verb: str, query: dict[str, str]) -> None:
        self.requests.append(verb)
        self.queries.append(query)
        if verb == self._awaited[0]:
            self._awaited[1].set()
        if self.is_down:
            raise Unreachable(verb, "connection refused", maybe_done=False)
        if self.refuse:
            raise self.refuse.pop(0)

    def _snapshot_at(self, at: int) -> dict[ObjectKey, bytes]:
        """Everything as it was at version *at*."""
        if at == self.version:
            return dict(self.objects)
        listed: dict[ObjectKey, bytes] = {}
        for version, kind, raw in self._history:
            if version <= at:
                key = object_from(raw).meta.key
                if kind == "DELETED":
                    listed.pop(key, None)
                else:
                    listed[key] = raw
        return listed

    def _render(self, key: ObjectKey, spec: int | str, owner: str) -> bytes:
        metadata: dict[str, Any] = {
            "name": key.name,
            "namespace": key.namespace,
            "uid": f"uid-{key.name}",
            "resourceVersion": str(self.version),
        }
        if owner:
            controller = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": True}
            metadata["ownerReferences"] = [controller]
        document = {"kind": "Website", "metadata": metadata}
        return f'{json.dumps(document, separators=(",", ":"))[:-1]},"spec":{{"value":{spec}}}}}'.encode()

    def _tell(self, kind: str, raw: bytes) -> None:
        self._history.append((self.version, kind, raw))
        self._wake()

    def _wake(self) -> None:
        self._written.set()
        self._written = asyncio.Event()


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"%s","object":%s}' % (kind.encode(), raw)


def _bookmark(version: int, *, ends_initial: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if ends_initial else {}
    metadata = {"resourceVersion": str(version), "annotations": annotations, "creationTimestamp": None}
    return _line("BOOKMARK", json.dumps({"kind": "Website", "metadata": metadata}).encode())
