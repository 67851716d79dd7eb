"""A snapshot of a live plane: read once, by the server's clock, with a gap for each part that may not be read."""

from __future__ import annotations

import pytest

from devcluster.faults import Fault
from kubeio.clock import SystemClock, micro_time
from kubeio.errors import Forbidden, InputError, NotFound
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, LEASES, NAMESPACES
from ringleader.cluster.causes import ring_causes
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.snapshot import ELECTION_LEASE, Snapshot
from tests.sharder.io.environment import RING, SharderEnvironment, wait_until

A = "a-00000001"


async def read(env: SharderEnvironment, only: str | None = None, **flags: bool) -> Snapshot:
    return await ClusterReader(env.client, timeout_s=10).snapshot(only, **flags)


async def refuse(env: SharderEnvironment, *, verb: str, resource: str) -> None:
    await env.plane.faults.add(Fault(what="error", code=403, verb=verb, resource=resource))


async def leads(env: SharderEnvironment) -> None:
    now = micro_time(SystemClock().wall())
    await env.leases.create(Lease(Meta(name=ELECTION_LEASE), LeaseSpec("sharder-1", 15, now, now, 0)))


async def test_rings_leases_and_election_are_read_with_the_server_s_clock(env: SharderEnvironment) -> None:
    await env.ring()
    await leads(env)
    await env.shard("a", duration_s=15)
    found = await read(env, RING)
    assert (found.gaps, found.leadership.leader) == ({}, "sharder-1")
    assert [shard.name for shard in found.of(RING).shards] == [A]
    assert found.of(RING).working[0].age_s == pytest.approx(0, abs=3)
    assert abs(found.clock_ahead_s) < 3
    with pytest.raises(InputError, match="did you mean websites"):
        await read(env, "website")


async def test_leases_that_may_not_be_read_are_a_gap_with_the_rule(env: SharderEnvironment) -> None:
    await env.ring()
    await refuse(env, verb="list", resource=LEASES.group_resource)
    found = await read(env)
    assert set(found.gaps) == {"leases:websites", "election"}
    assert found.leadership.leads is None
    gap = found.gaps["leases:websites"]
    assert ("forbidden" in gap.summary, bool(gap.remedy)) == (True, True)
    with pytest.raises(Forbidden):
        found.require("rings", "leases")
    assert found.require("rings") is found


async def test_namespaces_are_read_only_for_a_ring_that_selects_some(env: SharderEnvironment) -> None:
    await env.ring()
    await refuse(env, verb="list", resource=NAMESPACES.group_resource)
    assert (await read(env)).gaps == {}
    await env.ring(namespaceSelector={"matchLabels": {"team": "web"}})
    assert set((await read(env)).gaps) == {"namespaces"}
    found = await read(env, reads_namespaces=False)
    assert (found.gaps, found.selects(found.of(RING).ring, "anywhere")) == ({}, True)


async def test_a_former_controller_that_holds_its_lease_is_the_cause(env: SharderEnvironment) -> None:
    await leads(env)
    await env.ring(activation={"lease": {"namespace": "default", "name": "old"}})
    now = micro_time(SystemClock().wall())
    await env.leases.create(Lease(Meta(name="old"), LeaseSpec("old-pod", 15, now, now, 0)))
    found = await read(env)
    (cause,) = ring_causes(found, found.of(RING))
    assert (cause.reason, found.of(RING).former_holder) == ("FormerController", "old-pod")
    lease = await env.leases.get("old")
    lease.spec.holder_identity = ""
    await env.leases.swap(lease)
    assert (await read(env)).of(RING).former_holder == ""


async def test_a_missing_definition_is_a_gap_and_an_error_for_who_needs_rings(
    env: SharderEnvironment,
) -> None:
    await env.client.delete(CRDS, f"{CONTROLLER_RINGS.plural}.{CONTROLLER_RINGS.group}")

    async def is_gone() -> bool:
        return "rings" in (await read(env)).gaps

    await wait_until(is_gone)
    found = await read(env)
    assert found.rings == []
    with pytest.raises(NotFound):
        found.require("rings")
