"""Leases and leadership against real servers: the fake that the other tests use behaves like them."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeio.clock import SystemClock
from kubeio.errors import AlreadyExists, Conflict, Forbidden, InputError, NotFound
from kubeio.leases.election import leadership
from kubeio.leases.lease import Leases
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.rest.client import Client

pytestmark = pytest.mark.asyncio(loop_scope="session")


def new_lease(name: str, **labels: str) -> Lease:
    spec = LeaseSpec(
        holder_identity=name, lease_duration_seconds=15, renew_time="2026-01-01T00:00:00.000000Z"
    )
    return Lease(Meta(name=name, labels=labels, annotations={"a/b": "c"}), spec)


async def test_swap_succeeds_once_per_version(admin: Client, namespace: str) -> None:
    leases = Leases(admin, namespace)
    created = await leases.create(new_lease("one"))
    assert created.metadata.uid
    with pytest.raises(AlreadyExists):
        await leases.create(new_lease("one"))
    created.spec.holder_identity = None
    swapped = await leases.swap(created)
    assert not swapped.spec.holder_identity
    assert swapped.metadata.annotations == {"a/b": "c"}
    with pytest.raises(Conflict):
        await leases.swap(created)
    assert (await leases.get("one")).metadata.resource_version == swapped.metadata.resource_version


async def test_swap_without_a_version_is_refused_before_it_overwrites(admin: Client, namespace: str) -> None:
    with pytest.raises(InputError, match="resourceVersion"):
        await Leases(admin, namespace).swap(new_lease("one"))


async def test_delete_takes_only_the_version_that_was_read(admin: Client, namespace: str) -> None:
    leases = Leases(admin, namespace)
    created = await leases.create(new_lease("one"))
    created.metadata.labels = {"x": "y"}
    newer = await leases.swap(created)
    with pytest.raises(Conflict):
        await leases.delete(created)
    await leases.delete(newer)
    with pytest.raises(NotFound):
        await leases.delete(newer)
    with pytest.raises(Conflict):  # not NotFound: a PUT may create a Lease, so only the version speaks
        await leases.swap(newer)
    with pytest.raises(NotFound):
        await leases.get("one")


async def test_list_gives_what_matches_and_the_version_of_the_list(admin: Client, namespace: str) -> None:
    leases = Leases(admin, namespace)
    for number in range(3):
        await leases.create(new_lease(f"lease-{number}", ring="a" if number else "b"))
    last = await leases.create(new_lease("last", ring="a"))
    found, version = await leases.list("ring=a")
    assert {lease.metadata.name for lease in found} == {"lease-1", "lease-2", "last"}
    assert int(version) >= int(last.metadata.resource_version)
    assert found[0].kind == "Lease"


async def test_standby_takes_over_at_once_from_a_leader_that_ends_and_writes_what_dashboards_read(
    admin: Client, namespace: str
) -> None:
    leases = Leases(admin, namespace)
    order: list[str] = []

    async def lead(identity: str, hold_s: float) -> None:
        async with leadership(
            leases,
            name="leader",
            identity=identity,
            lease_duration_s=3,
            clock=SystemClock(),
            rng=random.Random(identity),
        ):
            order.append(f"{identity} began")
            await asyncio.sleep(hold_s)
            order.append(f"{identity} ended")

    async with asyncio.TaskGroup() as group:
        group.create_task(lead("a", 1.0))
        await asyncio.sleep(0.5)
        group.create_task(lead("b", 0.1))
    assert order == ["a began", "a ended", "b began", "b ended"]
    lease = await leases.get("leader")
    assert not lease.spec.holder_identity
    assert lease.spec.lease_transitions == 1


async def test_election_in_a_namespace_that_does_not_exist_is_reported(admin: Client) -> None:
    scope = leadership(
        Leases(admin, "no-such-namespace"), name="x", identity="me", clock=SystemClock(), rng=random.Random(1)
    )
    with pytest.raises((NotFound, Forbidden)):
        await scope.__aenter__()
