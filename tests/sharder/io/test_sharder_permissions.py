"""A right that is missing for one of three resources: the other two go on, the condition says which, and it heals."""

from __future__ import annotations

import asyncio

import pytest

from devcluster.faults import Fault
from tests.sharder.io.ground import (
    CONFIGMAPS,
    KEYS,
    SECRETS,
    WEBSITES,
    Ground,
    belonging_to,
    eventually,
    is_balanced,
)

KINDS = (WEBSITES, CONFIGMAPS, SECRETS)
THREE = [{"group": kind.group, "resource": kind.plural} for kind in KINDS]


async def refuse(ground: Ground, verb: str) -> None:
    who = f'User "sharder-1" cannot {verb} resource "secrets"'
    message = f'secrets is forbidden: {who} in API group "" at the cluster scope'
    await ground.plane.faults.add(
        Fault(what="error", code=403, user="sharder-1", verb=verb, resource="secrets", message=message)
    )


@pytest.mark.parametrize("verb", ["list", "watch", "patch"])
async def test_a_right_that_is_missing_is_named_until_it_is_granted_and_the_other_resources_go_on(
    ground: Ground, verb: str
) -> None:
    await refuse(ground, verb)
    await ground.ring(resources=THREE)
    await ground.shard("a")
    for kind in KINDS:
        await ground.make(kind, "one")
    async with ground.sharder():
        await eventually(ground.owners, {"one": "a-00000001"})
        await eventually(lambda: ground.owners(CONFIGMAPS), {"one": "a-00000001"})
        await ground.until_condition("Ready", reason="Forbidden", says=f"{verb} secrets: ")
        reported = str((await ground.condition("Ready"))["message"])
        assert f'verbs: ["{verb}"]' in reported, "the rule that grants it"
        await eventually(
            lambda: ground.event_notes("MissingRight"),
            lambda notes: any(f"{verb} secrets" in note for note in notes),
        )
        is_owned = (await ground.owners(SECRETS))["one"] != ""
        assert is_owned is (verb == "watch"), "a list shows it, a watch need not"
        for kind in (WEBSITES, SECRETS):
            await ground.make(kind, "two")
        await eventually(ground.owners, lambda owners: owners["two"] != "")
        await ground.plane.faults.clear()
        await eventually(
            lambda: ground.owners(SECRETS), lambda owners: "" not in owners.values(), within_s=12
        )
        await ground.until_condition("Ready", status="True")


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_right_that_is_missing_does_not_keep_live_shards_from_sharing_the_rest(
    ground: Ground, verb: str
) -> None:
    await refuse(ground, verb)
    await ground.ring(resources=THREE)
    await ground.join("ab")
    name = belonging_to("b", "ab", 1)[0]
    await ground.site(name, labels={KEYS.shard: "a-00000001"})
    async with ground.sharder():
        await eventually(ground.drains, lambda drains: drains.get(name) == "b-00000001")
        await ground.acknowledge(name)
        await asyncio.sleep(0.5)
        if verb == "list":
            assert not await is_balanced(ground), "nobody can tell where the secrets are"
