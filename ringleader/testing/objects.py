"""The objects a fleet works on, as their users see them: created, updated and read by an independent client.

Owns what was asked for (the demands) and the comparison of what is with what should be. Knows neither rings
nor processes. `Fleet.objects` is one of these; the traffic of the demo is `run_updates`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from kubeio.clock import Clock
from kubeio.resource import ApiResource
from ringleader.testing.availability import Demand
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.commands import CONFIGMAPS, WEBSITES


@dataclass(frozen=True, slots=True)
class Ref:
    """One object: where it is and which one it is."""

    resource: ApiResource
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.resource.plural}/{self.name}"


class Objects:
    """The fleet's objects in one namespace. Every change that asks for a reconcile is kept in `demands`."""

    def __init__(
        self, client: IndependentClient, *, namespace: str, clock: Clock, resource: ApiResource = WEBSITES
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.resource = resource
        self.refs: list[Ref] = []
        self.demands: list[Demand] = []
        self.updates = 0
        self.failed_updates = 0
        self._clock = clock
        self._version = 0

    async def create(self, name: str, body: Doc | None = None, *, resource: ApiResource | None = None) -> Ref:
        """Create one object; *body* holds what stands beside its metadata. Those of other resources are only made."""
        resource = resource or self.resource
        namespace = self.namespace if resource.namespaced else ""
        meta = {"name": name} | ({"namespace": namespace} if namespace else {})
        kind = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
        asked_at = self._clock.now()
        doc = await self.client.create(resource, {**kind, **(body or page(name, 0))}, namespace=namespace)
        ref = Ref(resource, namespace, name, doc["metadata"]["uid"])
        if resource == self.resource:
            self.refs.append(ref)
            self._demand(doc, asked_at)
        return ref

    async def create_many(self, count: int, *, prefix: str = "site", at_once: int = 16) -> list[Ref]:
        """Create *count* objects `PREFIX-0000...`, *at_once* at a time."""
        names = iter([f"{prefix}-{index:04d}" for index in range(count)])

        async def worker() -> list[Ref]:
            return [await self.create(name) for name in names]

        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(worker(), name=f"create-{n}") for n in range(at_once)]
        return [ref for task in workers for ref in task.result()]

    async def update(self, ref: Ref, body: Doc | None = None) -> Doc:
        """Change one object's spec: *body*, or a new version of its page."""
        self._version += 1
        asked_at = self._clock.now()
        patch = body or page(ref.name, self._version)
        doc = await self.client.merge(ref.resource, ref.name, patch, namespace=ref.namespace)
        self.updates += 1
        self._demand(doc, asked_at)
        return doc

    async def update_all(self, refs: Sequence[Ref] | None = None, *, at_once: int = 16) -> None:
        """Change every object once, *at_once* at a time."""
        left = iter(list(refs if refs is not None else self.refs))

        async def worker() -> None:
            for ref in left:
                await self.update(ref)

        async with asyncio.TaskGroup() as tasks:
            for n in range(at_once):
                tasks.create_task(worker(), name=f"update-{n}")

    async def run_updates(self, *, per_s: float, rng: random.Random) -> None:
        """Update random objects at a steady rate until cancelled; what fails is counted, and it goes on."""
        due = self._clock.now()
        while True:
            due += 1 / per_s
            await asyncio.sleep(max(0.0, due - self._clock.now()))
            try:
                await self.update(rng.choice(self.refs))
            except (RequestFailedError, aiohttp.ClientError, TimeoutError):
                self.failed_updates += 1

    async def get(self, ref: Ref, *, resource: ApiResource | None = None) -> Doc:
        """The object, or the object of *resource* with its name."""
        return await self.client.get(resource or ref.resource, ref.name, namespace=ref.namespace)

    async def labels(self, *, resource: ApiResource | None = None) -> dict[str, dict[str, str]]:
        """The labels of every object, by its name."""
        items = await self.client.list_all(
            resource or self.resource, namespace=self.namespace, metadata_only=True
        )
        return {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in items}

    async def stale(self) -> list[str]:
        """Names of the objects whose status or ConfigMap does not show their latest spec."""
        sites = await self.client.list_all(self.resource, namespace=self.namespace)
        pages = await self.client.list_all(CONFIGMAPS, namespace=self.namespace)
        return stale_names(sites, pages)

    async def generations(self) -> dict[str, int]:
        """Generation of every object's spec, by uid."""
        items = await self.client.list_all(self.resource, namespace=self.namespace, metadata_only=True)
        return {item["metadata"]["uid"]: item["metadata"].get("generation", 1) for item in items}

    async def behind(self, wanted: Mapping[str, int]) -> list[str]:
        """Names of the objects that have not been reconciled at the *wanted* generation (by uid) or later."""
        items = await self.client.list_all(self.resource, namespace=self.namespace)
        return [
            item["metadata"]["name"]
            for item in items
            if _part(item, "status").get("observedGeneration", 0) < wanted.get(item["metadata"]["uid"], 0)
        ]

    def _demand(self, doc: Doc, asked_at: float) -> None:
        meta = doc["metadata"]
        key = f"{meta.get('namespace', '')}/{meta['name']}"
        self.demands.append(Demand(meta["uid"], key, meta.get("generation", 1), asked_at))


def page(name: str, version: int) -> Doc:
    """The spec of a Website in its *version*."""
    return {"spec": {"html": f"<h1>{name}</h1><p>version {version}</p>"}}


def stale_names(sites: Iterable[Mapping[str, object]], pages: Iterable[Mapping[str, object]]) -> list[str]:
    """Names of the *sites* whose status or page (a ConfigMap they control) lags behind their spec."""
    shown: dict[str, str] = {}
    for config_map in pages:
        meta, data = _part(config_map, "metadata"), _part(config_map, "data")
        for ref in meta.get("ownerReferences") or []:
            shown[ref["uid"]] = "".join(map(str, data.values()))
    stale = []
    for site in sites:
        meta, html = _part(site, "metadata"), _part(site, "spec").get("html", "")
        is_seen = _part(site, "status").get("observedGeneration") == meta.get("generation")
        if not is_seen or str(html) not in shown.get(meta["uid"], ""):
            stale.append(str(meta["name"]))
    return stale


def _part(doc: Mapping[str, object], name: str) -> Doc:
    part = doc.get(name)
    return part if isinstance(part, dict) else {}
