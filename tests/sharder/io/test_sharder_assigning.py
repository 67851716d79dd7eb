"""Objects without a live owner get one: evidence first, conditional, children before parents."""

from __future__ import annotations

from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    WEBSITES,
    SharderEnvironment,
    belonging_to,
    eventually,
    places,
)


async def test_every_object_is_given_to_the_shard_at_its_place(env: SharderEnvironment) -> None:
    await env.ring()
    await env.join("abc")
    await env.sites(40)
    async with env.sharder():
        await eventually(env.owners, places("abc", [f"site-{n}" for n in range(40)]))


async def test_a_new_object_is_assigned_by_one_write(env: SharderEnvironment) -> None:
    await env.ring()
    shard = await env.shard("a")
    async with env.sharder():
        await env.until_balanced()
        await env.site("late")
        await eventually(env.owners, lambda owners: owners["late"] == shard.name)
    writes = [
        (w.name, w.code) for w in env.plane.writes() if w.user == "sharder-1" and "websites" in w.resource
    ]
    assert writes == [("late", 200)]


async def test_objects_of_a_dead_shard_move_only_after_its_lease_was_taken(env: SharderEnvironment) -> None:
    await env.ring()
    a, b = await env.join("ab")
    await env.sites(20)
    async with env.sharder():
        await eventually(env.owners, lambda owners: set(owners.values()) == {a.name, b.name})
        await a.fall_silent()
        await eventually(env.owners, lambda owners: set(owners.values()) == {b.name})
    writes = env.plane.writes()
    taken = next(
        w.seq
        for w in writes
        if w.resource.startswith("leases")
        and w.name == a.name
        and w.object
        and w.object["spec"]["holderIdentity"] == "sharder:sharder-1"
    )
    moved = [
        w.seq
        for w in writes
        if w.resource == "websites.example.com" and (w.labels_before or {}).get(KEYS.shard) == a.name
    ]
    assert moved, "nothing of the dead shard was moved: the test proves nothing"
    assert min(moved) > taken


async def test_children_of_a_dead_shard_move_before_their_parent(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("b")
    dead = await env.shard("a")
    for number in range(8):
        site = await env.site(f"site-{number}", labels={KEYS.shard: dead.name})
        await env.page(site, labels={KEYS.shard: dead.name})
    await dead.fall_silent()
    async with env.sharder():
        for resource in (CONFIGMAPS, WEBSITES):
            await eventually(
                lambda r=resource: env.owners(r),  # type: ignore[misc] # a default binds the loop's value
                {f"site-{n}": "b-00000001" for n in range(8)},
            )
    order = {
        (w.resource, w.name): w.seq for w in env.plane.writes() if w.user == "sharder-1" and w.code == 200
    }
    for number in range(8):
        name = f"site-{number}"
        assert order["configmaps", name] < order["websites.example.com", name]


async def test_an_unlabelled_child_goes_to_its_parents_live_owner(env: SharderEnvironment) -> None:
    """The parent waits to be handed over (its owner does not answer): the child joins it where it is."""
    await env.ring(maxInFlight=1)
    a, b = await env.join("ab")
    strangers = belonging_to("b", "ab", 4)
    for name in strangers:
        await env.page(await env.site(name, labels={KEYS.shard: a.name}))
    async with env.sharder():
        await eventually(lambda: env.owners(CONFIGMAPS), dict.fromkeys(strangers, a.name))
    assert b.name not in (await env.owners()).values()


async def test_objects_with_generated_names_and_in_deletion_are_assigned_too(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    meta = {"generateName": "gen-", "finalizers": ["example.com/keep"]}
    document = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": meta, "spec": {"html": "x"}}
    created = await env.client.create(WEBSITES, document, namespace="default", type=dict)
    name = created["metadata"]["name"]
    await env.client.delete(WEBSITES, name, namespace="default")
    async with env.sharder():
        await eventually(env.owners, lambda owners: owners[name] == "a-00000001")


async def test_what_no_object_of_the_ring_controls_waits_for_no_other(env: SharderEnvironment) -> None:
    """ConfigMaps are everywhere in a cluster: they must neither be held in memory nor keep the ring unbalanced."""
    await env.ring()
    await env.shard("a")
    await env.sites(3)
    await env.make(CONFIGMAPS, "of-somebody-else")
    async with env.sharder():
        await env.until_balanced()
        assert (await env.status())["unassigned"] == 0
    assert (await env.owners(CONFIGMAPS))["of-somebody-else"] == ""
