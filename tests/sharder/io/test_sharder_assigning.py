"""Objects without a live owner get one: evidence first, conditional, children before parents."""

from __future__ import annotations

import asyncio

from kubeio.patch import MergePatch
from ring import HashRing
from ring.key import object_key
from tests.sharder.io.ground import CONFIGMAPS, KEYS, WEBSITES, Ground, is_balanced, wait_until


async def test_every_object_is_given_to_the_shard_at_its_place(ground: Ground) -> None:
    await ground.ring()
    for member in ("a", "b", "c"):
        await ground.shard(member)
    await ground.sites(40)
    ring = HashRing(["a", "b", "c"])
    wanted = {
        f"site-{n}": f"{ring.owner(object_key('example.com', 'default', f'site-{n}'))}-00000001"
        for n in range(40)
    }
    async with ground.sharder():

        async def all_placed() -> bool:
            return await ground.owners() == wanted

        await wait_until(all_placed)


async def test_a_new_object_is_assigned_by_one_write(ground: Ground) -> None:
    await ground.ring()
    shard = await ground.shard("a")
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        await ground.site("late")

        async def has_owner() -> bool:
            return (await ground.owners())["late"] == shard.name

        await wait_until(has_owner)
    writes = [
        w for w in ground.plane.writes() if w.user == "sharder-1" and w.resource == "websites.example.com"
    ]
    assert [(w.name, w.code) for w in writes] == [("late", 200)]


async def test_objects_of_a_dead_shard_move_only_after_its_lease_was_taken(ground: Ground) -> None:
    await ground.ring()
    a, b = await ground.shard("a"), await ground.shard("b")
    await ground.sites(20)
    async with ground.sharder():

        async def all_owned() -> bool:
            return set((await ground.owners()).values()) == {a.name, b.name}

        await wait_until(all_owned)
        await a.fall_silent()

        async def all_with_b() -> bool:
            return set((await ground.owners()).values()) == {b.name}

        await wait_until(all_with_b)
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

        async def all_moved() -> bool:
            sites, pages = await ground.owners(), await ground.owners(CONFIGMAPS)
            return {sites[n] for n in sites} | {pages[n] for n in sites} == {"b-00000001"}

        await wait_until(all_moved)
    order = {
        (w.resource, w.name): w.seq for w in ground.plane.writes() if w.user == "sharder-1" and w.code == 200
    }
    for number in range(8):
        name = f"site-{number}"
        assert order["configmaps", name] < order["websites.example.com", name]


async def test_nothing_is_written_for_a_shard_whose_lease_evidence_does_not_show_held(ground: Ground) -> None:
    await ground.ring()
    shard = await ground.shard("a")
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        lease = await shard.lease()
        await shard.fall_silent()
        lease = await shard.lease()
        lease.spec.holder_identity = "somebody-else"
        await ground.leases.swap(lease)
        await ground.site("new")
        await asyncio.sleep(1.0)
        assert (await ground.owners())["new"] == ""


async def test_a_write_that_meets_another_version_is_decided_anew(ground: Ground) -> None:
    """Objects change all the time while they are assigned: each gets its owner all the same."""
    await ground.ring()
    await ground.sites(30)

    async def disturb() -> None:
        for round_ in range(15):
            for number in range(30):
                patch = MergePatch({"spec": {"html": f"round {round_}"}})
                await ground.client.patch(WEBSITES, f"site-{number}", patch, namespace="default", type=bytes)

    async with ground.sharder(), asyncio.TaskGroup() as tasks:
        tasks.create_task(disturb())
        await ground.shard("a")

        async def all_owned() -> bool:
            return set((await ground.owners()).values()) == {"a-00000001"}

        await wait_until(all_owned)


async def test_an_unlabelled_child_goes_to_its_parents_live_owner(ground: Ground) -> None:
    """The parent waits to be handed over (its owner does not answer): the child joins it where it is."""
    await ground.ring(maxInFlight=1)
    a, b = await ground.shard("a"), await ground.shard("b")
    ring = HashRing(["a", "b"])
    strangers = [
        n for n in range(40) if ring.owner(object_key("example.com", "default", f"site-{n}")) == "b"
    ][:4]
    for number in strangers:
        site = await ground.site(f"site-{number}", labels={KEYS.shard: a.name})
        await ground.page(site)
    async with ground.sharder():

        async def children_joined() -> bool:
            pages = await ground.owners(CONFIGMAPS)
            return {pages[f"site-{n}"] for n in strangers} == {a.name}

        await wait_until(children_joined)
    assert b.name not in (await ground.owners()).values()


async def test_below_min_members_new_objects_wait(ground: Ground) -> None:
    await ground.ring(minMembers=2)
    await ground.shard("a")
    await ground.sites(3)
    async with ground.sharder():

        async def says_so() -> bool:
            return (await ground.condition("Ready")).get("status") == "False"

        await wait_until(says_so)
        await asyncio.sleep(1.0)
        assert set((await ground.owners()).values()) == {""}
        await ground.shard("b")

        async def all_owned() -> bool:
            return "" not in (await ground.owners()).values()

        await wait_until(all_owned)


async def test_objects_with_generated_names_and_in_deletion_are_assigned_too(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a")
    document = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"generateName": "gen-", "finalizers": ["example.com/keep"]},
        "spec": {"html": "x"},
    }
    created = await ground.client.create(WEBSITES, document, namespace="default", type=dict)
    name = created["metadata"]["name"]
    await ground.client.delete(WEBSITES, name, namespace="default")
    async with ground.sharder():

        async def has_owner() -> bool:
            return (await ground.owners())[name] == "a-00000001"

        await wait_until(has_owner)


async def test_what_no_object_of_the_ring_controls_waits_for_nobody(ground: Ground) -> None:
    """ConfigMaps are everywhere in a cluster: they must neither be held in memory nor keep the ring unbalanced."""
    await ground.ring()
    await ground.shard("a")
    await ground.sites(3)
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-somebody-else"}}
    await ground.client.create(CONFIGMAPS, document, namespace="default", type=bytes)
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
        assert (await ground.status())["unassigned"] == 0
    assert (await ground.owners(CONFIGMAPS))["of-somebody-else"] == ""
