"""Which shard gets what: every key of `spec.key`, kinds of every scope, several rings and resources (protocol, 3)."""

from __future__ import annotations

import asyncio

from kubeio.clock import SystemClock, micro_time
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import NAMESPACES, ApiResource
from ring import HashRing
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    RING,
    SECRETS,
    SITES,
    TREE,
    WEBSITES,
    SharderEnvironment,
    belonging_to,
    eventually,
    places,
)

AB = HashRing(["a", "b"])


def shard_of(key: str) -> str:
    return f"{AB.owner(key)}-00000001"


async def until_owners(env: SharderEnvironment, expected: dict[str, str], *resources: ApiResource) -> None:
    for resource in resources or (WEBSITES,):
        await eventually(lambda r=resource: env.owners(r), expected)  # type: ignore[misc] # a default binds the loop's value


# ---- Namespace ----------------------------------------------------------------------------------------------------


async def test_an_edit_of_the_key_moves_what_has_another_place_by_drains(env: SharderEnvironment) -> None:
    await env.ring()
    await env.join("ab")
    together = shard_of("_default_")
    stays, moves = ("a", "b") if together.startswith("a") else ("b", "a")
    names = [*belonging_to(stays, "ab", 1), *belonging_to(moves, "ab", 2)]
    for name in names:
        await env.site(name)
    async with env.sharder():
        await env.until_balanced()
        await env.ring(key="Namespace")
        await eventually(env.drains, dict.fromkeys(names[1:], together))


# ---- Label --------------------------------------------------------------------------------------------------------


async def test_under_label_objects_of_one_value_are_together_and_others_alone(
    env: SharderEnvironment,
) -> None:
    await env.ring(key="Label", keyLabel="tenant")
    await env.join("ab")
    expected = {}
    for number in range(4):
        for name in (f"of-{number}-x", f"of-{number}-y"):
            site = await env.make(WEBSITES, name, labels={"tenant": f"t{number}"})
            await env.make(CONFIGMAPS, name, labels={"tenant": "other"}, above=(WEBSITES, site))
            expected[name] = shard_of(f"=t{number}")
    pages = dict(expected)
    await env.sites(4)
    expected |= places("ab", [f"site-{n}" for n in range(4)])
    async with env.sharder():
        await until_owners(env, expected)
        await until_owners(env, pages, CONFIGMAPS)
        await env.until_balanced()
        assert await env.drains(CONFIGMAPS) == {}


async def test_under_label_an_object_whose_label_changes_is_asked_for(env: SharderEnvironment) -> None:
    await env.ring(key="Label", keyLabel="tenant", auditIntervalSeconds=1)
    await env.join("ab")
    values = (f"t{n}" for n in range(100))
    of_a = next(value for value in values if AB.owner(f"={value}") == "a")
    of_b = next(value for value in values if AB.owner(f"={value}") == "b")
    await env.make(WEBSITES, "one", labels={"tenant": of_a})
    async with env.sharder():
        await until_owners(env, {"one": "a-00000001"})
        await env.until_balanced()
        await env.patch(WEBSITES, "one", {"metadata": {"labels": {"tenant": of_b}}})
        await eventually(env.drains, {"one": "b-00000001"})


# ---- Owner --------------------------------------------------------------------------------------------------------


async def tree(env: SharderEnvironment, name: str, *, shard: str = "") -> None:
    """A site, its page, and the page's secret."""
    labels = {KEYS.shard: shard} if shard else {}
    site = await env.make(WEBSITES, name, labels=labels)
    page = await env.make(CONFIGMAPS, name, labels=labels, above=(WEBSITES, site))
    await env.make(SECRETS, name, labels=labels, above=(CONFIGMAPS, page))


async def test_under_owner_a_whole_tree_goes_to_its_roots_owner(env: SharderEnvironment) -> None:
    await env.ring(key="Owner", resources=[TREE])
    await env.join("ab")
    expected = places("ab", [f"site-{n}" for n in range(6)])
    assert len(set(expected.values())) == 2
    for name in expected:
        await tree(env, name)
    async with env.sharder():
        await until_owners(env, expected, WEBSITES, CONFIGMAPS, SECRETS)
        await env.until_balanced()
        await env.make(SECRETS, "stranger")
        await asyncio.sleep(1.0)
        assert (await env.owners(SECRETS))["stranger"] == "", "nobody of the ring controls it"


async def test_under_owner_a_dead_shards_tree_goes_from_its_leaves_to_its_root(
    env: SharderEnvironment,
) -> None:
    await env.ring(key="Owner", resources=[TREE])
    a = await env.shard("a")
    await tree(env, "one", shard=a.name)
    await env.shard("b")
    async with env.sharder():
        await a.release()
        await until_owners(env, {"one": "b-00000001"}, WEBSITES, CONFIGMAPS, SECRETS)
    order = [
        write.resource.partition(".")[0]
        for write in env.plane.writes()
        if write.user == "sharder-1" and write.name == "one" and write.code == 200
    ]
    assert order[-3:] == ["secrets", "configmaps", "websites"]


async def test_under_owner_a_grandchild_left_behind_is_sent_after_its_root(env: SharderEnvironment) -> None:
    await env.ring(key="Owner", resources=[TREE])
    await env.join("ab")
    (name,) = belonging_to("b", "ab", 1)
    await tree(env, name, shard="a-00000001")
    for resource in (WEBSITES, CONFIGMAPS):
        await env.patch(resource, name, {"metadata": {"labels": {KEYS.shard: "b-00000001"}}})
    async with env.sharder():
        await eventually(lambda: env.drains(SECRETS), {name: "b-00000001"})
        assert await env.drains(CONFIGMAPS) == {}
        await env.acknowledge(name, resource=SECRETS)
        await env.until_balanced()


# ---- scopes and names ---------------------------------------------------------------------------------------------


async def test_a_cluster_scoped_core_resource_is_distributed(env: SharderEnvironment) -> None:
    no_namespace = {"matchLabels": {"no": "match"}}
    await env.ring(resources=[{"resource": "namespaces"}], namespaceSelector=no_namespace)
    await env.join("ab")
    await env.namespace("one", {})
    async with env.sharder():
        await eventually(
            lambda: env.owners(NAMESPACES),
            lambda owners: owners == {name: shard_of(f"__{name}") for name in owners},
        )


async def test_a_namespace_that_is_selected_anew_keeps_what_was_not_given_up_yet(
    env: SharderEnvironment,
) -> None:
    await env.namespace("team", {"ring": "yes"})
    await env.ring(namespaceSelector={"matchLabels": {"ring": "yes"}})
    await env.shard("a")
    for name in ("x", "y"):
        await env.site(name, namespace="team")
    async with env.sharder():
        await until_owners(env, {"x": "a-00000001", "y": "a-00000001"})
        await env.until_balanced()
        await env.label_namespace("team", {"ring": "no"})
        await eventually(env.drains, {"x": "", "y": ""})
        gone = {"metadata": {"labels": {KEYS.shard: None, KEYS.drain: None}}}
        await env.patch(WEBSITES, "x", gone, namespace="team")
        await asyncio.sleep(0.5)
        assert (await env.owners())["x"] == "", "it is not the ring's any more"
        await env.label_namespace("team", {"ring": "yes"})
        await until_owners(env, {"x": "a-00000001", "y": "a-00000001"})
        await eventually(env.drains, {"y": "a-00000001"})


# ---- several rings ------------------------------------------------------------------------------------------------

OTHER = RingKeys("other")


async def other_ring(env: SharderEnvironment, resources: list[object]) -> None:
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
    await env.leases.create(Lease(meta, LeaseSpec("z-00000001", 60, now, now, 0)))
    await env.client.create(CONTROLLER_RINGS, document, type=bytes)


async def test_an_object_in_two_rings_has_an_owner_in_each_and_rings_come_and_go_alone(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=[SITES])
    await env.shard("a")
    await env.sites(3)
    async with env.sharder():
        await until_owners(env, {f"site-{n}": "a-00000001" for n in range(3)})
        await other_ring(env, [SITES, {"resource": "secrets"}])
        await env.make(SECRETS, "one")
        await eventually(
            env.labels,
            lambda labels: all(
                found.get(KEYS.shard) == "a-00000001" and found.get(OTHER.shard) == "z-00000001"
                for found in labels.values()
            ),
        )
        await eventually(
            lambda: env.labels(SECRETS), lambda labels: labels["one"].get(OTHER.shard) == "z-00000001"
        )
        await env.client.delete(CONTROLLER_RINGS, RING)
        await eventually(env.drains, lambda drains: set(drains.values()) == {""})
        await env.acknowledge_all()
        await env.shards[0].release()
        await env.until_ring_is_gone()
        await env.site("late")
        await eventually(
            env.labels,
            lambda labels: all(found.get(OTHER.shard) == "z-00000001" for found in labels.values()),
        )
        assert all(OTHER.drain not in found for found in (await env.labels()).values())
