"""Runs of a controller on a control plane in memory: what arrives and what is asked for, between two of them."""

from __future__ import annotations

import asyncio
import gc
import itertools

import pytest

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.patch import MergePatch
from proxy.kinds import TreeKind
from proxy.restart import Cause
from proxy.trees import TreeState
from tests.proxy.runs_bench import (
    BEFORE,
    BELOW_ROOTS,
    CHILDREN,
    IN_FUTURE,
    KEYS,
    OTHER,
    ROOTS,
    SHARD,
    RunsBench,
)


async def test_a_tree_is_visible_when_the_controller_starts(bench: RunsBench) -> None:
    await bench.put(ROOTS, "blog", visible=BEFORE)
    await bench.put(CHILDREN, "page", of="blog", visible=BEFORE)
    async with bench.running():
        assert bench.child.starts == [{"configmaps": {"blog"}, "secrets": {"page"}}]


async def test_a_start_waits_for_what_arrives_and_not_for_what_changes(bench: RunsBench) -> None:
    await bench.put(ROOTS, "blog", visible=BEFORE)

    async def change() -> None:
        for number in itertools.count():
            patch = MergePatch({"data": {"number": str(number)}})
            await bench.client.patch(ROOTS, "blog", patch, namespace=bench.namespace, type=bytes)

    changing = asyncio.create_task(change())
    began_at = asyncio.get_running_loop().time()
    async with bench.running():
        took_s = asyncio.get_running_loop().time() - began_at
        changing.cancel()
    assert took_s < 4  # of 5, at which a start waits for nothing any more


async def test_a_new_root_becomes_visible_at_once_and_restarts_nothing(bench: RunsBench) -> None:
    async with bench.running():
        await bench.put(ROOTS, "blog")
        await bench.wait_visible("blog")
        await asyncio.sleep(1.5)
        assert len(bench.child.starts) == 1


@pytest.mark.parametrize("visible", [BEFORE, ""])
async def test_what_arrives_with_a_history_becomes_visible_between_two_runs(
    bench: RunsBench, visible: str
) -> None:
    async with bench.running():
        await bench.put(ROOTS, "blog", visible=visible)
        await bench.put(CHILDREN, "page", of="blog", visible=visible)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert bench.child.stops == 1
        assert bench.child.starts == [
            {"configmaps": set(), "secrets": set()},
            {"configmaps": {"blog"}, "secrets": {"page"}},
        ]


@pytest.mark.parametrize("near", [20, 0], ids=["one-namespace", "all-namespaces"])
@pytest.mark.parametrize("shard", [OTHER, None])
async def test_a_tree_that_has_not_arrived_whole_is_hidden_until_it_has(
    bench: RunsBench, shard: str | None, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.informers._NEAR", near)
    await bench.put(ROOTS, "blog", visible=BEFORE)
    await bench.put(CHILDREN, "here", of="blog", visible=BEFORE)
    await bench.put(CHILDREN, "elsewhere", of="blog", visible=BEFORE)
    await bench.label(CHILDREN, "elsewhere", shard=shard)
    await bench.put(ROOTS, "whole", visible=BEFORE)
    async with bench.running():
        assert bench.child.starts == [{"configmaps": {"whole"}, "secrets": set()}]
        await bench.label(CHILDREN, "elsewhere", shard=SHARD)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert bench.child.starts[1] == {"configmaps": {"blog", "whole"}, "secrets": {"here", "elsewhere"}}


async def test_a_tree_whose_leaf_comes_late_becomes_visible_with_it(bench: RunsBench) -> None:
    bench.kinds = (TreeKind(ROOTS, is_main=True), TreeKind(CHILDREN, is_leaf=True, above=BELOW_ROOTS))
    await bench.put(ROOTS, "blog", visible=BEFORE)
    await bench.put(CHILDREN, "page", of="blog", shard=OTHER)
    async with bench.running():
        assert bench.child.starts[0]["configmaps"] == set()
        await bench.label(CHILDREN, "page", shard=SHARD)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert bench.child.starts[1]["configmaps"] == {"blog"}


async def test_what_was_there_before_the_ring_has_a_history(bench: RunsBench) -> None:
    bench.since = IN_FUTURE
    async with bench.running():
        await bench.put(ROOTS, "blog")
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert bench.child.starts[1]["configmaps"] == {"blog"}


async def test_a_tree_that_is_asked_for_is_given_up_between_two_runs(bench: RunsBench) -> None:
    await bench.lease(OTHER)
    await bench.put(ROOTS, "blog", visible=SHARD)
    await bench.put(CHILDREN, "page", of="blog", visible=SHARD)
    async with bench.running():
        await bench.label(ROOTS, "blog", drain=OTHER)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        for resource, name in ((ROOTS, "blog"), (CHILDREN, "page")):
            assert await bench.labels(resource, name) == {KEYS.shard: OTHER, KEYS.visible: ""}


async def test_no_write_passes_to_a_tree_that_was_given_up_in_part(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    await bench.lease(OTHER)
    for root in ("torn", "kept"):
        await bench.put(ROOTS, root, visible=SHARD, drain=OTHER)
        await bench.put(CHILDREN, f"{root}-child", of=root, visible=SHARD)
    uids = {root: (await bench.meta(ROOTS, root)).uid for root in ("torn", "kept")}
    for resource, name in (("configmaps", "torn"), ("secrets", "kept-child")):
        await new_plane.faults.add(Fault(what="error", verb="patch", resource=resource, name=name, code=500))
    async with bench.running():
        assert (await bench.labels(CHILDREN, "torn-child"))[KEYS.shard] == OTHER
        assert bench.child.starts[0]["configmaps"] == {"torn", "kept"}
        assert bench.gate.trees is not None
        states = {root: bench.gate.trees.state(uid) for root, uid in uids.items()}
        assert states == {"torn": TreeState.HIDDEN, "kept": TreeState.VISIBLE}


async def test_a_part_of_a_tree_waits_until_its_root_is_asked_for_as_well(bench: RunsBench) -> None:
    await bench.lease(OTHER)
    await bench.put(ROOTS, "blog", visible=SHARD)
    await bench.put(CHILDREN, "page", of="blog", visible=SHARD)
    async with bench.running():
        await bench.label(CHILDREN, "page", drain=OTHER)
        await asyncio.sleep(2)
        assert len(bench.child.starts) == 1
        await bench.label(ROOTS, "blog", drain=OTHER)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        for resource, name in ((ROOTS, "blog"), (CHILDREN, "page")):
            assert (await bench.labels(resource, name))[KEYS.shard] == OTHER


async def test_without_evidence_of_the_next_owner_a_tree_is_given_up_to_nobody(bench: RunsBench) -> None:
    await bench.put(ROOTS, "blog", visible=SHARD)
    async with bench.running():
        await bench.label(ROOTS, "blog", drain=OTHER)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert await bench.labels(ROOTS, "blog") == {KEYS.visible: ""}


async def test_what_may_stay_after_all_stays_visible(bench: RunsBench) -> None:
    await bench.put(ROOTS, "blog", visible=SHARD)
    async with bench.running():
        await bench.label(ROOTS, "blog", drain=SHARD)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert await bench.labels(ROOTS, "blog") == {KEYS.shard: SHARD, KEYS.visible: SHARD}


async def test_many_changes_take_one_restart(bench: RunsBench) -> None:
    await bench.lease(OTHER)
    for number in range(20):
        await bench.put(ROOTS, f"blog-{number}", visible=SHARD)
    async with bench.running():
        for number in range(20):
            await bench.label(ROOTS, f"blog-{number}", drain=OTHER)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        await asyncio.sleep(1)
        assert len(bench.child.starts) == 2
        assert bench.child.starts[1]["configmaps"] == set()


async def test_a_run_is_no_longer_for_the_calm_before_it(bench: RunsBench) -> None:
    async with bench.running(calm_s=2.0):
        began = asyncio.get_running_loop().time()
        await bench.put(ROOTS, "blog", visible=BEFORE)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert asyncio.get_running_loop().time() - began < 10  # and not 10 times the calm


async def test_a_controller_that_ends_by_itself_is_started_again(bench: RunsBench) -> None:
    async with bench.running():
        assert bench.runs.why_down is None
        bench.child.crash(3)
        await bench.wait_for(lambda: bench.runs.why_down == "it ended by itself with 3")
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        await bench.wait_for(lambda: bench.restarts == [Cause.EXIT])
        await bench.lease(OTHER)
        await bench.put(ROOTS, "blog", visible=SHARD, drain=OTHER)
        await bench.wait_for(lambda: len(bench.child.starts) == 3)
        await bench.wait_for(lambda: bench.restarts == [Cause.EXIT, Cause.HANDOFF])


async def test_a_run_leaves_no_trees_behind(bench: RunsBench) -> None:
    """They hang in cycles, and a proxy makes too little garbage for a full collection: 20 MB per restart stayed."""
    async with bench.running():
        gc.disable()
        try:
            for number in range(2, 5):
                bench.child.crash(3)
                await bench.wait_for(lambda: len(bench.child.starts) == number)  # noqa: B023 - awaited here
            assert [each() is not None for each in bench.made] == [False, False, False, True]
        finally:
            gc.enable()


async def test_a_shard_that_leaves_gives_up_what_it_is_asked_for_without_its_controller(
    bench: RunsBench,
) -> None:
    await bench.lease(OTHER)
    for name in ("first", "second"):
        await bench.put(ROOTS, name, visible=SHARD)
        await bench.put(CHILDREN, name, of=name, visible=SHARD)
    async with bench.running():
        bench.stopping.set()
        await bench.wait_for(lambda: bench.child.stops == 1)
        for name in ("first", "second"):  # one after the other: none waits for a restart that will not come
            await bench.label(ROOTS, name, drain=OTHER)
            async with asyncio.timeout(5):
                while (await bench.labels(CHILDREN, name))[KEYS.shard] == SHARD:  # noqa: ASYNC110 - it happens on a server
                    await asyncio.sleep(0.02)
        assert len(bench.child.starts) == 1
    assert await bench.labels(ROOTS, "second") == {KEYS.shard: OTHER, KEYS.visible: ""}


async def test_writes_under_way_are_waited_for_before_anything_is_given_up(bench: RunsBench) -> None:
    await bench.lease(OTHER)
    await bench.put(ROOTS, "blog", visible=SHARD)
    async with bench.running():
        bench.gate.begin("a write")
        await bench.label(ROOTS, "blog", drain=OTHER)
        await bench.wait_for(lambda: bench.child.stops == 1)
        await asyncio.sleep(0.5)
        assert (await bench.labels(ROOTS, "blog"))[KEYS.shard] == SHARD
        bench.gate.end("a write", is_answered=True)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert (await bench.labels(ROOTS, "blog"))[KEYS.shard] == OTHER


async def test_what_a_policy_keeps_hidden_does_not_restart_the_controller_again_and_again(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    await bench.put(ROOTS, "blog", visible=BEFORE)
    await new_plane.faults.add(Fault(what="error", verb="patch", resource="configmaps", code=422))
    async with bench.running():
        await asyncio.sleep(4)
        assert bench.child.starts == [{"configmaps": set(), "secrets": set()}]
