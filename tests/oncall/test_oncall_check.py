"""Ten prepared faults of a running fleet: the first line of `ringleader check` names cause and object in all ten,
that of `ringleader describe` in those that are to be seen at one object, and no two commands contradict each other.

Each test breaks the fleet as it is broken in life, by processes that end, hang or are started wrongly, or by an edit.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES
from ringleader.assets import website_controller
from ringleader.cluster.thresholds import UNSEEN_S
from ringleader.testing.commands import WEBSITES, FleetSpec
from tests.fleet.hanging_controller import HANGING, hanging
from tests.oncall.conftest import OBJECTS, Night

pytestmark = [pytest.mark.fleet, pytest.mark.slow]
LATE_CLOCK = Path(__file__).with_name("controllers") / "late_clock.py"
SITE = r"website/site-\d{4} -n sites"


async def test_a_fleet_that_nobody_broke_is_well(night: Night) -> None:
    """So that the first lines below come from the faults."""
    code, out = await night.check()
    assert code == 0, out
    assert out.splitlines()[0].startswith("nothing is wrong: ")
    writer = night.fleet.spec.keys.field_manager
    marks = [lease["metadata"].get("annotations", {}) for lease in await night.fleet.leases()]
    assert [mark[writer] for mark in marks if writer in mark] == ["websites"] * 3


async def test_fault_1_all_sharders_are_gone(night: Night) -> None:
    for sharder in night.fleet.sharders.values():
        await sharder.stop()
    await night.fleet.objects.create("site-9999")
    line = await night.first_line()
    assert line.startswith(
        "error: website/site-9999 -n sites has no owner: no sharder leads: Lease ringleader-fleet/ringleader-sharder "
        "is free (for "
    )
    assert "sites/site-9999 has no owner: no sharder leads" in await night.described(line)
    await night.agree()


class TestWithALongContest:
    """What a contest keeps is seen for as long as it lasts."""

    @pytest.fixture
    def fleet_spec(self) -> FleetSpec:
        return FleetSpec(lease_s=2, settle_s=1, ring_spec={"maxLeaseDurationSeconds": 40})

    async def test_fault_2_a_label_is_written_by_hand(self, night: Night) -> None:
        ref = night.fleet.objects.refs[7]
        labels = {night.fleet.spec.keys.shard: "replica-9-0badf00d"}
        patch = {"metadata": {"labels": labels}}
        await night.fleet.client.merge(WEBSITES, ref.name, patch, namespace="sites")
        line = await night.first_line()
        assert line.startswith(
            f"error: website/{ref.name} -n sites waits 40 s before it is given away: its label names "
            "replica-9-0badf00d, but Lease ringleader-fleet/replica-9-0badf00d does not exist"
        )
        assert "the label was written by hand" in line
        assert "its label names replica-9-0badf00d, but Lease " in await night.described(line)
        await night.agree()

    async def test_fault_3_a_lease_is_deleted_by_hand(self, night: Night) -> None:
        shard = night.fleet.life("replica-2") or ""
        await night.fleet.client.delete(LEASES, shard, namespace=night.fleet.spec.lease_namespace)

        async def is_buried() -> bool:
            return any(lease["metadata"]["name"] == shard for lease in await night.fleet.leases())

        await night.fleet.wait_for(is_buried, "the sharder to make a tombstone")
        line = await night.first_line()
        assert re.match(
            rf"error: {SITE} waits 40 s before it is given away: its label names {shard}, but Lease "
            rf"ringleader-fleet/{shard} does not exist: it was deleted",
            line,
        )
        await night.agree()


class TestWithAReplicaThatHangs:
    """Its reconciles do not end, and its Lease is renewed."""

    @pytest.fixture
    def fleet_spec(self, tmp_path: Path) -> FleetSpec:
        return FleetSpec(
            controller=f"{HANGING}:websites",
            lease_s=2,
            settle_s=1,
            environment={"HANG_FILE": str(tmp_path / "hang.json")},
            ring_spec={"drainTimeoutSeconds": 2},
        )

    async def test_fault_4_a_replica_does_not_hand_over(self, night: Night) -> None:
        fleet = night.fleet
        shard = fleet.life("replica-2") or ""
        with hanging(fleet, shard):
            await fleet.objects.update_all()
            cordoned = {"spec": {"members": {"replica-2": {"cordoned": True}}}}
            await fleet.client.merge(CONTROLLER_RINGS, fleet.spec.ring, cordoned)

            async def is_told() -> bool:
                conditions = (await fleet.ring())["status"]["conditions"]
                return any((c["type"], c["status"]) == ("DrainStuck", "True") for c in conditions)

            await fleet.wait_for(is_told, "the sharder to find the handoffs late")
            line = await night.first_line()
            await night.agree()
        assert re.match(rf"error: {SITE} is stuck: its owner {shard} does not hand it over to replica-", line)

    async def test_fault_5_a_replica_does_not_work(self, night: Night) -> None:
        fleet = night.fleet
        shard = fleet.life("replica-2") or ""
        with hanging(fleet, shard):
            await fleet.objects.update_all()
            line = await night.first_line()
            await asyncio.sleep(UNSEEN_S)
            await night.agree()
        assert re.match(rf"error: {SITE} has a change that its owner {shard} has not observed", line)


async def test_fault_6_two_processes_run_under_one_name(night: Night) -> None:
    first = night.fleet.life("replica-2")
    second = await night.fleet.second_life("replica-2")

    async def is_handed_over() -> bool:
        return first not in (await night.fleet.owners()).values()

    await night.fleet.wait_for(is_handed_over, "the second life to get the objects")
    line = await night.first_line()
    assert line == f"error: member replica-2 of ring websites runs 2 times at once: {first} and {second}"
    await night.agree()


async def test_fault_7_a_replica_has_its_lease_in_another_namespace(night: Night) -> None:
    """It was started with a copy of the ring in which the namespace is another."""
    ring = night.fleet.spec.manifest()
    ring["spec"] |= {"leaseNamespace": "sites"}
    file = night.folder / "ring.yaml"
    file.write_text(yaml.safe_dump(ring))
    flags = ("--ring-file", str(file), "--member", "astray", "--lease-duration", "2")
    await night.start("astray", "shard_controller", "run", f"{website_controller()}:websites", *flags)

    async def has_joined() -> bool:
        return bool(await night.fleet.client.list_all(LEASES, namespace="sites"))

    await night.fleet.wait_for(has_joined, "the stray replica to have a Lease")
    line = await night.first_line()
    assert re.match(
        r"error: lease/astray-[0-9a-f]{8} -n sites \(member astray\) does not count for ring websites: its Leases "
        "belong into namespace ringleader-fleet",
        line,
    )
    await night.agree()


async def test_fault_8_a_replica_s_clock_is_wrong(night: Night) -> None:
    night.fleet.spec = replace(night.fleet.spec, controller=f"{LATE_CLOCK}:websites")
    await night.fleet.join("hasty")
    await night.fleet.wait_quiet()
    line = await night.first_line()
    shard = night.fleet.life("hasty")
    assert re.match(rf"warning: the clock of shard {shard} \(member hasty\) is (29\d|300) s ahead", line)
    await night.agree()


async def test_fault_9_another_controller_heeds_no_label(night: Night) -> None:
    """It works on every object, as it did before there was a ring."""
    for ref in night.fleet.objects.refs:
        body = {"apiVersion": "example.com/v1", "kind": "Website", "status": {"configMap": ref.name}}
        await night.fleet.client.request(
            "PATCH",
            WEBSITES.path(namespace="sites", name=ref.name, subresource="status"),
            query={"fieldManager": "websites-operator", "force": "true"},
            body=body,
            content_type="application/apply-patch+yaml",
        )
    line = await night.first_line()
    assert re.match(
        rf"warning: {SITE} belongs to replica-\d-[0-9a-f]{{8}}, and websites-operator wrote it too: a controller that "
        "ignores the shard label",
        line,
    )
    assert " works on it, and websites-operator wrote it too" in await night.described(line)
    await night.agree()


class TestWithASecondRing:
    """The sharders work it as well."""

    @pytest.fixture
    def fleet_spec(self) -> FleetSpec:
        return FleetSpec(lease_s=2, settle_s=1, sharder_flags=("--ring", "more"))

    async def test_fault_10_two_rings_distribute_one_resource(self, night: Night) -> None:
        ring = night.fleet.spec.manifest()
        ring["metadata"]["name"] = "more"
        await night.fleet.client.create(CONTROLLER_RINGS, ring)
        flags = ("--ring", "more", "--member", "other", "--lease-duration", "2", "--namespace", "sites")
        await night.start("other", "shard_controller", "run", f"{website_controller()}:websites", *flags)

        async def is_shared() -> bool:
            labels = (await night.fleet.objects.labels()).values()
            return len(labels) == OBJECTS and all("shard.ringleader.dev/more" in found for found in labels)

        await night.fleet.wait_for(is_shared, "the second ring to have all objects")
        await night.fleet.wait_quiet()
        line = await night.first_line()
        assert re.match(
            r"warning: rings more and websites both distribute websites\.example\.com under the label domain "
            rf"ringleader\.dev: each object, such as {SITE}, has two owners",
            line,
        )
        told = await night.describe("site-0003", "--ring", "more")
        assert re.search(
            r" has two owners: other-[0-9a-f]{8} in ring more, replica-\d-[0-9a-f]{8} in ring websites", told
        )
        await night.agree()
