"""A fleet under `--fence policy`: it works and hands over; with the tests in its patches off, the policies alone hold.

The second is what `ringleader demo --no-fence` fails at: a replica that tests nothing is frozen with writes on their
way, and these arrive when its objects are others'.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from devcluster.real import BinariesMissing, real_plane
from devcluster.real.real_plane import RealPlane
from kubeio.models import GroupResource
from kubeio.protocol import RingEntry
from ringleader.demo.command import UNFENCED_MODULE
from ringleader.fence.documents import Identity, fence_documents
from ringleader.testing.client import Doc
from ringleader.testing.commands import WAIT_MS, FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.inflight_writes import catch_writes
from tests.fence.fenced import apply

pytestmark = [pytest.mark.real, pytest.mark.alone, pytest.mark.fleet, pytest.mark.timeout(400)]

OBJECTS = 40
SPEC = FleetSpec(
    lease_s=3,
    settle_s=1,
    patience_s=90,
    environment={WAIT_MS: "0-200"},
    shard_flags=("--fence", "policy"),
)
POLICY = "ValidatingAdmissionPolicy 'ringleader-fence-websites'"


@asynccontextmanager
async def fenced_fleet(directory: Path, spec: FleetSpec) -> AsyncIterator[tuple[Fleet, RealPlane]]:
    """Three replicas that wait for the fence, which comes a moment later; their objects."""
    try:
        async with (
            real_plane(directory / "plane", audit=True, faults=True) as plane,
            open_fleet(plane, directory / "fleet", spec=spec) as fleet,
        ):
            starting = asyncio.create_task(fleet.start(replicas=3), name="start")
            await asyncio.sleep(3)
            assert not any(fleet.lives())
            await apply(fleet.client, documents(spec))
            await starting
            await fleet.objects.create_many(OBJECTS)
            await fleet.wait_converged()
            yield fleet, plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


def documents(spec: FleetSpec) -> str:
    controlled = [GroupResource(kind.group, kind.plural) for kind in spec.controlled]
    entry = RingEntry(spec.resource.plural, spec.resource.group, controlled)
    return fence_documents(spec.keys, [entry], identity=Identity.LIFE)


async def test_a_fleet_under_policies_works_and_hands_over(tmp_path: Path) -> None:
    async with fenced_fleet(tmp_path, SPEC) as (fleet, plane):
        async with asyncio.TaskGroup() as tasks:
            updates = fleet.objects.run_updates(per_s=20, rng=random.Random(7))
            traffic = tasks.create_task(updates, name="updates")
            await fleet.join("replica-4")
            await fleet.kill("replica-2")
            await fleet.wait_converged()
            await fleet.leave("replica-4")
            await fleet.wait_converged()
            traffic.cancel()
        await fleet.wait_converged()
        evidence = fleet.evidence()
        evidence.require_reconciles(100)
        assert [*evidence.overlaps, *evidence.foreign_writes] == []
        named = lives_and_owners(plane, fleet)
        assert len(named) > 100
        assert [each for each in named if each[0] != each[1]] == []


async def test_with_the_tests_in_patches_off_the_policies_alone_refuse_late_writes(tmp_path: Path) -> None:
    async with fenced_fleet(tmp_path, replace(SPEC, shard_module=UNFENCED_MODULE)) as (fleet, plane):
        refused: list[str] = []
        for attempt in range(4):
            victim = f"replica-{attempt % 3 + 1}"
            await deliver_late_writes(fleet, victim)
            fleet.wake(victim)
            await fleet.wait_converged()
            refused = [
                write.message for write in plane.writes() if write.code == 422 and POLICY in write.message
            ]
            if refused:
                break
        assert refused, "no write came late"
        assert fleet.evidence().foreign_writes == []


async def deliver_late_writes(fleet: Fleet, victim: str) -> None:
    """Let writes of *victim* arrive when their objects have other owners."""
    held = await catch_writes(fleet, victim)
    await fleet.wait_for(
        lambda: is_taken(fleet, victim, held), "others to own the objects of the held writes"
    )
    await fleet.release(victim)
    await asyncio.sleep(3)


async def is_taken(fleet: Fleet, victim: str, names: Iterable[str]) -> bool:
    """Whether each of *names* has an owner, and another than *victim*."""
    owners = await fleet.owners()
    return all(owners[name] and not owners[name].startswith(victim) for name in names)


def lives_and_owners(plane: RealPlane, fleet: Fleet) -> list[tuple[str, str]]:
    """The life that a request named, and the label of the version that it replaced, of each accepted write."""
    keys = fleet.spec.keys
    events = [json.loads(line) for line in (plane.kubeconfig.parent / "audit.log").read_bytes().splitlines()]
    versions: dict[str, list[Doc]] = {}
    for event in events:
        meta = event.get("responseObject", {}).get("metadata", {})
        if event["responseStatus"]["code"] in (200, 201) and meta.get("resourceVersion"):
            versions.setdefault(meta["uid"], []).append(event)
    found = []
    for each in versions.values():
        each.sort(key=lambda event: int(event["responseObject"]["metadata"]["resourceVersion"]))
        for before, after in pairwise(each):
            names = after.get("impersonatedUser", {}).get("extra", {}).get(keys.life_extra)
            if names:
                found.append((names[0], before["responseObject"]["metadata"]["labels"].get(keys.shard, "")))
    return found
