"""Which objects a controller before the ring may have worked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from devcluster.embedded import EmbeddedPlane
from kubeio.access.cluster import load_cluster
from kubeio.protocol import activated_holder
from kubeio.resource import LEASES
from kubeio.rest.client import Client
from kubeio.shard.ring import RingView
from proxy.former import NEVER, worked_until

CREATED = "2026-11-24T10:00:00Z"


def ring(lease: str = "") -> RingView:
    activation: dict[str, Any] = (
        {"activation": {"lease": {"namespace": "default", "name": lease}}} if lease else {}
    )
    doc = {
        "metadata": {"name": "web", "creationTimestamp": CREATED},
        "spec": {"leaseNamespace": "rings", **activation},
    }
    return msgspec.convert(doc, type=RingView)


async def until(plane: EmbeddedPlane, view: RingView, **spec: str) -> str:
    """*spec*: of the Lease `former`, which is written first."""
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        if spec:
            lease = {"metadata": {"name": "former"}, "spec": spec}
            await client.create(LEASES, lease, namespace="default", type=bytes)
        return await worked_until(client, view)


async def test_without_activation_the_former_controller_ended_before_the_ring_was_created(
    new_plane: EmbeddedPlane,
) -> None:
    assert await until(new_plane, ring()) == CREATED


async def test_with_activation_it_worked_until_the_ring_got_its_lease_whatever_clocks_say(
    new_plane: EmbeddedPlane,
) -> None:
    taken = {"holderIdentity": activated_holder("web"), "acquireTime": "2026-11-24T11:59:30.250000Z"}
    assert await until(new_plane, ring("former"), **taken) == "2026-11-24T12:00:30Z"


@pytest.mark.parametrize("holder", ["former-0", activated_holder("shop"), ""])
async def test_before_activation_every_object_may_be_its(new_plane: EmbeddedPlane, holder: str) -> None:
    spec = {"holderIdentity": holder, "acquireTime": "2026-11-24T11:59:30.250000Z"}
    assert await until(new_plane, ring("former"), **spec) == NEVER


async def test_without_an_answer_every_object_may_be_its(new_plane: EmbeddedPlane) -> None:
    assert await until(new_plane, ring("missing")) == NEVER
