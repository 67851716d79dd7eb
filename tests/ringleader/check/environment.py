"""A live embedded control plane in health: a ring, its objects, Leases that a test renews; and what breaks it.

Nobody works here: what sharder and replicas would write, the environment writes. So every trouble
stands still while the check looks. Fleets of real processes are looked at in tests/oncall.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from devcluster.embedded import EmbeddedPlane
from devcluster.plane import ControlPlane
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock, micro_time
from kubeio.leases.lease import Leases
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.patch import ApplyPatch, MergePatch
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.assets import ring_crd, website_crd
from ringleader.check.command import Report, Wanted, examine
from ringleader.check.findings import Finding, Level
from tests.bad_input.conftest import create_when_served
from tests.manifests import manifest

RING = "websites"
KEYS = RingKeys(RING)
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
ONE, TWO = "one-00000001", "two-00000002"
SITES = 12
ACCOUNTS = {
    "sharder": ["system:serviceaccount:system:sharder"],
    "shard": ["system:serviceaccount:sites:websites"],
}
Doc = dict[str, Any]


class CheckEnvironment:
    """One control plane and what a test does to it."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self.plane = plane
        self.client = client
        self._renewing: dict[str, asyncio.Task[None]] = {}

    # -- health ---------------------------------------------------------------------------------------------

    async def furnish(self) -> None:
        """Definitions, namespaces, the ring with its status, a leader, two replicas, and their objects."""
        for path in (ring_crd(), website_crd()):
            await self.client.create(CRDS, manifest(path), type=bytes)
        for name in ("rings", "sites"):
            await self.client.create(NAMESPACES, {"metadata": {"name": name}}, type=bytes)
        await self.make_ring(RING)
        await self.lead()
        for shard in (ONE, TWO):
            await self.join(shard)
        for index in range(SITES):
            await self.make_site(index, owner=(ONE, TWO)[index % 2])

    async def make_ring(self, name: str, **spec: Any) -> None:
        resources = [
            {
                "group": "example.com",
                "resource": "websites",
                "controlledResources": [{"group": "", "resource": "configmaps"}],
            }
        ]
        body = {
            "metadata": {"name": name},
            "spec": {"leaseNamespace": "rings", "resources": resources, **spec},
        }
        await create_when_served(self.client, CONTROLLER_RINGS, body)
        await self.tell_status(name, Ready=("True", "Working", ""), DrainStuck=("False", "None", ""))

    async def tell_status(self, name: str = RING, **conditions: tuple[str, str, str]) -> None:
        """The status that the sharder would write."""
        ring = await self.client.get(CONTROLLER_RINGS, name, type=dict)
        told = [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, (status, reason, message) in conditions.items()
        ]
        status = {"conditions": told, "observedGeneration": ring["metadata"]["generation"]}
        patch = MergePatch({"status": status})
        await self.client.patch(CONTROLLER_RINGS, name, patch, subresource="status", type=bytes)

    async def lead(self) -> None:
        """Have a sharder's election Lease renewed."""
        now = micro_time(SystemClock().wall())
        lease = Lease(Meta(name="ringleader-sharder"), LeaseSpec("sharder-a", 2, now, now, 0))
        await self._hold(lease, "sites")

    async def join(
        self,
        name: str,
        *,
        ring: str = RING,
        member: str = "",
        namespace: str = "rings",
        skew_s: float = 0.0,
        renewed: bool = True,
        writes_as: str = "",
        works: str = "",
    ) -> None:
        """A replica's Lease, renewed until the end; *skew_s*: by how much its clock is ahead."""
        keys = RingKeys(ring)
        now = micro_time(SystemClock().wall() + timedelta(seconds=skew_s))
        annotations = {
            keys.member: member or name.rpartition("-")[0],
            keys.protocol: "v1",
            keys.synced: "true",
        }
        if writes_as:
            annotations[keys.field_manager] = writes_as
        if works:
            annotations[keys.resources] = works
        lease = Lease(
            Meta(name=name, labels={keys.ring_label: ring}, annotations=annotations),
            LeaseSpec(name, 2, now, now, 0),
        )
        await self._hold(lease, namespace, skew_s=skew_s, renewed=renewed)

    async def _hold(self, lease: Lease, namespace: str, *, skew_s: float = 0.0, renewed: bool = True) -> None:
        leases = Leases(self.client, namespace)
        made = await leases.create(lease)
        if renewed:
            task = asyncio.create_task(_renew(leases, made, skew_s), name=f"renew {made.metadata.name}")
            self._renewing[made.metadata.name] = task

    async def fall_silent(self, name: str) -> None:
        """Renew no more."""
        task = self._renewing.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def age(self, name: str, *, seconds: float, namespace: str = "rings") -> None:
        """Stop renewing, and have it look as if that had happened *seconds* ago."""
        await self.fall_silent(name)
        at = micro_time(SystemClock().wall() - timedelta(seconds=seconds))
        await self.edit_lease(name, namespace=namespace, renew_time=at)

    async def watch(self, name: str, works: str) -> None:
        """Have the replica say that it watches the kinds *works*: its next life, as it were."""
        await self.fall_silent(name)
        leases = Leases(self.client, "rings")
        lease = await leases.get(name)
        lease.metadata.annotations[KEYS.resources] = works
        made = await leases.swap(lease)
        self._renewing[name] = asyncio.create_task(_renew(leases, made, 0.0), name=f"renew {name}")

    async def edit_lease(self, name: str, *, namespace: str = "rings", **fields: Any) -> None:
        leases = Leases(self.client, namespace)
        lease = await leases.get(name)
        await leases.swap(msgspec.structs.replace(lease, spec=msgspec.structs.replace(lease.spec, **fields)))

    async def make_site(
        self, index: int, *, owner: str, ring: str = RING, namespace: str = "sites", **labels: str
    ) -> str:
        """A Website that was reconciled, and its page; gives its name."""
        name = f"site-{index:03d}"
        mine = {RingKeys(ring).shard: owner} if owner else {}
        site = {"metadata": {"name": name, "labels": {**mine, **labels}}, "spec": {"html": name}}
        made = await create_when_served(self.client, WEBSITES, site, namespace=namespace)
        await self.observe(name, made["metadata"]["generation"], namespace=namespace)
        controller = {
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        page = {
            "metadata": {"name": name, "labels": mine, "ownerReferences": [controller]},
            "data": {"index.html": name},
        }
        await create_when_served(self.client, CONFIGMAPS, page, namespace=namespace)
        return name

    async def observe(self, name: str, generation: int, *, namespace: str = "sites") -> None:
        patch = MergePatch({"status": {"observedGeneration": generation}})
        await self.client.patch(WEBSITES, name, patch, namespace=namespace, subresource="status", type=bytes)

    # -- breaking -------------------------------------------------------------------------------------------

    async def label(
        self, name: str, labels: Mapping[str, str | None], *, resource: ApiResource = WEBSITES
    ) -> None:
        """Edit labels as a person does; None removes one."""
        patch = MergePatch({"metadata": {"labels": dict(labels)}})
        await self.client.patch(resource, name, patch, namespace="sites", type=bytes)

    async def edit_ring(self, name: str = RING, **spec: Any) -> None:
        await self.client.patch(CONTROLLER_RINGS, name, MergePatch({"spec": spec}), type=bytes)

    async def apply_status(self, name: str, *, manager: str, **status: Any) -> None:
        """Write an object's status by server-side apply, as another controller does."""
        body = {"apiVersion": "example.com/v1", "kind": "Website", "status": status}
        await self.client.patch(
            WEBSITES,
            name,
            ApplyPatch(body, force=True),
            namespace="sites",
            subresource="status",
            field_manager=manager,
            type=bytes,
        )

    # -- looking --------------------------------------------------------------------------------------------

    async def diagnose(
        self,
        *,
        ring: str | None = None,
        managers: Iterable[str] = (),
        accounts: Mapping[str, list[str]] | None = None,
        client: Client | None = None,
    ) -> Report:
        wanted = Wanted(
            ring=ring,
            accounts=ACCOUNTS if accounts is None else accounts,
            managers=frozenset(managers),
            again_s=1.2,
            timeout_s=20,
        )
        return await examine(client or self.client, wanted)

    async def close(self) -> None:
        for task in self._renewing.values():
            task.cancel()
        await asyncio.gather(*self._renewing.values(), return_exceptions=True)


async def _renew(leases: Leases, lease: Lease, skew_s: float) -> None:
    while True:
        await asyncio.sleep(0.4)
        lease.spec.renew_time = micro_time(SystemClock().wall() + timedelta(seconds=skew_s))
        lease = await leases.swap(lease)


@asynccontextmanager
async def open_environment(plane: EmbeddedPlane) -> AsyncIterator[CheckEnvironment]:
    """A healthy environment on *plane*."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(load_cluster(kubeconfig=str(plane.kubeconfig))))
        env = CheckEnvironment(plane, client)
        stack.push_async_callback(env.close)
        await env.furnish()
        yield env


def is_well(report: Report) -> bool:
    """Whether nothing is wrong. Of rights nothing can be said of a server that does not enforce them."""
    return all(each.level is Level.OK or each.check == "rights" for each in report.findings)


def found(report: Report, check: str) -> list[Finding]:
    """What *check* has found wrong."""
    bad = (Level.ERROR, Level.WARNING)
    return [each for each in report.findings if each.check == check and each.level in bad]


def only(report: Report, check: str) -> Finding:
    """The one thing that is wrong, as *check* has it; it is told first."""
    bad = [each for each in report.findings if each.level in (Level.ERROR, Level.WARNING)]
    assert {each.check for each in bad} == {check}, bad
    assert report.findings[0] is bad[0]
    return bad[0]
