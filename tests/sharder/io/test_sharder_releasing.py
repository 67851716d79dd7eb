"""A resource taken out of a ring is given up (protocol, section 7), and what was left behind is found (6.4, 9.18)."""

from __future__ import annotations

import asyncio

from devcluster.faults import Fault
from kubeio.models import HasMeta, Meta
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, ApiResource
from tests.sharder.io.ground import (
    CONFIGMAPS,
    KEYS,
    RING,
    WEBSITES,
    Ground,
    is_balanced,
    wait_until,
)
from tests.sharder.io.test_sharder_moving import belonging_to

SECRETS = ApiResource("", "v1", "secrets", "Secret")
SITES_WITH_PAGES = {
    "group": "example.com",
    "resource": "websites",
    "controlledResources": [{"group": "", "resource": "configmaps"}],
}
SITES = {"group": "example.com", "resource": "websites"}
ONLY_SECRETS = [{"group": "", "resource": "secrets"}]


async def secret(ground: Ground, name: str) -> None:
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    await ground.client.create(SECRETS, document, namespace="default", type=HasMeta)


async def drains(ground: Ground, resource: ApiResource = WEBSITES) -> dict[str, str]:
    found = await ground.labels(resource)
    return {name: labels[KEYS.drain] for name, labels in found.items() if KEYS.drain in labels}


async def worked(ground: Ground) -> list[str]:
    """The resources that the ring's status remembers, mains and controlled ones."""
    entries = (await ground.status()).get("worked", [])
    assert isinstance(entries, list)
    return sorted(
        kind["resource"] for entry in entries for kind in [entry, *entry.get("controlledResources", [])]
    )


async def unlabelled(ground: Ground, resource: ApiResource = WEBSITES) -> bool:
    return not any(
        key in labels
        for labels in (await ground.labels(resource)).values()
        for key in (KEYS.shard, KEYS.drain)
    )


async def acknowledge_all(ground: Ground, resource: ApiResource = WEBSITES) -> None:
    for name in await drains(ground, resource):
        await ground.acknowledge(name, resource=resource)


async def balanced(ground: Ground) -> None:
    await wait_until(lambda: is_balanced(ground))


async def test_a_removed_resource_is_given_up_and_the_others_stay(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    await ground.sites(3)
    await secret(ground, "one")
    async with ground.sharder():
        await balanced(ground)
        assert await worked(ground) == ["secrets", "websites"]
        await ground.ring(resources=ONLY_SECRETS)

        async def asked() -> bool:
            return list((await drains(ground)).values()) == [""] * 3

        await wait_until(asked)
        assert set((await ground.owners()).values()) == {"a-00000001"}, "only its owner gives an object up"

        async def told() -> bool:
            condition = await ground.condition("Releasing")
            return condition.get("message") == "3 objects still carry labels: websites.example.com"

        await wait_until(told)
        assert await worked(ground) == ["secrets", "websites"], "remembered until no label is left"
        await acknowledge_all(ground)

        async def forgotten() -> bool:
            return await worked(ground) == ["secrets"]

        await wait_until(forgotten)

        async def no_longer_told() -> bool:
            return await ground.condition("Releasing") == {}

        await wait_until(no_longer_told)
        await ground.site("new")
        await balanced(ground)
        assert await unlabelled(ground)
        assert await ground.owners(SECRETS) == {"one": "a-00000001"}


async def test_a_resource_that_was_removed_while_no_sharder_ran_is_given_up_too(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    await ground.sites(2)
    async with ground.sharder():
        await balanced(ground)
    await ground.ring(resources=ONLY_SECRETS)
    async with ground.sharder("sharder-2"):

        async def asked() -> bool:
            return list((await drains(ground)).values()) == [""] * 2

        await wait_until(asked)
    await ground.acknowledge("site-0")
    async with ground.sharder("sharder-3"):
        await asyncio.sleep(1.0)
        assert await worked(ground) == ["secrets", "websites"], "one object still has its labels"
        await acknowledge_all(ground)

        async def forgotten() -> bool:
            return await worked(ground) == ["secrets"]

        await wait_until(forgotten)
    assert await unlabelled(ground)


async def test_labels_that_name_dead_shards_go_from_a_removed_resource(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    a = await ground.shard("a")
    await ground.sites(2)
    async with ground.sharder():
        await balanced(ground)
        await ground.ring(resources=ONLY_SECRETS)

        async def asked() -> bool:
            return list((await drains(ground)).values()) == [""] * 2

        await wait_until(asked)
        await a.release()

        async def free() -> bool:
            return await unlabelled(ground) and await worked(ground) == ["secrets"]

        await wait_until(free)


async def test_a_lone_drain_label_goes_from_a_removed_resource(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    async with ground.sharder():
        await balanced(ground)
    await ground.site("odd", labels={KEYS.drain: "a-00000001"})
    await ground.ring(resources=ONLY_SECRETS)
    async with ground.sharder("sharder-2"):

        async def forgotten() -> bool:
            return await unlabelled(ground) and await worked(ground) == ["secrets"]

        await wait_until(forgotten)


async def test_a_removed_controlled_resource_is_given_up_while_its_controllers_stay(ground: Ground) -> None:
    await ground.ring(resources=[SITES_WITH_PAGES])
    a = await ground.shard("a")
    site = await ground.site("one")
    await ground.page(site, labels={KEYS.shard: a.name})
    async with ground.sharder():
        await balanced(ground)
        await ground.ring(resources=[SITES])

        async def asked() -> bool:
            return await drains(ground, CONFIGMAPS) == {"one": ""}

        await wait_until(asked)
        await asyncio.sleep(1.5)
        assert await worked(ground) == ["configmaps", "websites"], "its label is still there"
        await ground.acknowledge("one", resource=CONFIGMAPS)

        async def forgotten() -> bool:
            return await worked(ground) == ["websites"]

        await wait_until(forgotten)
        assert await unlabelled(ground, CONFIGMAPS)
        assert await ground.owners() == {"one": "a-00000001"}
        assert await drains(ground) == {}


async def test_a_removed_resource_is_remembered_while_an_object_waits_for_its_dead_owner(
    ground: Ground,
) -> None:
    """One that nobody controls any more, under a name without a Lease: contested first, then taken off."""
    await ground.ring(resources=[SITES_WITH_PAGES])
    await ground.shard("a")
    async with ground.sharder():
        await balanced(ground)
    await ground.ring(resources=[SITES])
    page = await ground.page(await ground.site("one"), labels={KEYS.shard: "gone-00000009"})
    orphaned = MergePatch({"metadata": {"ownerReferences": None}})
    await ground.client.patch(CONFIGMAPS, page.name, orphaned, namespace="default", type=bytes)
    async with ground.sharder("sharder-2"):

        async def forgotten() -> bool:
            return await worked(ground) == ["websites"]

        await wait_until(forgotten)
        assert await unlabelled(ground, CONFIGMAPS)


async def test_a_resource_that_is_listed_again_before_it_was_given_up_stays(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    await ground.sites(1)
    async with ground.sharder():
        await balanced(ground)
        await ground.ring(resources=ONLY_SECRETS)

        async def asked() -> bool:
            return await drains(ground) == {"site-0": ""}

        await wait_until(asked)
        await ground.ring(resources=[SITES, *ONLY_SECRETS])

        async def withdrawn() -> bool:
            return await drains(ground) == {"site-0": "a-00000001"}

        await wait_until(withdrawn)


async def test_a_ring_that_is_deleted_amid_a_release_goes_when_both_are_given_up(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    a = await ground.shard("a")
    await ground.sites(2)
    await secret(ground, "one")
    async with ground.sharder():
        await balanced(ground)
        await ground.ring(resources=ONLY_SECRETS)

        async def asked() -> bool:
            return list((await drains(ground)).values()) == [""] * 2

        await wait_until(asked)
    await ground.client.delete(CONTROLLER_RINGS, RING)
    async with ground.sharder("sharder-2"):

        async def asked_for_secrets() -> bool:
            return await drains(ground, SECRETS) == {"one": ""}

        await wait_until(asked_for_secrets)
        await acknowledge_all(ground, SECRETS)
        await a.release()

        async def gone() -> bool:
            return not await ground.exists(CONTROLLER_RINGS, RING)

        await wait_until(gone)
    assert await unlabelled(ground)
    assert await unlabelled(ground, SECRETS)


async def test_a_removed_resource_whose_definition_is_deleted_holds_nothing_up(ground: Ground) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    await ground.sites(1)
    await secret(ground, "one")
    async with ground.sharder():
        await balanced(ground)
        await ground.ring(resources=ONLY_SECRETS)

        async def asked() -> bool:
            return await drains(ground) == {"site-0": ""}

        await wait_until(asked)
        await ground.client.delete(CRDS, "websites.example.com")
    async with ground.sharder("sharder-2"):

        async def forgotten() -> bool:
            return await worked(ground) == ["secrets"]

        await wait_until(forgotten)
        await secret(ground, "two")

        async def assigned() -> bool:
            return await ground.owners(SECRETS) == {"one": "a-00000001", "two": "a-00000001"}

        await wait_until(assigned)


async def test_a_removed_resource_whose_definition_goes_while_it_is_released_is_forgotten(
    ground: Ground,
) -> None:
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    await ground.sites(1)
    async with ground.sharder():
        await balanced(ground)
        await ground.ring(resources=ONLY_SECRETS)

        async def asked() -> bool:
            return await drains(ground) == {"site-0": ""}

        await wait_until(asked)
        await ground.client.delete(CRDS, "websites.example.com")

        async def forgotten() -> bool:
            return await worked(ground) == ["secrets"]

        await wait_until(forgotten)
        await secret(ground, "one")

        async def assigned() -> bool:
            return await ground.owners(SECRETS) == {"one": "a-00000001"}

        await wait_until(assigned)


async def test_a_removed_resource_out_of_reach_is_told_and_stops_no_other(ground: Ground) -> None:
    """Rights that went together with the resource: nothing can be given up, and nothing is forgotten."""
    await ground.ring(resources=[SITES, *ONLY_SECRETS])
    await ground.shard("a")
    await ground.sites(1)
    async with ground.sharder():
        await balanced(ground)
        await ground.plane.faults.add(
            Fault(what="error", resource="websites.example.com", user="sharder-1", code=403)
        )
        await ground.ring(resources=ONLY_SECRETS)

        async def told() -> bool:
            return (await ground.condition("Releasing")).get("reason") == "Unseen"

        await wait_until(told)
        await secret(ground, "one")

        async def assigned() -> bool:
            return await ground.owners(SECRETS) == {"one": "a-00000001"}

        await wait_until(assigned)
        assert await worked(ground) == ["secrets", "websites"]


# ---- how far a release is -----------------------------------------------------------------------------------------


async def released(ground: Ground) -> object:
    return (await ground.status()).get("released")


async def told_released(ground: Ground, count: int, being: int) -> bool:
    message = f"{count} objects given up, {being} being given up"
    told = (await ground.condition("Releasing")).get("message")
    return (told, await released(ground)) == (message, count)


async def test_a_ring_that_is_deleted_tells_how_many_objects_were_given_up(ground: Ground) -> None:
    """Answered, deleted instead of answered, taken off a dead shard: each is one; what follows an object is none."""
    await ground.ring()
    a, b = await ground.shard("a"), await ground.shard("b")
    async with ground.sharder():
        await balanced(ground)
        assert await released(ground) is None
        await b.release()
        await wait_until(b.holder)
    for number in range(4):
        site = await ground.site(f"site-{number}", labels={KEYS.shard: a.name})
    await ground.page(site, labels={KEYS.shard: a.name})
    await ground.site("stray", labels={KEYS.shard: b.name})
    await ground.client.delete(CONTROLLER_RINGS, RING)
    async with ground.sharder("sharder-2"):
        await wait_until(lambda: told_released(ground, 1, 4))
        assert (await ground.condition("Ready"))["reason"] == "Releasing"
        assert (await ground.condition("Balanced"))["reason"] == "Releasing"
        await ground.acknowledge("site-0")
        await ground.client.delete(WEBSITES, "site-1", namespace="default")
        await wait_until(lambda: told_released(ground, 3, 2))
        assert (await ground.status())["unassigned"] == 0
    async with ground.sharder("sharder-3"):
        await wait_until(lambda: told_released(ground, 0, 2))
        await acknowledge_all(ground)
        await wait_until(lambda: told_released(ground, 2, 1))  # the page was left behind
        await acknowledge_all(ground, CONFIGMAPS)
        await wait_until(lambda: told_released(ground, 2, 0))


# ---- left behind --------------------------------------------------------------------------------------------------


async def left_behind(ground: Ground) -> Meta:
    """A site that is at its place with b, and a page of it that a still has."""
    await ground.ring()
    a, b = await ground.shard("a"), await ground.shard("b")
    name = belonging_to("b", ["a", "b"], 1)[0]
    site = await ground.site(name, labels={KEYS.shard: b.name})
    await ground.page(site, labels={KEYS.shard: a.name})
    return site


async def test_a_controlled_object_left_behind_is_sent_after_its_controller(ground: Ground) -> None:
    site = await left_behind(ground)
    async with ground.sharder():

        async def asked() -> bool:
            return await drains(ground, CONFIGMAPS) == {site.name: "b-00000001"}

        await wait_until(asked)
        assert not await is_balanced(ground)
        await ground.acknowledge(site.name, resource=CONFIGMAPS)
        await balanced(ground)
    assert await ground.owners(CONFIGMAPS) == {site.name: "b-00000001"}


async def test_controlled_objects_whose_controller_is_on_its_way_are_left_to_its_owner(
    ground: Ground,
) -> None:
    await ground.ring()
    a = await ground.shard("a")
    names = belonging_to("b", ["a", "b"], 5)
    for name in names:
        await ground.page(await ground.site(name, labels={KEYS.shard: a.name}), labels={KEYS.shard: a.name})
    async with ground.sharder():
        await balanced(ground)
        await ground.shard("b")

        async def asked() -> bool:
            return set(await drains(ground)) == set(names)

        await wait_until(asked)
        await asyncio.sleep(3.0)
        assert await drains(ground, CONFIGMAPS) == {}


async def test_a_controlled_object_left_behind_does_not_keep_a_deleted_ring(ground: Ground) -> None:
    await ground.ring()
    a = await ground.shard("a")
    site = await ground.site("one")
    await ground.page(site, labels={KEYS.shard: a.name})
    async with ground.sharder():
        await balanced(ground)
        await ground.client.delete(CONTROLLER_RINGS, RING)

        async def asked() -> bool:
            return await drains(ground) == {"one": ""}

        await wait_until(asked)
        assert await drains(ground, CONFIGMAPS) == {}, "its owner gives it up with its controller"
        await ground.acknowledge("one")

        async def asked_for_the_page() -> bool:
            return await drains(ground, CONFIGMAPS) == {"one": ""}

        await wait_until(asked_for_the_page)
        await ground.acknowledge("one", resource=CONFIGMAPS)
        await a.release()

        async def gone() -> bool:
            return not await ground.exists(CONTROLLER_RINGS, RING)

        await wait_until(gone)


async def test_a_controlled_object_that_lost_its_controller_reference_is_given_up(ground: Ground) -> None:
    await ground.ring()
    a = await ground.shard("a")
    page = await ground.page(await ground.site("one"), labels={KEYS.shard: a.name})
    orphaned = MergePatch({"metadata": {"ownerReferences": None}})
    await ground.client.patch(CONFIGMAPS, page.name, orphaned, namespace="default", type=bytes)
    async with ground.sharder():

        async def asked() -> bool:
            return await drains(ground, CONFIGMAPS) == {"one": ""}

        await wait_until(asked)
