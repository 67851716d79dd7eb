"""A replica whose reconciles do not end holds all handoffs there may be: the others get past it, and it is named.

Traps of the protocol, section 9: 17 (one shard hangs with maxInFlight drains), 14 (drain forced while the shard
works on other objects).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from devcluster.plane import Write
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import EVENTS
from ring import HashRing, object_key
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet
from ringleader.testing.inflight_writes import in_progress
from ringleader.testing.ownership_checks import LEASES
from tests.fleet.hanging_controller import HANGING, hanging
from tests.fleet.judging import judge

pytestmark = [pytest.mark.fleet, pytest.mark.real_apart, pytest.mark.asyncio(loop_scope="module")]
VICTIM, SPARING, WELL = "replica-2", "replica-1", "replica-3"
LIMIT = 8
TIMEOUT_S = 4
FORCED_TIMEOUT_S = 2


@pytest.fixture(scope="module")
def fleet_spec(tmp_path_factory: pytest.TempPathFactory) -> FleetSpec:
    hang_file = tmp_path_factory.mktemp("told") / "hang.json"
    limits = {"maxInFlight": LIMIT, "maxInFlightPerOwner": LIMIT, "drainTimeoutSeconds": TIMEOUT_S}
    return FleetSpec(
        controller=f"{HANGING}:websites",
        lease_s=2,
        settle_s=1,
        environment={"HANG_FILE": str(hang_file)},
        ring_spec=limits,
    )


async def change_ring(fleet: Fleet, **spec: Any) -> float:
    """Edit the ring as a person does; gives the time just before."""
    at = fleet.clock.now()
    await fleet.client.merge(CONTROLLER_RINGS, fleet.spec.ring, {"spec": spec})
    return at


async def is_hung(fleet: Fleet, member: str) -> bool:
    """Whether every worker of *member* is stuck: the same reconciles are under way half a second later."""
    before = in_progress(fleet, member)
    await asyncio.sleep(0.5)
    return len(before) == fleet.spec.workers and before == in_progress(fleet, member)


def places(fleet: Fleet, weights: Mapping[str, float]) -> dict[str, str]:
    """The member that the ring of *weights* gives each object."""
    ring = HashRing(weights)
    group, namespace = fleet.spec.resource.group, fleet.spec.namespace
    return {ref.name: ring.owner(object_key(group, namespace, ref.name)) for ref in fleet.objects.refs}


async def condition(fleet: Fleet, kind: str) -> dict[str, str]:
    conditions = (await fleet.ring()).get("status", {}).get("conditions", [])
    return next((found for found in conditions if found["type"] == kind), {})


async def overdue(fleet: Fleet, shard: str) -> float:
    """What the leading sharder's metric says of *shard*."""
    port = (fleet.directory / f"{await fleet.leader()}.port").read_text().strip()
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    sample = f'ringleader_handoffs_overdue{{ring="{fleet.spec.ring}",shard="{shard}"}} '
    return next((float(line.removeprefix(sample)) for line in lines if line.startswith(sample)), 0.0)


async def notes(fleet: Fleet) -> list[str]:
    """What was said about late handoffs."""
    events = await fleet.client.list_all(EVENTS, namespace="default")
    return [event["note"] for event in events if event["reason"] == "DrainTimeout"]


def drains(fleet: Fleet, shard: str, *, since: float) -> list[Write]:
    """The requests that were sent to *shard* for objects of the ring's resource."""
    key, resource = fleet.spec.keys, fleet.spec.resource.group_resource
    return [
        write
        for write in fleet.plane.writes()
        if write.t >= since
        and write.resource == resource
        and (write.labels_before or {}).get(key.shard) == shard
        and key.drain not in (write.labels_before or {})
        and key.drain in (write.labels_after or {})
    ]


def takes(fleet: Fleet, shard: str) -> list[tuple[float, bool]]:
    """When the Lease of *shard* was written by somebody else as its holder, and whether it was contested then."""
    found = []
    for write in fleet.plane.writes():
        if write.resource == LEASES and write.name == shard and write.object is not None:
            holder = write.object["spec"].get("holderIdentity")
            if holder != shard:
                found.append((write.t, fleet.spec.keys.contested in write.object["annotations"]))
    return found


async def test_a_shard_that_hangs_with_every_handoff_stops_the_others_only_until_the_timeout(
    fleet: Fleet,
) -> None:
    """Trap 17, policy Wait. The victim is to give up all it has, and answers nothing."""
    await judge(fleet)
    lives = {member: shard for shard, member in fleet.lives().items()}
    stuck, sparing = lives[VICTIM], lives[SPARING]
    exits = len(fleet.members[VICTIM].exits)

    async def has_every_handoff() -> bool:
        return len(drains(fleet, stuck, since=asked_at)) == LIMIT

    async def others_are_placed() -> bool:
        wanted = places(fleet, {SPARING: 0.2, WELL: 1.0})
        owners = await fleet.owners()
        return all(owners[name] in (lives[member], stuck) for name, member in wanted.items())

    async def is_named() -> bool:
        return stuck in (await condition(fleet, "DrainStuck")).get("message", "")

    with hanging(fleet, stuck):
        await fleet.wait_for(lambda: is_hung(fleet, VICTIM), f"all workers of {VICTIM} to hang")
        asked_at = await change_ring(fleet, members={VICTIM: {"cordoned": True}})
        await fleet.wait_for(has_every_handoff, f"{VICTIM} to be asked for {LIMIT} objects")
        changed_at = await change_ring(fleet, members={SPARING: {"weight": 0.2}})
        await fleet.wait_for(others_are_placed, "the others to hand over", within_s=TIMEOUT_S + 8)
        first = drains(fleet, sparing, since=changed_at)[0]
        assert first.t >= changed_at + TIMEOUT_S - 0.5, "the limit did not bind: this proves nothing"
        await fleet.wait_for(is_named, "DrainStuck to name the shard")
        assert (await condition(fleet, "DrainStuck"))["status"] == "True"
        assert await overdue(fleet, stuck) >= LIMIT
        assert any(stuck in note for note in await notes(fleet))
        assert not any(sparing in note for note in await notes(fleet))
        await asyncio.sleep(TIMEOUT_S)
        assert sum(owner == stuck for owner in (await fleet.owners()).values()) >= LIMIT, "nothing is forced"
        assert takes(fleet, stuck) == []
        assert (fleet.life(VICTIM), len(fleet.members[VICTIM].exits)) == (stuck, exits)

    async def all_given_up() -> bool:
        return stuck not in (await fleet.owners()).values()

    await fleet.wait_for(all_given_up, f"{VICTIM} to hand over once it can")

    async def is_over() -> bool:
        return (await condition(fleet, "DrainStuck"))["status"] == "False" and not await overdue(fleet, stuck)

    await fleet.wait_for(is_over, "DrainStuck to end")
    await change_ring(fleet, members=None)
    await judge(fleet)


async def test_under_policy_force_the_lease_is_taken_contested_and_the_objects_move_without_overlap(
    fleet: Fleet,
) -> None:
    """Traps 14 and 17: a thread hangs at two objects, and the shard works on all its others."""
    fleet.spec = replace(fleet.spec, controller=f"{HANGING}:threaded")
    await fleet.restart(VICTIM)
    await judge(fleet)
    lives = {member: shard for shard, member in fleet.lives().items()}
    stuck, weights = lives[VICTIM], {SPARING: 1.0, VICTIM: 0.3, WELL: 1.0}
    owners, wanted = await fleet.owners(), places(fleet, weights)
    leaving = [name for name, owner in owners.items() if owner == stuck and wanted[name] != VICTIM][:2]
    exits, contested_s = fleet.members[VICTIM].exits, fleet.spec.manifest()["spec"]["maxLeaseDurationSeconds"]
    exits_before, since = len(exits), fleet.clock.now()

    async def are_hung() -> bool:
        return {key.rpartition("/")[2] for key in in_progress(fleet, VICTIM)} >= set(leaving)

    with hanging(fleet, stuck, names=leaving):
        await fleet.objects.update_all([ref for ref in fleet.objects.refs if ref.name in leaving])
        await fleet.wait_for(are_hung, f"two reconciles of {VICTIM} to hang")
        await change_ring(
            fleet,
            drainPolicy="Force",
            drainTimeoutSeconds=FORCED_TIMEOUT_S,
            members={VICTIM: {"weight": weights[VICTIM]}},
        )
        await fleet.wait_for(lambda: len(exits) > exits_before, f"{VICTIM} to find its Lease lost")

        async def has_no_objects() -> bool:
            return stuck not in (await fleet.owners()).values()

        await fleet.wait_for(has_no_objects, "the objects to be taken over", within_s=20)
    assert exits[exits_before].code == 3
    taken = takes(fleet, stuck)
    taken_at = taken[0][0]
    cleared_at = next(at for at, is_contested in taken if not is_contested)
    assert taken[0][1], "the first write of another holder contests"
    assert cleared_at >= taken_at + contested_s - 0.2
    begun = [r for r in fleet.member_records(VICTIM) if r.shard == stuck and r.t >= since]
    assert len(begun) > len(leaving), "it worked on other objects as well"
    assert moved_from(fleet, stuck, since=taken_at), "objects were taken over from it"
    assert all(write.t >= cleared_at for write in moved_from(fleet, stuck, since=taken_at + 0.5))
    assert any(stuck in note for note in await notes(fleet))
    await change_ring(fleet, drainPolicy="Wait", drainTimeoutSeconds=TIMEOUT_S, members=None)
    await judge(fleet)
    assert fleet.life(VICTIM) not in (None, stuck)


def moved_from(fleet: Fleet, shard: str, *, since: float) -> list[Write]:
    """The writes that gave an object of *shard* another owner."""
    key, resource = fleet.spec.keys.shard, fleet.spec.resource.group_resource
    return [
        write
        for write in fleet.plane.writes()
        if write.t >= since
        and write.resource == resource
        and (write.labels_before or {}).get(key) == shard
        and (write.labels_after or {}).get(key, shard) != shard
    ]
