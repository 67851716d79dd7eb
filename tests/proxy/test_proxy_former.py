"""Which objects a controller before the ring may have worked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.protocol import activated_holder
from kubeio.resource import LEASES
from kubeio.rest.client import Client
from kubeio.shard.ring import RingView
from proxy.former import NEVER, FormerController

CREATED = "2026-11-24T10:00:00Z"


class WallClock(SystemClock):
    """A wall clock that a test sets."""

    hour = 8

    def wall(self) -> datetime:
        return datetime(2026, 11, 25, self.hour, tzinfo=UTC)


def ring(lease: str = "", namespace: str = "default") -> RingView:
    activation: dict[str, Any] = (
        {"activation": {"lease": {"namespace": namespace, "name": lease}}} if lease else {}
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
        return await FormerController(client, view, clock=WallClock()).worked_until()


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


@pytest.mark.parametrize("code", [0, 403])
async def test_what_comes_after_the_namespace_was_gone_is_no_former_controller_s(
    new_plane: EmbeddedPlane, code: int
) -> None:
    """With its namespace an account loses its rights there, too."""
    if code:
        await new_plane.faults.add(Fault(what="error", resource="leases.coordination.k8s.io", code=code))
    assert await until(new_plane, ring("former", namespace="gone")) == "2026-11-25T08:01:00Z"


async def test_a_restart_makes_no_object_old_while_the_namespace_stays_gone(new_plane: EmbeddedPlane) -> None:
    """Else each new object of the minute after a start would take a restart, which begins another minute."""
    clock = WallClock()
    async with Client(load_cluster(kubeconfig=str(new_plane.kubeconfig))) as client:
        former = FormerController(client, ring("former", namespace="gone"), clock=clock)
        for clock.hour in (8, 9):
            assert await former.worked_until() == "2026-11-25T08:01:00Z"
        await new_plane.faults.add(Fault(what="error", resource="namespaces", code=403))
        assert await former.worked_until() == NEVER
        await new_plane.faults.clear()
        assert await former.worked_until() == "2026-11-25T09:01:00Z"


async def test_a_lease_that_was_deleted_may_have_a_holder(new_plane: EmbeddedPlane) -> None:
    assert await until(new_plane, ring("missing")) == NEVER


@pytest.mark.parametrize("resource", ["namespaces", "leases.coordination.k8s.io"])
async def test_without_an_answer_every_object_may_be_its(new_plane: EmbeddedPlane, resource: str) -> None:
    await new_plane.faults.add(Fault(what="error", resource=resource, code=403))
    namespace = "gone" if resource == "namespaces" else "default"
    assert await until(new_plane, ring("former", namespace=namespace)) == NEVER
