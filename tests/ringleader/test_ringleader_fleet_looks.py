"""On a fleet of real processes: what `describe`, `status`, `top` and `release` say of it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.embedded import embedded_plane
from kubeio.protocol import CONTROLLER_RINGS
from ringleader.testing.client import RequestFailedError
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.single_task import single_task
from tests.warm_python import warm_python

pytestmark = [pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """Two replicas, a sharder, twenty objects."""
    folder = tmp_path_factory.mktemp("fleet")
    spec = FleetSpec(lease_s=4, sharders=1)
    async with (
        single_task(embedded_plane(folder / "plane")) as plane,
        single_task(open_fleet(plane, folder / "fleet", spec=spec)) as fleet,
    ):
        await fleet.objects.create_many(20)
        await fleet.start(replicas=2)
        await fleet.wait_converged()
        yield fleet


async def run(fleet: Fleet, *words: str) -> tuple[int, str, str]:
    kubeconfig = await fleet.plane.kubeconfig_for("looker")
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", *words, "--kubeconfig", str(kubeconfig)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


def endpoint(fleet: Fleet, member: str) -> str:
    port = Path(fleet.directory, f"{member}.port").read_text().strip()
    return f"http://127.0.0.1:{port}"


async def owner_of(fleet: Fleet, name: str) -> str:
    """The member that has the site *name*."""
    shard = (await fleet.owners())[name]
    return fleet.lives()[shard]


async def described(fleet: Fleet, *flags: str) -> tuple[int, dict[str, Any]]:
    name = sorted(await fleet.owners())[0]
    code, out, err = await run(
        fleet, "describe", f"website/{name}", "-n", fleet.spec.namespace, "-o", "json", *flags
    )
    assert out, err
    return code, json.loads(out)


async def test_a_healthy_object_is_told_so_by_its_owner_too(fleet: Fleet) -> None:
    name = sorted(await fleet.owners())[0]
    member = await owner_of(fleet, name)
    code, told = await described(fleet, "--endpoint", endpoint(fleet, member))
    assert code == 0, told
    assert told["cause"]["isWrong"] is False
    assert "last outcome done" in told["working"]
    assert "leads (Lease ringleader-fleet/ringleader-sharder" in told["sharder"]


async def status(fleet: Fleet, *flags: str) -> tuple[dict[str, int], dict[str, Any]]:
    """Objects by shard, and the ring."""
    code, out, err = await run(fleet, "status", "-o", "json", *flags)
    assert code == 0, err
    (ring,) = json.loads(out)["rings"]
    return {each["shard"]: each["objects"] for each in ring["members"]}, ring


async def settled_status(fleet: Fleet) -> tuple[dict[str, int], dict[str, Any]]:
    """What is reported once nothing is to do.

    Replicas report with each renewal (a third of 4 s at most), the sharder within a second or two.
    """
    async with asyncio.timeout(10):
        while True:
            members, ring = await status(fleet)
            if (ring["objects"], ring["unowned"], ring["misplaced"]) == (20, 0, 0):
                return members, ring
            await asyncio.sleep(0.5)


async def test_status_says_without_a_list_what_a_list_shows(fleet: Fleet) -> None:
    counted, listed = await status(fleet, "--count")
    assert (listed["objects"], listed["reportedSecondsAgo"]) == (20, None)
    reported, ring = await settled_status(fleet)
    assert reported == counted
    assert 0 <= ring["reportedSecondsAgo"] < fleet.spec.lease_s


async def test_status_that_looks_again_and_again_lists_nothing_either(fleet: Fleet) -> None:
    await settled_status(fleet)
    kubeconfig = await fleet.plane.kubeconfig_for("looker")
    words = ("status", "-w", "--interval", "1s", "-o", "json", "--kubeconfig", str(kubeconfig))
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", *words), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            looks = [json.loads(await process.stdout.readline()) for _ in range(2)]
    finally:
        process.terminate()
        await process.wait()
    rings = [look["rings"][0] for look in looks]
    assert [ring["objects"] for ring in rings] == [20, 20]
    assert all(ring["reportedSecondsAgo"] is not None for ring in rings)


async def test_the_port_of_another_replica_is_noticed(fleet: Fleet) -> None:
    name = sorted(await fleet.owners())[0]
    member = await owner_of(fleet, name)
    other = next(each for each in fleet.lives().values() if each != member)
    code, told = await described(fleet, "--endpoint", endpoint(fleet, other))
    assert code == 0
    assert f"forward the port of pod {member}" in told["working"]


async def test_top_shows_what_each_replica_does(fleet: Fleet) -> None:
    urls = [
        word for member in sorted(fleet.lives().values()) for word in ("--endpoint", endpoint(fleet, member))
    ]
    updating = asyncio.create_task(fleet.objects.run_updates(per_s=20, rng=random.Random(1)))
    code, out, err = await run(fleet, "top", *urls, "-o", "json", "--interval", "3s")
    updating.cancel()
    await asyncio.gather(updating, return_exceptions=True)
    assert code == 0, err
    rows = json.loads(out)["replicas"]
    assert {row["shard"] for row in rows} == set(fleet.lives())
    assert sum(row["reconcilesPerSecond"] for row in rows) >= 3
    assert all(row["memoryBytes"] > 10 << 20 and row["queue"] is not None for row in rows)
    assert sum(row["objects"] for row in rows) >= 20


async def test_a_replica_that_is_silent_is_named_and_the_others_are_shown(fleet: Fleet) -> None:
    member = sorted(fleet.lives().values())[0]
    words = ("--endpoint", "http://127.0.0.1:1", "--endpoint", endpoint(fleet, member), "--interval", "1s")
    code, out, _ = await run(fleet, "top", *words)
    assert code == 0
    assert "http://127.0.0.1:1: no answer" in out
    assert "MB" in out
    code, _, _ = await run(fleet, "top", "--endpoint", "http://127.0.0.1:1")
    assert code == 1


async def test_top_names_the_flag_that_reaches_replicas_without_a_pod(fleet: Fleet) -> None:
    code, out, _ = await run(fleet, "top")
    assert code == 1
    assert out.count("name replicas outside a cluster with --endpoint URL") == len(fleet.lives())


async def test_a_ring_is_described_with_its_last_events(fleet: Fleet) -> None:
    code, out, err = await run(fleet, "describe", "ring", fleet.spec.ring, "-o", "json")
    assert code == 0, out + err
    told = json.loads(out)
    assert "Converged" in {each["reason"] for each in told["events"]}
    assert {each["shard"] for each in told["shards"] if each["isActive"]} == set(fleet.lives())
    assert sum(each["objects"] for each in told["shards"]) == 20


async def test_an_object_of_a_killed_replica_is_described_by_its_death(fleet: Fleet) -> None:
    """While the sharder is stopped too, nothing happens to the object: the first line says both."""
    name = sorted(await fleet.owners())[0]
    member = await owner_of(fleet, name)
    shard = (await fleet.owners())[name]
    fleet.sharders["sharder-1"].freeze()
    await fleet.kill(member)
    try:
        for _ in range(60):
            code, out, _ = await run(fleet, "describe", f"website/{name}", "-n", fleet.spec.namespace)
            if "no sharder leads" in out:
                break
            await asyncio.sleep(0.5)
        first = out.splitlines()[0]
        assert code == 5
        assert (
            f"websites.example.com/{fleet.spec.namespace}/{name} is not reconciled: its owner {shard}"
            in first
        )
        assert "does not renew its Lease" in first
        assert "no sharder leads" in first
    finally:
        fleet.sharders["sharder-1"].wake()
        await fleet.add_member(member)
        await fleet.wait_converged()


async def test_a_release_waits_until_every_replica_let_go(fleet: Fleet) -> None:
    code, out, err = await run(fleet, "delete", fleet.spec.ring, "--yes")
    assert code == 0, err
    assert "is released" in out
    with pytest.raises(RequestFailedError):
        await fleet.client.get(CONTROLLER_RINGS, fleet.spec.ring)
    labels = await fleet.objects.labels()
    assert all(fleet.spec.keys.shard not in found for found in labels.values())
    assert len(labels) == 20
