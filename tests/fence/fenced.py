"""A real API server with the policies that `ringleader fence` prints, and clients that name a life.

Nothing else runs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from devcluster.real.real_plane import RealPlane
from kubeio.fence import BINDINGS, POLICIES
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from ringleader.assets import ring_crd, website_crd
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError

RING = "websites"
KEYS = RingKeys(RING)
SITES = "sites"
A, B = "web-0-aaaaaaaa", "web-1-bbbbbbbb"
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
PODS = ApiResource("", "v1", "pods", "Pod")
WITHIN_S = 60.0
MANIFEST: Doc = {
    "apiVersion": "ringleader.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": RING},
    "spec": {
        "leaseNamespace": SITES,
        "resources": [
            {
                "group": "example.com",
                "resource": "websites",
                "controlledResources": [{"resource": "configmaps"}],
            },
            {"group": "apps", "resource": "deployments", "controlledResources": [{"resource": "pods"}]},
        ],
    },
}


@dataclass
class Fenced:
    """The plane, its administrator, who names nothing, and clients of lives and shards, all of that account."""

    plane: RealPlane
    admin: IndependentClient
    stack: AsyncExitStack

    async def by(self, who: str) -> IndependentClient:
        """A client whose requests name *who*: `life NAME`, `shard NAME`, `life NAME of RING`, or nothing (`admin`)."""
        return await self.stack.enter_async_context(
            IndependentClient(self.plane.kubeconfig, headers=named(who))
        )

    async def site(self, name: str, *, label: str = A, drain: str | None = None) -> Doc:
        """A new Website, written by the administrator."""
        return await self.admin.create(WEBSITES, website(name, label=label, drain=drain), namespace=SITES)


def named(who: str) -> dict[str, str]:
    """Headers of a request that names *who*."""
    if who == "admin":
        return {}
    kind, name, *rest = who.split()
    keys = RingKeys(rest[-1]) if rest else KEYS
    extra = keys.life_extra if kind == "life" else keys.shard_extra
    header = f"Impersonate-Extra-{extra.replace('/', '%2F')}"
    return {"Impersonate-User": "admin", "Impersonate-Group": "system:masters", header: name}


def website(name: str, *, label: str = A, drain: str | None = None, **spec: object) -> Doc:
    labels = {key: value for key, value in ((KEYS.shard, label), (KEYS.drain, drain)) if value}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": name, "labels": labels},
        "spec": {"html": "x", **spec},
    }


@asynccontextmanager
async def fenced_plane(plane: RealPlane) -> AsyncIterator[Fenced]:
    """The policies of the ring in force on *plane*."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(IndependentClient(plane.kubeconfig))
        await prepare(admin)
        await apply(admin, await printed(plane.kubeconfig, RING))
        fenced = Fenced(plane, admin, stack)
        await in_force(fenced)
        yield fenced


async def prepare(admin: IndependentClient) -> None:
    """Definitions, namespace and ring."""
    for path in (ring_crd(), website_crd()):
        await admin.create_if_absent(CRDS, yaml.safe_load(path.read_text()))
    await admin.create_if_absent(NAMESPACES, {"metadata": {"name": SITES}})
    for resource in (CONTROLLER_RINGS, WEBSITES):
        await once_served(admin, resource)
    await admin.create(CONTROLLER_RINGS, MANIFEST)


async def once_served(admin: IndependentClient, resource: ApiResource) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await admin.list_all(resource)
            except RequestFailedError:
                await asyncio.sleep(0.1)
            else:
                return


async def printed(kubeconfig: Path, *arguments: str) -> str:
    """What `ringleader fence` prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ringleader", "fence", *arguments, "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def apply(admin: IndependentClient, documents: str) -> None:
    for doc in yaml.safe_load_all(documents):
        resource = POLICIES if doc["kind"] == POLICIES.kind else BINDINGS
        await admin.create(resource, doc)


async def in_force(fenced: Fenced) -> None:
    """Wait until both policies refuse: they act a moment after they were written."""
    stranger = await fenced.by(f"life {B}")
    for name, label in (("probe", A), ("bare", "")):
        await fenced.site(name, label=label)
        async with asyncio.timeout(WITHIN_S):
            while True:
                if await refused_by_policy(stranger.merge(WEBSITES, name, {}, namespace=SITES)):
                    break
                await asyncio.sleep(0.1)
        await fenced.admin.delete(WEBSITES, name, namespace=SITES)


async def refused_by_policy(request: object) -> bool:
    """Whether a policy of the fence refuses *request*. Raises what other refusals say."""
    try:
        await request  # type: ignore[misc] # an awaitable
    except RequestFailedError as error:
        if error.status != 422 or "ValidatingAdmissionPolicy 'ringleader-" not in error.message:
            raise
        return True
    return False
