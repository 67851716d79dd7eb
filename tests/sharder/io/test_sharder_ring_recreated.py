"""A ring that is deleted and created again under its name is another ring (protocol, trap 36)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devcluster.faults import Fault
from devcluster.plane import ControlPlane
from kubeio.access.cluster import load_cluster
from kubeio.errors import Invalid
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from sharder.rings.store import FINALIZER, ClusterRingStore, Ring
from tests.sharder.io.environment import RING, SharderEnvironment, eventually, open_environment

RINGS = "controllerrings.ringleader.dev"
SHARDER = "sharder-1"

pytestmark = [pytest.mark.real_apart, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def env(faulty_plane: ControlPlane) -> AsyncIterator[SharderEnvironment]:
    async with open_environment(faulty_plane, cleared=True) as env:
        yield env


async def stored(env: SharderEnvironment) -> Ring:
    return await env.client.get(CONTROLLER_RINGS, RING, type=Ring)


async def set_finalizers(env: SharderEnvironment, finalizers: list[str] | None) -> None:
    patch = MergePatch({"metadata": {"finalizers": finalizers}})
    await env.client.patch(CONTROLLER_RINGS, RING, patch, type=bytes)


async def recreate(env: SharderEnvironment, **spec: object) -> None:
    """Delete the ring, and create another one under its name."""
    await env.client.request("DELETE", CONTROLLER_RINGS.path(name=RING))
    await set_finalizers(env, None)
    await env.ring(**spec)


async def test_the_finalizer_of_another_ring_of_that_name_stays(env: SharderEnvironment) -> None:
    """The last write of a former leader arrives when another ring has the name, and its objects have owners."""
    await env.ring()
    await set_finalizers(env, [FINALIZER])
    user = await env.plane.kubeconfig_for(SHARDER)
    async with Client(load_cluster(kubeconfig=str(user))) as client:
        store = ClusterRingStore(client, RING, uid=(await stored(env)).metadata.uid)
        await env.plane.faults.add(Fault(what="hold", user=SHARDER, verb="patch", resource=RINGS))
        leaving = asyncio.create_task(store.leave())
        await eventually(env.plane.faults.active, lambda faults: faults[0].hits > 0)
        await recreate(env)
        await set_finalizers(env, [FINALIZER])
        await env.plane.faults.clear()
        with pytest.raises(Invalid):
            await leaving
        await store.leave()
    assert (await stored(env)).metadata.finalizers == [FINALIZER]


async def test_another_ring_of_that_name_may_have_its_leases_elsewhere(env: SharderEnvironment) -> None:
    """A sharder that saw neither the deletion nor the creation works the new ring as one that it never saw."""
    await env.ring()
    async with env.sharder():
        await env.until_condition("Balanced", reason="NoMembers")
        cut = await env.plane.faults.add(Fault(what="cut", user=SHARDER, resource=RINGS))
        await recreate(env, leaseNamespace="kube-system")
        await env.plane.faults.add(Fault(what="expire_watches", user=SHARDER, resource=RINGS, count=1))
        await env.plane.faults.clear(cut)
        uid = (await stored(env)).metadata.uid
        await eventually(lambda: stored(env), lambda ring: FINALIZER in ring.metadata.finalizers)
        await env.until_condition("Balanced", reason="NoMembers")
        assert (await stored(env)).metadata.uid == uid
