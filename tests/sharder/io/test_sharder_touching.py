"""What a ring gives up gets another version: an assignment that was decided before cannot land after (protocol, 7)."""

from __future__ import annotations

import pytest

from kubeio.errors import Conflict
from kubeio.models import HasMeta, Meta
from sharder.planning.decisions import Assign
from sharder.planning.patches import patch_of
from tests.sharder.io.environment import (
    KEYS,
    ONLY_SECRETS,
    SITES,
    WEBSITES,
    SharderEnvironment,
    eventually,
    worked,
)


async def newest(env: SharderEnvironment, name: str, namespace: str) -> Meta:
    return (await env.client.get(WEBSITES, name, namespace=namespace, type=HasMeta)).metadata


async def until_touched(env: SharderEnvironment, before: Meta) -> None:
    await eventually(
        lambda: newest(env, before.name, before.namespace),
        lambda found: found.resource_version != before.resource_version and not found.labels,
    )


async def assign_late(env: SharderEnvironment, before: Meta) -> None:
    """What a sharder decided on *before* arrives now."""
    await env.client.patch(
        WEBSITES,
        before.name,
        patch_of(Assign("a-00000001"), before, keys=KEYS),
        namespace=before.namespace,
        type=bytes,
    )


async def test_an_assignment_under_way_does_not_land_in_a_namespace_that_was_deselected(
    env: SharderEnvironment,
) -> None:
    await env.namespace("tenant", {"team": "ours"})
    await env.ring(namespaceSelector={"matchLabels": {"team": "ours"}})
    before = await env.site("waits", namespace="tenant")  # nobody is there to own it
    elsewhere = await env.site("never-ours")
    async with env.sharder():
        await eventually(env.status, lambda status: status.get("unassigned") == 1)
        await env.label_namespace("tenant", {"team": "theirs"})
        await until_touched(env, before)
        with pytest.raises(Conflict):
            await assign_late(env, before)
    assert (await newest(env, "never-ours", "default")).resource_version == elsewhere.resource_version


async def test_an_assignment_under_way_does_not_land_on_a_resource_that_was_removed(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=[SITES, *ONLY_SECRETS])
    shard = await env.shard("a")
    async with env.sharder():
        await env.until_balanced()
    await shard.release()
    before = await env.site("waits")  # nobody is there to own it
    async with env.sharder():
        await env.ring(resources=ONLY_SECRETS)
        await eventually(lambda: worked(env), ["secrets"])
        await until_touched(env, before)
        with pytest.raises(Conflict):
            await assign_late(env, before)
