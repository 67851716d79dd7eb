"""The check of a healthy plane: every check passes, whatever moves meanwhile is not taken for ill."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from devcluster.embedded import embedded_plane
from ringleader.check.checks import CHECKS
from ringleader.check.evidence import Evidence, Group, ResourceCount, RingEvidence, Trouble
from ringleader.check.findings import Level
from ringleader.cluster.ring import ring_of
from ringleader.cluster.snapshot import RingState, Snapshot
from tests.ringleader.check.environment import (
    ACCOUNTS,
    CONFIGMAPS,
    KEYS,
    ONE,
    SITES,
    TWO,
    WEBSITES,
    CheckEnvironment,
    found,
    is_well,
    open_environment,
)


async def test_a_healthy_plane_passes_every_check(env: CheckEnvironment) -> None:
    report = await env.diagnose()
    assert is_well(report)
    rights, owners, *others = report.findings
    assert rights.summary == "this API server lets every account do everything"
    assert owners.summary.startswith(f"{2 * SITES} objects of 1 ring have living owners")
    told = [owners.check, *(each.check for each in others)]
    assert told == [check.name for check in CHECKS if check.name != "rights"]


async def test_what_gets_its_owner_between_both_looks_is_not_told(env: CheckEnvironment) -> None:
    """New, handed over, taken over: all that is on its way when the check looks first."""
    await env.make_site(100, owner="")
    await env.make_site(101, owner="late-00000003")
    await env.label("site-000", {KEYS.drain: TWO})

    async def go_on() -> None:
        await asyncio.sleep(0.6)
        await env.label("site-100", {KEYS.shard: ONE})
        await env.label("site-100", {KEYS.shard: ONE}, resource=CONFIGMAPS)
        await env.join("late-00000003")
        await env.label("site-000", {KEYS.shard: TWO, KEYS.drain: None})

    going = asyncio.create_task(go_on())
    report = await env.diagnose()
    await going
    assert is_well(report)


async def test_a_controlled_object_of_a_stranger_is_none_of_the_ring_s_business(
    env: CheckEnvironment,
) -> None:
    """ConfigMaps that no Website controls have no owner, and need none."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "somebody-s"}}
    await env.client.create(CONFIGMAPS, config_map, namespace="sites", type=bytes)
    assert is_well(await env.diagnose())


async def test_namespaces_that_the_ring_does_not_select_are_not_looked_at(env: CheckEnvironment) -> None:
    await env.edit_ring(namespaceSelector={"matchLabels": {"team": "web"}})
    await env.tell_status(Ready=("True", "Working", ""))
    for index in range(SITES):
        await env.label(f"site-{index:03d}", {KEYS.shard: None})
    report = await env.diagnose()
    assert is_well(report)
    (owners,) = [each for each in report.findings if each.check == "owners"]
    assert owners.summary.startswith("0 objects")


def test_what_waited_at_the_first_look_is_counted_not_passed_over() -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    count = ResourceCount(WEBSITES, is_main=True, objects=10)
    state = RingState(ring_of({"metadata": {"name": "websites"}, "spec": {}}))
    evidence = Evidence(Snapshot(now), rings=[RingEvidence(state, counts=[count])])
    owners = next(check for check in CHECKS if check.name == "owners")
    assert owners.fine(evidence) == "10 objects of 1 ring have living owners"
    count.groups[Trouble.DEAD, "web-1-00000001"] = Group(count=4)
    assert owners.fine(evidence) == (
        "10 objects of 1 ring; 4 had no living owner at the first look, and those looked at again had one"
    )


async def test_rights_are_judged_where_rbac_is_on(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path, rbac=True) as plane, open_environment(plane) as env:
        missing = found(await env.diagnose(), "rights")
        accounts = {account for listed in ACCOUNTS.values() for account in listed}
        assert {each.level for each in missing} == {Level.ERROR}
        assert all(any(account in str(each) for each in missing) for account in accounts)
        rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        for account in accounts:
            _, _, namespace, name = account.split(":")
            subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
            binding = {
                "metadata": {"name": f"{namespace}-{name}"},
                "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [subject],
            }
            await plane.order("POST", rbac, msgspec.json.encode(binding))
        report = await env.diagnose()
        assert [each.level for each in report.findings if each.check == "rights"] == [Level.OK]
