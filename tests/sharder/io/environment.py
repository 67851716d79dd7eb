"""A real API server (embedded), the real sharder in this process, and shards that are Leases written by the test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from devcluster.plane import ControlPlane, Write
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock, micro_time
from kubeio.errors import AlreadyExists, Conflict, NotFound
from kubeio.leases.lease import Leases
from kubeio.models import HasMeta, Lease, LeaseSpec, Meta
from kubeio.patch import JsonPatch, MergePatch
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, EVENTS, LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from ring import HashRing
from ring.key import object_key
from sharder.admission.webhook import Webhook
from sharder.live.state import LiveState
from sharder.metrics import SharderMetrics
from sharder.rings.manager import RingManager
from sharder.sharder_context import SharderContext
from sharder.writing.limiter import WriteLimiter
from tests.manifests import manifest

ROOT = Path(__file__).resolve().parents[3]
RING = "websites"
KEYS = RingKeys(RING)
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
SECRETS = ApiResource("", "v1", "secrets", "Secret")
SITES: dict[str, Any] = {"group": "example.com", "resource": "websites"}
TREE = {**SITES, "controlledResources": [{"resource": "configmaps"}, {"resource": "secrets"}]}
ONLY_SECRETS: list[dict[str, Any]] = [{"group": "", "resource": "secrets"}]
SITES_WITH_PAGES = {**SITES, "controlledResources": [{"group": "", "resource": "configmaps"}]}
Labels = dict[str, dict[str, str]]
T = TypeVar("T")


class HandMadeShard:
    """One life: a Lease that this test renews, releases, or lets fall silent."""

    def __init__(self, leases: Leases, name: str, member: str, duration_s: int) -> None:
        self.name = name
        self.member = member
        self._leases = leases
        self._duration_s = duration_s
        self._renewing: asyncio.Task[None] | None = None

    async def join(self, *, protocol: str = "v1", fills: bool = True, works: str = "") -> HandMadeShard:
        """*works*: the kinds that its Lease says it watches; empty: it does not say."""
        now = micro_time(SystemClock().wall())
        annotations = {KEYS.member: self.member} | ({KEYS.resources: works} if works else {})
        if protocol:
            annotations |= {KEYS.protocol: protocol, KEYS.duration: str(self._duration_s)}
        lease = Lease(
            Meta(name=self.name, labels={KEYS.ring_label: RING}, annotations=annotations),
            LeaseSpec(self.name, self._duration_s, now, now, 0),
        )
        await self._leases.create(lease)
        if protocol and fills:
            await self.fill()
        self._renewing = asyncio.create_task(self._renew(), name=f"renew {self.name}")
        return self

    async def fill(self) -> None:
        """Its caches are full: it says so with a renewal."""
        await self._write(holder=self.name, says={KEYS.synced: "true"})

    async def fall_silent(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewing
            self._renewing = None

    async def release(self) -> None:
        await self.fall_silent()
        await self._write(holder="")

    async def holder(self) -> str:
        return (await self._leases.get(self.name)).spec.holder_identity or ""

    async def lease(self) -> Lease:
        return await self._leases.get(self.name)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._duration_s / 3)
            with suppress(Exception):
                await self._write(holder=self.name)

    async def _write(self, *, holder: str, says: dict[str, str] | None = None) -> None:
        while True:
            lease = await self._leases.get(self.name)
            if lease.spec.holder_identity != self.name:
                return
            lease.spec.holder_identity = holder
            lease.spec.renew_time = micro_time(SystemClock().wall())
            lease.metadata.annotations |= says or {}
            with suppress(Conflict):
                await self._leases.swap(lease)
                return


class SharderEnvironment:
    """One control plane and what a test does with it."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self.plane = plane
        self._writes_before = len(plane.writes())
        self.client = client
        self.leases = Leases(client, "default")
        self.shards: list[HandMadeShard] = []

    async def install(self) -> None:
        for path in ("manifests/crds/ringleader.dev_controllerrings.yaml", "examples/website/crd.yaml"):
            await self.define(path)
        for resource in (CONTROLLER_RINGS, WEBSITES):
            await wait_until(lambda r=resource: self._is_served(r))  # type: ignore[misc] # a default binds the loop's value

    async def define(self, path: str) -> None:
        with suppress(AlreadyExists):
            await self.client.create(CRDS, manifest(ROOT / path), type=bytes)

    def writes(self) -> list[Write]:
        """What was written since the test began."""
        return self.plane.writes()[self._writes_before :]

    async def clear(self) -> None:
        """Take everything away that tests make, on a plane that cannot be wiped."""
        await self.plane.faults.clear()
        for resource, namespace in (
            (CONTROLLER_RINGS, ""),
            (WEBSITES, "default"),
            (CONFIGMAPS, "default"),
            (LEASES, "default"),
        ):
            path = resource.path(namespace=namespace)
            with suppress(NotFound):
                await self.client.request("DELETE", path)
                async for page in self.client.pages(resource, namespace=namespace, metadata_only=True):
                    for left in page.objects:
                        patch = MergePatch({"metadata": {"finalizers": None}})
                        with suppress(NotFound):
                            await self.client.patch(
                                resource, left.meta.name, patch, namespace=namespace, type=bytes
                            )

    async def _is_served(self, resource: ApiResource) -> bool:
        try:
            await self.client.list_page(resource, limit=1)
        except NotFound:
            return False
        return True

    async def ring(self, **spec: object) -> None:
        """Create the ring, or change its spec."""
        full = {
            "leaseNamespace": "default",
            "resources": [SITES_WITH_PAGES],
            "settleSeconds": 0.3,
            "maxLeaseDurationSeconds": 2,
            **spec,
        }
        document = {
            "apiVersion": "ringleader.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": RING},
            "spec": full,
        }
        try:
            await self.client.create(CONTROLLER_RINGS, document, type=bytes)
        except AlreadyExists:
            await self.client.patch(CONTROLLER_RINGS, RING, MergePatch({"spec": full}), type=bytes)

    async def report(self, **status: Any) -> None:
        """Write *status* as a sharder would."""
        patch = MergePatch({"status": {"unassigned": 0, "misplaced": 0, **status}})
        await self.client.patch(CONTROLLER_RINGS, RING, patch, subresource="status", type=bytes)

    async def status(self) -> dict[str, object]:
        found = await self.client.get(CONTROLLER_RINGS, RING, type=dict[str, object])
        status = found.get("status", {})
        assert isinstance(status, dict)
        return status

    async def last_moved(self) -> int:
        """What the status says of the last rebalance; 0 before the first one."""
        last = (await self.status()).get("lastRebalance", {})
        assert isinstance(last, dict)
        return int(last.get("moved", 0))

    async def condition(self, kind: str) -> dict[str, object]:
        conditions = (await self.status()).get("conditions", [])
        assert isinstance(conditions, list)
        return next((c for c in conditions if c["type"] == kind), {})

    async def shard(
        self,
        member: str,
        *,
        life: str = "00000001",
        duration_s: int = 1,
        protocol: str = "v1",
        fills: bool = True,
        works: str = "",
    ) -> HandMadeShard:
        shard = HandMadeShard(self.leases, f"{member}-{life}", member, duration_s)
        self.shards.append(shard)
        return await shard.join(protocol=protocol, fills=fills, works=works)

    async def join(self, members: Sequence[str], *, duration_s: int = 1) -> list[HandMadeShard]:
        """One life of each of *members*."""
        return [await self.shard(member, duration_s=duration_s) for member in members]

    async def sites_of(self, shard: HandMadeShard, names: Iterable[str]) -> None:
        """Websites that are *shard*'s already."""
        for name in names:
            await self.site(name, labels={KEYS.shard: shard.name})

    async def sites(self, count: int, *, labels: dict[str, str] | None = None, first: int = 0) -> None:
        for number in range(first, first + count):
            await self.site(f"site-{number}", labels=labels)

    async def site(
        self, name: str, *, labels: dict[str, str] | None = None, namespace: str = "default"
    ) -> Meta:
        return await self.make(WEBSITES, name, labels=labels, namespace=namespace)

    async def page(self, site: Meta, *, labels: dict[str, str] | None = None) -> Meta:
        """A ConfigMap that *site* controls."""
        return await self.make(CONFIGMAPS, site.name, labels=labels, above=(WEBSITES, site))

    async def make(
        self,
        resource: ApiResource,
        name: str,
        *,
        namespace: str = "default",
        labels: dict[str, str] | None = None,
        above: tuple[ApiResource, Meta] | None = None,
    ) -> Meta:
        """An object of *resource*, controlled by the object *above* if that is given."""
        meta: dict[str, object] = {"name": name, "labels": labels or {}}
        if above is not None:
            kind, parent = above
            reference = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": parent.name,
                "uid": parent.uid,
            }
            meta["ownerReferences"] = [{**reference, "controller": True}]
        document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
        if resource == WEBSITES:
            document["spec"] = {"html": name}
        return (await self.client.create(resource, document, namespace=namespace, type=HasMeta)).metadata

    async def patch(
        self, resource: ApiResource, name: str, change: dict[str, Any], namespace: str = "default"
    ) -> None:
        """Merge *change* into an object, as a person would."""
        await self.client.patch(resource, name, MergePatch(change), namespace=namespace, type=bytes)

    async def labels(self, resource: ApiResource = WEBSITES) -> Labels:
        return {
            item.meta.name: item.meta.labels
            async for page in self.client.pages(resource, metadata_only=True)
            for item in page.objects
        }

    async def owners(self, resource: ApiResource = WEBSITES) -> dict[str, str]:
        return {name: labels.get(KEYS.shard, "") for name, labels in (await self.labels(resource)).items()}

    async def drains(self, resource: ApiResource = WEBSITES) -> dict[str, str]:
        found = await self.labels(resource)
        return {name: labels[KEYS.drain] for name, labels in found.items() if KEYS.drain in labels}

    async def acknowledge(self, name: str, *, resource: ApiResource = WEBSITES) -> None:
        """Do as the owner does on a directed drain: pass the object on in one write."""
        meta = (await self.client.get(resource, name, namespace="default", type=HasMeta)).metadata
        shard, drain = (f"/metadata/labels/{key.replace('/', '~1')}" for key in (KEYS.shard, KEYS.drain))
        patch = JsonPatch().test("/metadata/resourceVersion", meta.resource_version)
        target = meta.labels[KEYS.drain]
        patch = patch.replace(shard, target) if target else patch.remove(shard)
        await self.client.patch(resource, name, patch.remove(drain), namespace="default", type=bytes)

    async def acknowledge_all(self, resource: ApiResource = WEBSITES) -> None:
        for name in await self.drains(resource):
            await self.acknowledge(name, resource=resource)

    async def namespace(self, name: str, labels: dict[str, str]) -> None:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        await self.client.create(NAMESPACES, document, type=bytes)

    @asynccontextmanager
    async def sharder(self, identity: str = "sharder-1", *, leads: bool = True) -> AsyncIterator[RingManager]:
        """The real rooms of a sharder, with or without leadership, until the block ends."""
        user = await self.plane.kubeconfig_for(identity)
        async with Client(load_cluster(kubeconfig=str(user))) as client:
            rings = RingManager(sharder_context(client, identity=identity), names=())
            if leads:
                rings.lead()
            async with running(rings.run()):
                yield rings

    async def event_notes(self, reason: str) -> list[str]:
        """Notes of the Events with *reason*."""
        found = await self.client.request("GET", EVENTS.path())
        items = msgspec.json.decode(found.body)["items"]
        return [item["note"] for item in items if item["reason"] == reason]

    async def label_namespace(self, name: str, labels: dict[str, str]) -> None:
        await self.client.patch(NAMESPACES, name, MergePatch({"metadata": {"labels": labels}}), type=bytes)

    async def exists(self, resource: ApiResource, name: str) -> bool:
        try:
            await self.client.get(resource, name, type=bytes)
        except NotFound:
            return False
        return True

    async def until_condition(
        self, kind: str, *, says: str = "", within_s: float = 10.0, **fields: str
    ) -> None:
        """Return when the ring's condition *kind* has these *fields* and *says* stands in its message."""

        def holds(found: dict[str, object]) -> bool:
            return fields.items() <= found.items() and says in str(found.get("message"))

        await eventually(lambda: self.condition(kind), holds, within_s=within_s)

    async def until_ring_is_gone(self, *, within_s: float = 10.0) -> None:
        await eventually(lambda: self.exists(CONTROLLER_RINGS, RING), False, within_s=within_s)

    async def until_balanced(self, *, within_s: float = 10.0) -> None:
        await wait_until(lambda: is_balanced(self), within_s=within_s)

    async def close(self) -> None:
        for shard in self.shards:
            await shard.fall_silent()


def sharder_context(
    client: Client,
    *,
    identity: str = "sharder-1",
    lease_client: Client | None = None,
    metrics: SharderMetrics | None = None,
    webhook: Webhook | None = None,
    live: LiveState | None = None,
) -> SharderContext:
    """Context of a sharder with one *client* for everything, or another one for Leases."""
    clock, rng = SystemClock(), random.Random(7)
    return SharderContext(
        identity=identity,
        client=client,
        lease_client=lease_client or client,
        discovery=Discovery(client),
        limiter=WriteLimiter(clock=clock, rng=rng),
        metrics=metrics or SharderMetrics(CollectorRegistry()),
        clock=clock,
        rng=rng,
        webhook=webhook,
        live=live or LiveState(identity=identity, clock=clock),
    )


async def backdate(client: Client, resource: ApiResource, name: str, *, namespace: str = "default") -> None:
    """Say in the object's managedFields that each of its fields was written two minutes ago."""
    doc = await client.get(resource, name, namespace=namespace, type=dict[str, Any])
    written = (SystemClock().wall() - timedelta(minutes=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    entries = [entry | {"time": written} for entry in doc["metadata"]["managedFields"]]
    patch = MergePatch({"metadata": {"managedFields": entries}})
    await client.patch(resource, name, patch, namespace=namespace, type=bytes)


async def wait_until(holds: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Return when the coroutine function *holds* gives true; fail with its last answer."""
    answer: object = None
    try:
        async with asyncio.timeout(within_s):
            while True:
                answer = holds()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.03)
    except TimeoutError:
        pytest.fail(f"did not come true within {within_s} s; last answer: {answer!r}")


async def eventually(
    observe: Callable[[], Awaitable[T]], expected: T | Callable[[T], object], *, within_s: float = 10.0
) -> None:
    """Return when what *observe* sees equals *expected*, or *expected* holds for it."""

    async def holds() -> bool:
        seen = await observe()
        return bool(expected(seen)) if callable(expected) else seen == expected

    await wait_until(holds, within_s=within_s)


@asynccontextmanager
async def running(work: Coroutine[object, object, object]) -> AsyncIterator[None]:
    """*work* runs until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def places(members: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """The first life of the member at whose place each Website of `default` is, by the Website's name."""
    ring = HashRing(members)
    return {name: f"{ring.owner(object_key('example.com', 'default', name))}-00000001" for name in names}


def belonging_to(member: str, members: Sequence[str], count: int) -> list[str]:
    """The first *count* names of Websites whose place among *members* is *member*'s."""
    owners = places(members, [f"site-{number}" for number in range(1000)])
    return [name for name, owner in owners.items() if owner == f"{member}-00000001"][:count]


async def worked(env: SharderEnvironment) -> list[str]:
    """The resources that the ring's status remembers, mains and controlled ones."""
    entries = (await env.status()).get("worked", [])
    assert isinstance(entries, list)
    return sorted(
        kind["resource"] for entry in entries for kind in [entry, *entry.get("controlledResources", [])]
    )


async def is_balanced(env: SharderEnvironment) -> bool:
    """Whether the sharder says that every object is at its place."""
    return (await env.condition("Balanced")).get("status") == "True"


@asynccontextmanager
async def open_environment(
    plane: ControlPlane, *, cleared: bool = False
) -> AsyncIterator[SharderEnvironment]:
    """*plane* with the definitions installed, and (*cleared*) without what an earlier test has left."""
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        env = SharderEnvironment(plane, client)
        if cleared:
            await env.clear()
            env = SharderEnvironment(plane, client)
        await env.install()
        yield env
        await env.close()
