"""An API server in memory with Leases and labelled objects, on virtual time; it counts what it is asked, and refuses.

It stands in for `kubeio.rest.client.Client` under `MembershipController`. The same over sockets: tests/sharder/io.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from kubeio.errors import AlreadyExists, Conflict, KubeError, NotFound
from kubeio.http.lines import Lines
from kubeio.models import Lease, LeaseSpec, Meta, Object
from kubeio.resource import LEASES, ApiResource
from kubeio.rest.client import Client, Page
from tests.sharder.pure.lease_simulation import NAMESPACE, make_spec

SPEC = make_spec(max_lease_duration_s=15)
KEYS = SPEC.keys


class LeaseServer:
    """Requests are counted by what they do: `create`, `get`, `list`, `update`, `delete`, `watch`, `objects`."""

    def __init__(self) -> None:
        self.version = 100
        self.leases: dict[str, Lease] = {}
        self.labelled: set[str] = set()
        """Names that objects carry."""
        self.requests: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()
        self.most_under_way: Counter[str] = Counter()
        self.selectors: list[str] = []
        """Of the lists of objects."""
        self.refuse: dict[str, Callable[[], KubeError]] = {}
        """What a kind of request is answered instead."""
        self.hangs = ""
        """The kind of request that is never answered."""
        self.takes_s: dict[str, float] = {}
        """Seconds that a kind of request takes, if not 5 ms."""
        self.page_is_cut = False
        """Lists of objects say that there is more."""
        self._streams: list[Lines] = []

    @property
    def client(self) -> Client:
        return cast(Client, self)

    # ---- shards -----------------------------------------------------------------------------------------------

    def join(self, *names: str, duration_s: int = 15, state: str = "ready") -> None:
        for name in names:
            meta = Meta(
                name=name,
                namespace=NAMESPACE,
                uid=f"uid-{name}",
                labels={KEYS.ring_label: KEYS.ring, KEYS.state: state},
                annotations={KEYS.member: name.rpartition("-")[0], KEYS.protocol: "v1", KEYS.synced: "true"},
                creation_timestamp="2026-01-01T00:00:00Z",
            )
            self.store(Lease(meta, LeaseSpec(name, duration_s, "t0", "t0", 0)))

    def edit(self, name: str, **spec: Any) -> None:
        lease = self.leases[name]
        self.store(msgspec.structs.replace(lease, spec=msgspec.structs.replace(lease.spec, **spec)))

    def renew(self, *names: str) -> None:
        for name in names:
            self.edit(name, renew_time=f"t{self.version}")

    def store(self, lease: Lease) -> Lease:
        self.version += 1
        meta = msgspec.structs.replace(lease.metadata, resource_version=str(self.version))
        stored = msgspec.structs.replace(lease, metadata=meta)
        self.leases[meta.name] = stored
        for lines in self._streams:
            lines.feed(
                json.dumps({"type": "MODIFIED", "object": msgspec.to_builtins(stored)}).encode() + b"\n"
            )
        return stored

    # ---- what `Leases`, `Reflector` and `Scope` call -------------------------------------------------------------

    async def create(self, resource: ApiResource, lease: Lease, **_: object) -> Lease:
        await self._asked("create")
        if lease.metadata.name in self.leases:
            raise AlreadyExists("CREATE", status=409)
        return self.store(lease)

    async def get(self, resource: ApiResource, name: str, **_: object) -> Lease:
        await self._asked("get")
        if name not in self.leases:
            raise NotFound("GET", status=404)
        return self.leases[name]

    async def replace(self, resource: ApiResource, name: str, lease: Lease, **_: object) -> Lease:
        await self._asked("update")
        found = self.leases.get(name)
        if found is None or found.metadata.resource_version != lease.metadata.resource_version:
            raise Conflict("PUT", status=409)
        return self.store(lease)

    async def delete(self, resource: ApiResource, name: str, **_: object) -> None:
        await self._asked("delete")
        del self.leases[name]
        self.version += 1

    async def pages(self, resource: ApiResource, *, label_selector: str, **_: object) -> AsyncIterator[Page]:
        if resource == LEASES:
            await self._asked("list")
            yield self._page()
            return
        self.selectors.append(label_selector)
        await self._asked("objects")
        found = [name for name in sorted(self.labelled) if name in label_selector]
        objects = [Object(Meta(name=f"o-{name}", labels={KEYS.shard: name}), b"") for name in found]
        yield Page(objects, str(self.version), "more" if self.page_is_cut else "", None)

    async def list_page(self, resource: ApiResource, **_: object) -> Page:
        await self._asked("list")
        return self._page()

    @asynccontextmanager
    async def stream(self, path: str, *, query: dict[str, str], **_: object) -> AsyncIterator[Lines]:
        await self._asked("watch")
        lines = Lines(lambda: None, lambda: None)
        if query.get("sendInitialEvents"):
            for lease in self.leases.values():
                lines.feed(
                    json.dumps({"type": "ADDED", "object": msgspec.to_builtins(lease)}).encode() + b"\n"
                )
            meta = {
                "resourceVersion": str(self.version),
                "annotations": {"k8s.io/initial-events-end": "true"},
            }
            lines.feed(json.dumps({"type": "BOOKMARK", "object": {"metadata": meta}}).encode() + b"\n")
        self._streams.append(lines)
        try:
            yield lines
        finally:
            self._streams.remove(lines)

    # ---- inside -----------------------------------------------------------------------------------------------

    async def _asked(self, what: str) -> None:
        self.requests[what] += 1
        self.under_way[what] += 1
        self.most_under_way[what] = max(self.most_under_way[what], self.under_way[what])
        try:
            takes_s = self.takes_s.get(what, 0.005)
            await asyncio.Event().wait() if what == self.hangs else await asyncio.sleep(takes_s)
        finally:
            self.under_way[what] -= 1
        if what in self.refuse:
            raise self.refuse[what]()

    def _page(self) -> Page:
        found = [Object(lease.metadata, msgspec.json.encode(lease)) for lease in self.leases.values()]
        return Page(found, str(self.version), "", None)
