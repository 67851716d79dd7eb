"""A right that is missing for one of three resources: the other two go on, the condition says which, and it heals."""

from __future__ import annotations

import asyncio

import pytest

from devcluster.faults import Fault
from kubeio.models import HasMeta
from kubeio.resource import ApiResource
from tests.sharder.io.ground import CONFIGMAPS, KEYS, WEBSITES, Ground, wait_until
from tests.sharder.io.test_sharder_moving import belonging_to

SECRETS = ApiResource("", "v1", "secrets", "Secret")
KINDS = (WEBSITES, CONFIGMAPS, SECRETS)
THREE = [{"group": kind.group, "resource": kind.plural} for kind in KINDS]


async def make(ground: Ground, kind: ApiResource, name: str, *, owner: str = "") -> None:
    document = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "labels": {KEYS.shard: owner} if owner else {}},
        **({"spec": {"html": ""}} if kind is WEBSITES else {}),
    }
    await ground.client.create(kind, document, namespace="default", type=HasMeta)


async def refuse(ground: Ground, verb: str, kind: ApiResource = SECRETS) -> None:
    message = (
        f'{kind.plural} is forbidden: User "sharder-1" cannot {verb} resource "{kind.plural}" '
        f'in API group "{kind.group}" at the cluster scope'
    )
    fault = Fault(
        what="error", code=403, user="sharder-1", verb=verb, resource=kind.group_resource, message=message
    )
    await ground.plane.faults.add(fault)


async def is_owned(ground: Ground, kind: ApiResource, name: str) -> bool:
    return bool((await ground.owners(kind)).get(name))


async def forbidden(ground: Ground) -> str:
    """What the condition says is missing; empty if nothing is."""
    ready = await ground.condition("Ready")
    return str(ready["message"]) if ready.get("reason") == "Forbidden" else ""


@pytest.mark.parametrize("verb", ["list", "watch", "patch"])
async def test_the_other_resources_go_on_and_the_condition_names_verb_and_resource(
    ground: Ground, verb: str
) -> None:
    await refuse(ground, verb)
    await ground.ring(resources=THREE)
    await ground.shard("a")
    for kind in KINDS:
        await make(ground, kind, "one")
    async with ground.sharder():
        for kind in (WEBSITES, CONFIGMAPS):
            await wait_until(lambda k=kind: is_owned(ground, k, "one"))  # type: ignore[misc] # a default binds the loop's value
        await wait_until(lambda: forbidden(ground))
        told = await forbidden(ground)
        assert told.startswith(f"{verb} secrets: ")
        assert f'verbs: ["{verb}"]' in told, "the rule that grants it"

        async def noted() -> bool:
            return any(f"{verb} secrets" in note for note in await ground.event_notes("MissingRight"))

        await wait_until(noted)
        assert await is_owned(ground, SECRETS, "one") is (verb == "watch"), (
            "a list shows it, a watch need not"
        )
        # also what comes later
        await make(ground, WEBSITES, "two")
        await wait_until(lambda: is_owned(ground, WEBSITES, "two"))


@pytest.mark.parametrize("verb", ["list", "watch", "patch"])
async def test_once_the_right_is_granted_the_work_is_done_and_the_condition_goes(
    ground: Ground, verb: str
) -> None:
    await refuse(ground, verb)
    await ground.ring(resources=THREE)
    await ground.shard("a")
    for number in range(5):
        await make(ground, SECRETS, f"secret-{number}")
    async with ground.sharder():
        await wait_until(lambda: forbidden(ground))
        await ground.plane.faults.clear()

        async def all_owned() -> bool:
            return all([await is_owned(ground, SECRETS, f"secret-{number}") for number in range(5)])

        await wait_until(all_owned, within_s=12)

        async def healed() -> bool:
            return (await ground.condition("Ready")).get("status") == "True"

        await wait_until(healed, within_s=10)


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_right_that_is_missing_does_not_keep_live_shards_from_sharing_the_rest(
    ground: Ground, verb: str
) -> None:
    await refuse(ground, verb)
    await ground.ring(resources=THREE)
    await ground.shard("a")
    await ground.shard("b")
    name = belonging_to("b", ["a", "b"], 1)[0]
    await make(ground, WEBSITES, name, owner="a-00000001")
    async with ground.sharder():

        async def asked() -> bool:
            return (await ground.drains()).get(name) == "b-00000001"

        await wait_until(asked)
        await ground.acknowledge(name)
        await asyncio.sleep(0.5)
        if verb == "list":
            balanced = await ground.condition("Balanced")
            assert balanced["status"] == "False", "nobody can tell where the secrets are"


async def test_a_patch_that_is_refused_is_tried_for_one_object_every_few_seconds(ground: Ground) -> None:
    """A thousand objects that cannot be written must not cost a thousand requests again and again."""
    await refuse(ground, "patch")
    await ground.ring(resources=THREE)
    await ground.shard("a")
    for number in range(150):
        await make(ground, SECRETS, f"secret-{number}")
    async with ground.sharder():
        await wait_until(lambda: forbidden(ground))
        await asyncio.sleep(1.0)  # those that were under way together

        async def refused() -> int:
            return sum(fault.hits for fault in await ground.plane.faults.active())

        first = await refused()
        assert 0 < first < 100
        await asyncio.sleep(6.0)
        assert await refused() - first <= 3
