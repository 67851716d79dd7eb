"""Objects without a live owner get one: evidence first, conditional, children before parents."""

from __future__ import annotations

from tests.sharder.io.ground import CONFIGMAPS, KEYS, WEBSITES, Ground, belonging_to, eventually, places


async def test_every_object_is_given_to_the_shard_at_its_place(ground: Ground) -> None:
    await ground.ring()
    await ground.join("abc")
    await ground.sites(40)
    async with ground.sharder():
        await eventually(ground.owners, places("abc", [f"site-{n}" for n in range(40)]))


async def test_a_new_object_is_assigned_by_one_write(ground: Ground) -> None:
    await ground.ring()
    shard = await ground.shard("a")
    async with ground.sharder():
        await ground.until_balanced()
        await ground.site("late")
        await eventually(ground.owners, lambda owners: owners["late"] == shard.name)
    writes = [
        (w.name, w.code) for w in ground.plane.writes() if w.user == "sharder-1" and "websites" in w.resource
    ]
    assert writes == [("late", 200)]


async def test_objects_of_a_dead_shard_move_only_after_its_lease_was_taken(ground: Ground) -> None:
    await ground.ring()
    a, b = await ground.join("ab")
    await ground.sites(20)
    async with ground.sharder():
        await eventually(ground.owners, lambda owners: set(owners.values()) == {a.name, b.name})
        await a.fall_silent()
        await eventually(ground.owners, lambda owners: set(owners.values()) == {b.name})
    writes = ground.plane.writes()
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


async def test_children_of_a_dead_shard_move_before_their_parent(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("b")
    dead = await ground.shard("a")
    for number in range(8):
        site = await ground.site(f"site-{number}", labels={KEYS.shard: dead.name})
        await ground.page(site, labels={KEYS.shard: dead.name})
    await dead.fall_silent()
    async with ground.sharder():
        for resource in (CONFIGMAPS, WEBSITES):
            await eventually(
                lambda r=resource: ground.owners(r),  # type: ignore[misc] # a default binds the loop's value
                {f"site-{n}": "b-00000001" for n in range(8)},
            )
    order = {
        (w.resource, w.name): w.seq for w in ground.plane.writes() if w.user == "sharder-1" and w.code == 200
    }
    for number in range(8):
        name = f"site-{number}"
        assert order["configmaps", name] < order["websites.example.com", name]


async def test_an_unlabelled_child_goes_to_its_parents_live_owner(ground: Ground) -> None:
    """The parent waits to be handed over (its owner does not answer): the child joins it where it is."""
    await ground.ring(maxInFlight=1)
    a, b = await ground.join("ab")
    strangers = belonging_to("b", "ab", 4)
    for name in strangers:
        await ground.page(await ground.site(name, labels={KEYS.shard: a.name}))
    async with ground.sharder():
        await eventually(lambda: ground.owners(CONFIGMAPS), dict.fromkeys(strangers, a.name))
    assert b.name not in (await ground.owners()).values()


async def test_objects_with_generated_names_and_in_deletion_are_assigned_too(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    meta = {"generateName": "gen-", "finalizers": ["example.com/keep"]}
    document = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": meta, "spec": {"html": "x"}}
    created = await ground.client.create(WEBSITES, document, namespace="default", type=dict)
    name = created["metadata"]["name"]
    await ground.client.delete(WEBSITES, name, namespace="default")
    async with ground.sharder():
        await eventually(ground.owners, lambda owners: owners[name] == "a-00000001")


async def test_what_no_object_of_the_ring_controls_waits_for_no_other(ground: Ground) -> None:
    """ConfigMaps are everywhere in a cluster: they must neither be held in memory nor keep the ring unbalanced."""
    await ground.ring()
    await ground.shard("a")
    await ground.sites(3)
    await ground.make(CONFIGMAPS, "of-somebody-else")
    async with ground.sharder():
        await ground.until_balanced()
        assert (await ground.status())["unassigned"] == 0
    assert (await ground.owners(CONFIGMAPS))["of-somebody-else"] == ""
