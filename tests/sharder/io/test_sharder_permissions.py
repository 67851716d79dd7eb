"""A right that is missing for one of three resources: the other two go on, the condition says which, and it heals."""

from __future__ import annotations

import asyncio

import pytest

from devcluster.faults import Fault
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    SECRETS,
    WEBSITES,
    SharderEnvironment,
    belonging_to,
    eventually,
    is_balanced,
)

KINDS = (WEBSITES, CONFIGMAPS, SECRETS)
THREE = [{"group": kind.group, "resource": kind.plural} for kind in KINDS]


async def refuse(env: SharderEnvironment, verb: str) -> None:
    who = f'User "sharder-1" cannot {verb} resource "secrets"'
    message = f'secrets is forbidden: {who} in API group "" at the cluster scope'
    await env.plane.faults.add(
        Fault(what="error", code=403, user="sharder-1", verb=verb, resource="secrets", message=message)
    )


@pytest.mark.parametrize("verb", ["list", "watch", "patch"])
async def test_a_right_that_is_missing_is_named_until_it_is_granted_and_the_other_resources_go_on(
    env: SharderEnvironment, verb: str
) -> None:
    await refuse(env, verb)
    await env.ring(resources=THREE)
    await env.shard("a")
    for kind in KINDS:
        await env.make(kind, "one")
    async with env.sharder():
        await eventually(env.owners, {"one": "a-00000001"})
        await eventually(lambda: env.owners(CONFIGMAPS), {"one": "a-00000001"})
        await env.until_condition("Ready", reason="Forbidden", says=f"{verb} secrets: ")
        reported = str((await env.condition("Ready"))["message"])
        assert f'verbs: ["{verb}"]' in reported, "the rule that grants it"
        await eventually(
            lambda: env.event_notes("MissingRight"),
            lambda notes: any(f"{verb} secrets" in note for note in notes),
        )
        is_owned = (await env.owners(SECRETS))["one"] != ""
        assert is_owned is (verb == "watch"), "a list shows it, a watch need not"
        for kind in (WEBSITES, SECRETS):
            await env.make(kind, "two")
        await eventually(env.owners, lambda owners: owners["two"] != "")
        await env.plane.faults.clear()
        await eventually(lambda: env.owners(SECRETS), lambda owners: "" not in owners.values(), within_s=12)
        await env.until_condition("Ready", status="True")


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_right_that_is_missing_does_not_keep_live_shards_from_sharing_the_rest(
    env: SharderEnvironment, verb: str
) -> None:
    await refuse(env, verb)
    await env.ring(resources=THREE)
    await env.join("ab")
    name = belonging_to("b", "ab", 1)[0]
    await env.site(name, labels={KEYS.shard: "a-00000001"})
    async with env.sharder():
        await eventually(env.drains, lambda drains: drains.get(name) == "b-00000001")
        await env.acknowledge(name)
        await asyncio.sleep(0.5)
        if verb == "list":
            assert not await is_balanced(env), "nobody can tell where the secrets are"
