"""Which shard gets what: every key of `spec.key`, kinds of every scope, several rings and resources (protocol, 3)."""

from __future__ import annotations

import asyncio

from kubeio.clock import SystemClock, micro_time
from kubeio.models import HasMeta, Lease, LeaseSpec, Meta
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import NAMESPACES, ApiResource
from ring import HashRing
from ring.key import object_key
from tests.sharder.io.ground import CONFIGMAPS, KEYS, RING, WEBSITES, Ground, is_balanced, wait_until

SECRETS = ApiResource("", "v1", "secrets", "Secret")
SITES = {"group": "example.com", "resource": "websites"}
TREE = {**SITES, "controlledResources": [{"resource": "configmaps"}, {"resource": "secrets"}]}
AB = HashRing(["a", "b"])


def shard_of(key: str) -> str:
    return f"{AB.owner(key)}-00000001"


def site_of(member: str, *, count: int = 1) -> list[str]:
    """Names of sites in `default` whose own places are *member*'s."""
    names = (f"site-{n}" for n in range(10_000))
    found = (name for name in names if AB.owner(object_key("example.com", "default", name)) == member)
    return [next(found) for _ in range(count)]


async def make(
    ground: Ground,
    resource: ApiResource,
    name: str,
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    above: tuple[ApiResource, Meta] | None = None,
) -> Meta:
    meta: dict[str, object] = {"name": name, "labels": labels or {}}
    if above is not None:
        kind, parent = above
        reference = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": parent.name,
            "uid": parent.uid,
            "controller": True,
        }
        meta["ownerReferences"] = [reference]
    document: dict[str, object] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
    }
    if resource == WEBSITES:
        document["spec"] = {"html": name}
    return (await ground.client.create(resource, document, namespace=namespace, type=HasMeta)).metadata


async def two_shards(ground: Ground) -> None:
    await ground.shard("a")
    await ground.shard("b")


async def until_owners(ground: Ground, expected: dict[str, str], resource: ApiResource = WEBSITES) -> None:
    async def are_there() -> bool:
        return await ground.owners(resource) == expected

    await wait_until(are_there)


async def drains(ground: Ground, resource: ApiResource = WEBSITES) -> dict[str, str]:
    found = await ground.labels(resource)
    return {name: labels[KEYS.drain] for name, labels in found.items() if KEYS.drain in labels}


# ---- Namespace ----------------------------------------------------------------------------------------------------


async def test_under_namespace_all_objects_of_a_namespace_are_together(ground: Ground) -> None:
    await ground.ring(key="Namespace", resources=[{**SITES, "controlledResources": [{"resource": "configmaps"}]},
                                                  {"resource": "secrets"}])  # fmt: skip
    await two_shards(ground)
    sites, secrets, pages = {}, {}, {}
    for number in range(6):
        space = f"team-{number}"
        await ground.namespace(space, {})
        for suffix in ("x", "y"):
            name = f"{space}-{suffix}"
            site = await make(ground, WEBSITES, name, namespace=space)
            await make(ground, CONFIGMAPS, name, namespace=space, above=(WEBSITES, site))
            await make(ground, SECRETS, name, namespace=space)
            sites[name] = secrets[name] = pages[name] = shard_of(f"_{space}_")
    assert len(set(sites.values())) == 2
    async with ground.sharder():
        await until_owners(ground, sites)
        await until_owners(ground, secrets, SECRETS)
        await until_owners(ground, pages, CONFIGMAPS)
        await wait_until(lambda: is_balanced(ground))


async def test_an_edit_of_the_key_moves_what_has_another_place_by_drains(ground: Ground) -> None:
    await ground.ring()
    await two_shards(ground)
    together = shard_of("_default_")
    stays, moves = ("a", "b") if together.startswith("a") else ("b", "a")
    names = [*site_of(stays), *site_of(moves, count=2)]
    for name in names:
        await ground.site(name)
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        await ground.ring(key="Namespace")

        async def asked() -> bool:
            return await drains(ground) == dict.fromkeys(names[1:], together)

        await wait_until(asked)


# ---- Label --------------------------------------------------------------------------------------------------------


async def test_under_label_objects_of_one_value_are_together_and_others_alone(ground: Ground) -> None:
    resources = [{**SITES, "controlledResources": [{"resource": "configmaps"}]}]
    await ground.ring(key="Label", keyLabel="tenant", resources=resources)
    await two_shards(ground)
    expected = {}
    for number in range(4):
        for name in (f"of-{number}-x", f"of-{number}-y"):
            site = await make(ground, WEBSITES, name, labels={"tenant": f"t{number}"})
            await make(ground, CONFIGMAPS, name, labels={"tenant": "other"}, above=(WEBSITES, site))
            expected[name] = shard_of(f"=t{number}")
    pages = dict(expected)
    for name in [*site_of("a"), *site_of("b")]:
        await ground.site(name)
        expected[name] = shard_of(object_key("example.com", "default", name))
    async with ground.sharder():
        await until_owners(ground, expected)
        await until_owners(ground, pages, CONFIGMAPS)
        await wait_until(lambda: is_balanced(ground))
        assert await drains(ground, CONFIGMAPS) == {}


async def test_under_label_an_object_whose_label_changes_is_asked_for(ground: Ground) -> None:
    await ground.ring(key="Label", keyLabel="tenant", auditIntervalSeconds=1)
    await two_shards(ground)
    values = (f"t{n}" for n in range(100))
    of_a = next(value for value in values if AB.owner(f"={value}") == "a")
    of_b = next(value for value in values if AB.owner(f"={value}") == "b")
    await make(ground, WEBSITES, "one", labels={"tenant": of_a})
    async with ground.sharder():
        await until_owners(ground, {"one": "a-00000001"})
        await wait_until(lambda: is_balanced(ground))
        change = MergePatch({"metadata": {"labels": {"tenant": of_b}}})
        await ground.client.patch(WEBSITES, "one", change, namespace="default", type=bytes)

        async def asked() -> bool:
            return await drains(ground) == {"one": "b-00000001"}

        await wait_until(asked)


# ---- Owner --------------------------------------------------------------------------------------------------------


async def tree(ground: Ground, name: str, *, shard: str = "") -> tuple[Meta, Meta, Meta]:
    """A site, its page, and the page's secret."""
    labels = {KEYS.shard: shard} if shard else {}
    site = await make(ground, WEBSITES, name, labels=labels)
    page = await make(ground, CONFIGMAPS, name, labels=labels, above=(WEBSITES, site))
    return site, page, await make(ground, SECRETS, name, labels=labels, above=(CONFIGMAPS, page))


async def test_under_owner_a_whole_tree_goes_to_its_roots_owner(ground: Ground) -> None:
    await ground.ring(key="Owner", resources=[TREE])
    await two_shards(ground)
    names = [*site_of("a", count=3), *site_of("b", count=3)]
    for name in names:
        await tree(ground, name)
    expected = {name: shard_of(object_key("example.com", "default", name)) for name in names}
    async with ground.sharder():
        for resource in (WEBSITES, CONFIGMAPS, SECRETS):
            await until_owners(ground, expected, resource)
        await wait_until(lambda: is_balanced(ground))
        await make(ground, SECRETS, "stranger")
        await asyncio.sleep(1.0)
        assert (await ground.owners(SECRETS))["stranger"] == "", "nobody of the ring controls it"


async def test_under_owner_a_dead_shards_tree_goes_from_its_leaves_to_its_root(ground: Ground) -> None:
    await ground.ring(key="Owner", resources=[TREE])
    a = await ground.shard("a")
    await tree(ground, "one", shard=a.name)
    await ground.shard("b")
    async with ground.sharder():
        await a.release()
        for resource in (WEBSITES, CONFIGMAPS, SECRETS):
            await until_owners(ground, {"one": "b-00000001"}, resource)
    order = [
        write.resource.partition(".")[0]
        for write in ground.plane.writes()
        if write.user == "sharder-1" and write.name == "one" and write.code == 200
    ]
    assert order[-3:] == ["secrets", "configmaps", "websites"]


async def test_under_owner_a_grandchild_left_behind_is_sent_after_its_root(ground: Ground) -> None:
    await ground.ring(key="Owner", resources=[TREE])
    await two_shards(ground)
    name = site_of("b")[0]
    site, page, _ = await tree(ground, name, shard="a-00000001")
    for resource, meta in ((WEBSITES, site), (CONFIGMAPS, page)):
        moved = MergePatch({"metadata": {"labels": {KEYS.shard: "b-00000001"}}})
        await ground.client.patch(resource, meta.name, moved, namespace="default", type=bytes)
    async with ground.sharder():

        async def asked() -> bool:
            return await drains(ground, SECRETS) == {name: "b-00000001"}

        await wait_until(asked)
        assert await drains(ground, CONFIGMAPS) == {}
        await ground.acknowledge(name, resource=SECRETS)
        await wait_until(lambda: is_balanced(ground))


async def test_a_kind_that_is_distributed_and_controlled_has_a_place_of_its_own_only_without_controller(
    ground: Ground,
) -> None:
    resources = [
        {**SITES, "controlledResources": [{"resource": "configmaps"}]},
        {"resource": "configmaps", "controlledResources": [{"resource": "secrets"}]},
    ]
    await ground.ring(key="Owner", resources=resources)
    await two_shards(ground)
    names = [*site_of("a"), *site_of("b")]
    expected = {name: shard_of(object_key("example.com", "default", name)) for name in names}
    for name in names:
        await tree(ground, name)
    alone = [f"alone-{n}" for n in range(4)]
    for name in alone:
        await make(ground, CONFIGMAPS, name)
    own = {name: shard_of(object_key("", "default", name)) for name in alone}
    async with ground.sharder():
        await until_owners(ground, expected)
        await until_owners(ground, expected, SECRETS)
        await until_owners(ground, {**expected, **own}, CONFIGMAPS)


# ---- scopes and names ---------------------------------------------------------------------------------------------


async def test_a_cluster_scoped_core_resource_is_distributed(ground: Ground) -> None:
    await ground.ring(
        resources=[{"resource": "namespaces"}], namespaceSelector={"matchLabels": {"no": "match"}}
    )
    await two_shards(ground)
    await ground.namespace("one", {})
    async with ground.sharder():

        async def all_have_owners() -> bool:
            owners = await ground.owners(NAMESPACES)
            return owners == {name: shard_of(f"__{name}") for name in owners}

        await wait_until(all_have_owners)


async def test_objects_with_generated_names_are_assigned(ground: Ground) -> None:
    await ground.ring()
    await two_shards(ground)
    document = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"generateName": "made-"},
        "spec": {"html": "x"},
    }
    async with ground.sharder():
        for _ in range(5):
            await ground.client.create(WEBSITES, document, namespace="default", type=bytes)

        async def all_have_owners() -> bool:
            owners = await ground.owners()
            expected = {name: shard_of(object_key("example.com", "default", name)) for name in owners}
            return len(owners) == 5 and owners == expected

        await wait_until(all_have_owners)


async def test_a_namespace_that_is_selected_anew_keeps_what_was_not_given_up_yet(ground: Ground) -> None:
    await ground.namespace("team", {"ring": "yes"})
    await ground.ring(namespaceSelector={"matchLabels": {"ring": "yes"}})
    await ground.shard("a")
    for name in ("x", "y"):
        await ground.site(name, namespace="team")
    async with ground.sharder():
        await until_owners(ground, {"x": "a-00000001", "y": "a-00000001"})
        await wait_until(lambda: is_balanced(ground))
        await ground.label_namespace("team", {"ring": "no"})

        async def given_up() -> bool:
            return await drains(ground) == {"x": "", "y": ""}

        await wait_until(given_up)
        gone = MergePatch({"metadata": {"labels": {KEYS.shard: None, KEYS.drain: None}}})
        await ground.client.patch(WEBSITES, "x", gone, namespace="team", type=bytes)
        await asyncio.sleep(0.5)
        assert (await ground.owners())["x"] == "", "it is not the ring's any more"
        await ground.label_namespace("team", {"ring": "yes"})

        async def back() -> bool:
            kept = await drains(ground) == {"y": "a-00000001"}
            return kept and await ground.owners() == {"x": "a-00000001", "y": "a-00000001"}

        await wait_until(back)


# ---- several rings ------------------------------------------------------------------------------------------------

OTHER = RingKeys("other")


async def other_ring(ground: Ground, resources: list[object]) -> None:
    """A second ring over the same objects, and a shard of its own that was there before and never renews."""
    document = {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": "other"},
        "spec": {"leaseNamespace": "default", "resources": resources, "settleSeconds": 0.3},
    }
    now = micro_time(SystemClock().wall())
    meta = Meta(
        name="z-00000001",
        labels={OTHER.ring_label: "other"},
        annotations={OTHER.member: "z", OTHER.protocol: "v1", OTHER.synced: "true"},
    )
    await ground.leases.create(Lease(meta, LeaseSpec("z-00000001", 60, now, now, 0)))
    await ground.client.create(CONTROLLER_RINGS, document, type=bytes)


async def test_an_object_in_two_rings_has_an_owner_in_each_and_rings_come_and_go_alone(
    ground: Ground,
) -> None:
    await ground.ring(resources=[SITES])
    await ground.shard("a")
    await ground.sites(3)
    async with ground.sharder():
        await until_owners(ground, {f"site-{n}": "a-00000001" for n in range(3)})
        await other_ring(ground, [SITES, {"resource": "secrets"}])
        await make(ground, SECRETS, "one")

        async def both() -> bool:
            labels = await ground.labels()
            return all(
                found.get(KEYS.shard) == "a-00000001" and found.get(OTHER.shard) == "z-00000001"
                for found in labels.values()
            )

        await wait_until(both)

        async def the_secret_too() -> bool:
            return (await ground.labels(SECRETS))["one"].get(OTHER.shard) == "z-00000001"

        await wait_until(the_secret_too)
        await ground.client.delete(CONTROLLER_RINGS, RING)

        async def given_up() -> bool:
            return set((await drains(ground)).values()) == {""}

        await wait_until(given_up)
        for name in await drains(ground):
            await ground.acknowledge(name)
        await ground.shards[0].release()

        async def gone() -> bool:
            return not await ground.exists(CONTROLLER_RINGS, RING)

        await wait_until(gone)
        await ground.site("late")

        async def in_the_other() -> bool:
            labels = await ground.labels()
            return all(found.get(OTHER.shard) == "z-00000001" for found in labels.values())

        await wait_until(in_the_other)
        assert all(OTHER.drain not in found for found in (await ground.labels()).values())
