"""What a ring gives up gets another version: an assignment that was decided before cannot land after (protocol, 7)."""

from __future__ import annotations

import pytest

from kubeio.errors import Conflict
from kubeio.models import HasMeta, Meta
from sharder.planning.decisions import Assign
from sharder.planning.patches import patch_of
from tests.sharder.io.ground import KEYS, ONLY_SECRETS, SITES, WEBSITES, Ground, eventually, worked


async def newest(ground: Ground, name: str, namespace: str) -> Meta:
    return (await ground.client.get(WEBSITES, name, namespace=namespace, type=HasMeta)).metadata


async def until_touched(ground: Ground, before: Meta) -> None:
    await eventually(
        lambda: newest(ground, before.name, before.namespace),
        lambda found: found.resource_version != before.resource_version and not found.labels,
    )


async def assign_late(ground: Ground, before: Meta) -> None:
    """What a sharder decided on *before* arrives now."""
    await ground.client.patch(
        WEBSITES,
        before.name,
        patch_of(Assign("a-00000001"), before, keys=KEYS),
        namespace=before.namespace,
        type=bytes,
    )


async def test_an_assignment_under_way_does_not_land_in_a_namespace_that_was_deselected(
    ground: Ground,
) -> None:
    await ground.namespace("tenant", {"team": "ours"})
    await ground.ring(namespaceSelector={"matchLabels": {"team": "ours"}})
    before = await ground.site("waits", namespace="tenant")  # nobody is there to own it
    elsewhere = await ground.site("never-ours")
    async with ground.sharder():
        await eventually(ground.status, lambda status: status.get("unassigned") == 1)
        await ground.label_namespace("tenant", {"team": "theirs"})
        await until_touched(ground, before)
        with pytest.raises(Conflict):
            await assign_late(ground, before)
    assert (await newest(ground, "never-ours", "default")).resource_version == elsewhere.resource_version


async def test_an_assignment_under_way_does_not_land_on_a_resource_that_was_removed(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    shard = await ground.shard("a")
    async with ground.sharder():
        await ground.until_balanced()
    await shard.release()
    before = await ground.site("waits")  # nobody is there to own it
    async with ground.sharder():
        await ground.ring(resources=ONLY_SECRETS)
        await eventually(lambda: worked(ground), ["secrets"])
        await until_touched(ground, before)
        with pytest.raises(Conflict):
            await assign_late(ground, before)
