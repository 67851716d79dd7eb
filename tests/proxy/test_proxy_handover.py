"""Which trees the next run of the controller sees: whole ones, whatever arrives, fails or stays amid a handover."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.models import OwnerReference
from kubeio.patch import MergePatch
from proxy.trees import TreeState
from tests.proxy.runs_bench import BEFORE, CHILDREN, KEYS, OTHER, ROOTS, SHARD, RunsBench


async def state(bench: RunsBench, root: str) -> TreeState:
    assert bench.gate.trees is not None
    return bench.gate.trees.state((await bench.meta(ROOTS, root)).uid)


async def test_a_child_that_arrives_amid_the_handover_keeps_its_root_hidden(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    await bench.lease(OTHER)
    await bench.put(ROOTS, "slow", visible=SHARD, drain=OTHER)
    await bench.put(ROOTS, "blog", visible=BEFORE)
    await bench.put(CHILDREN, "page", of="blog", visible=BEFORE, shard=OTHER)
    fault = await new_plane.faults.add(
        Fault(what="latency", verb="patch", resource="configmaps", name="slow", delay_s=1.0, count=1)
    )

    async def arrive() -> None:
        while await new_plane.faults.hits(fault) == 0 and await new_plane.faults.active():  # noqa: ASYNC110 - a server's
            await asyncio.sleep(0.02)
        await bench.label(CHILDREN, "page", shard=SHARD)

    arriving = asyncio.create_task(arrive())
    async with bench.running():
        assert arriving.done()
        assert bench.child.starts[0] == {"configmaps": set(), "secrets": set()}
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert bench.child.starts[1] == {"configmaps": {"blog"}, "secrets": {"page"}}


async def test_what_controls_a_child_that_could_not_be_shown_stays_hidden(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    for root in ("blog", "shop"):
        await bench.put(ROOTS, root, visible=BEFORE)
        await bench.put(CHILDREN, f"{root}-page", of=root, visible=BEFORE)
    await new_plane.faults.add(
        Fault(what="error", verb="patch", resource="secrets", name="blog-page", code=500, count=1)
    )
    async with bench.running():
        assert bench.child.starts[0] == {"configmaps": {"shop"}, "secrets": {"shop-page"}}
        assert await state(bench, "blog") is TreeState.HIDDEN


async def test_a_visible_tree_is_closed_while_a_child_of_it_cannot_be_shown(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    await bench.put(ROOTS, "blog", visible=SHARD)
    await bench.put(CHILDREN, "page", of="blog", visible=BEFORE)
    await new_plane.faults.add(
        Fault(what="error", verb="patch", resource="secrets", name="page", code=500, count=1)
    )
    async with bench.running():
        assert bench.child.starts[0] == {"configmaps": {"blog"}, "secrets": set()}
        assert await state(bench, "blog") is TreeState.HIDDEN


async def test_a_visible_tree_is_closed_while_a_part_of_it_is_elsewhere(bench: RunsBench) -> None:
    await bench.put(ROOTS, "blog", visible=SHARD)
    await bench.put(CHILDREN, "here", of="blog", visible=BEFORE)
    await bench.put(CHILDREN, "elsewhere", of="blog", visible=BEFORE, shard=OTHER)
    async with bench.running():
        assert bench.child.starts[0] == {"configmaps": {"blog"}, "secrets": set()}
        assert await state(bench, "blog") is TreeState.HIDDEN


async def test_a_child_that_is_gone_hides_no_root(bench: RunsBench, new_plane: EmbeddedPlane) -> None:
    await bench.put(ROOTS, "blog", visible=BEFORE)
    await bench.put(CHILDREN, "page", of="blog", visible=BEFORE)
    await new_plane.faults.add(
        Fault(what="error", verb="patch", resource="secrets", name="page", code=404, count=1)
    )
    async with bench.running():
        assert bench.child.starts[0]["configmaps"] == {"blog"}


async def test_a_tree_that_may_stay_is_closed_while_a_part_of_it_is_elsewhere(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    """Its child has gone, the root has not, and then the ring changes."""
    await bench.lease(OTHER)
    await bench.put(ROOTS, "blog", visible=SHARD, drain=OTHER)
    await bench.put(CHILDREN, "page", of="blog", visible=SHARD)
    await new_plane.faults.add(
        Fault(what="error", verb="patch", resource="configmaps", name="blog", code=500, count=1)
    )
    async with bench.running():
        assert await state(bench, "blog") is TreeState.HIDDEN
        await bench.label(ROOTS, "blog", drain=SHARD)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert (await bench.labels(CHILDREN, "page"))[KEYS.shard] == OTHER
        assert KEYS.drain not in await bench.labels(ROOTS, "blog")
        assert await state(bench, "blog") is TreeState.HIDDEN


async def test_a_tree_of_which_a_part_is_asked_for_is_hidden_until_it_is_whole(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    await bench.lease(OTHER)
    await bench.put(ROOTS, "blog", visible=BEFORE)
    await bench.put(CHILDREN, "page", of="blog", visible=BEFORE, drain=OTHER)
    await new_plane.faults.add(Fault(what="error", verb="patch", resource="secrets", code=422))
    async with bench.running():
        await asyncio.sleep(2)
        assert bench.child.starts == [{"configmaps": set(), "secrets": set()}]
        await new_plane.faults.clear()
        await bench.label(CHILDREN, "page", drain=SHARD)
        await bench.wait_for(lambda: len(bench.child.starts) >= 2)
        await bench.wait_for(lambda: bench.child.starts[-1] == {"configmaps": {"blog"}, "secrets": {"page"}})


async def test_a_new_root_that_could_not_be_shown_is_shown_after_a_while(
    bench: RunsBench, new_plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.restart._NEW_AGAIN_S", 1.0)
    fault = Fault(what="error", verb="patch", resource="configmaps", name="blog", code=500, count=1)
    async with bench.running():
        await new_plane.faults.add(fault)
        await bench.put(ROOTS, "blog")
        await bench.wait_visible("blog")
        assert len(bench.child.starts) == 1


@pytest.mark.parametrize("root", [OTHER, BEFORE, None])
async def test_a_child_comes_not_before_its_root(bench: RunsBench, root: str | None) -> None:
    await bench.put(ROOTS, "blog", visible=BEFORE)
    await bench.put(CHILDREN, "page", of="blog", visible=BEFORE)
    await bench.label(ROOTS, "blog", shard=root)
    async with bench.running():
        assert bench.child.starts[0] == {"configmaps": set(), "secrets": set()}
        await bench.label(ROOTS, "blog", shard=SHARD)
        await bench.wait_for(lambda: len(bench.child.starts) == 2)
        assert bench.child.starts[1] == {"configmaps": {"blog"}, "secrets": {"page"}}


async def test_a_child_whose_root_is_gone_becomes_visible(bench: RunsBench) -> None:
    """Its controller finalizes it. Its siblings may be anywhere."""
    await bench.put(ROOTS, "other", visible=BEFORE)
    gone = OwnerReference("v1", "ConfigMap", "gone", "00000000-0000-0000-0000-000000000000", controller=True)
    for name, shard in (("page", SHARD), ("sibling", OTHER)):
        await bench.put(CHILDREN, name, of="other", visible=BEFORE, shard=shard)
        change = {
            "metadata": {"ownerReferences": [msgspec.to_builtins(gone)], "finalizers": ["example.com/page"]}
        }
        await bench.client.patch(CHILDREN, name, MergePatch(change), namespace=bench.namespace, type=bytes)
    async with bench.running():
        assert bench.child.starts[0]["secrets"] == {"page"}


async def test_an_end_does_not_wait_for_lists_that_never_come(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    await new_plane.faults.add(Fault(what="error", resource="secrets", code=500))
    task = bench.begin()
    await asyncio.sleep(0.5)
    await end(bench, task)
    assert bench.child.starts == []


async def test_an_end_does_not_wait_for_a_controller_that_may_not_start_yet(bench: RunsBench) -> None:
    bench.child.may_start.clear()
    task = bench.begin()
    await bench.wait_for(lambda: bench.gate.trees is not None)
    await end(bench, task)
    assert bench.child.starts == []


async def test_an_end_does_not_wait_for_a_write_that_hangs(
    bench: RunsBench, new_plane: EmbeddedPlane
) -> None:
    fault = Fault(what="latency", verb="patch", resource="configmaps", name="blog", delay_s=10.0)
    async with bench.running():
        fault_id = await new_plane.faults.add(fault)
        await bench.put(ROOTS, "blog")
        async with asyncio.timeout(5):
            while not await new_plane.faults.hits(fault_id):  # noqa: ASYNC110 - it happens on a server
                await asyncio.sleep(0.02)
        bench.stopping.set()
        async with asyncio.timeout(5):
            await bench.wait_for(lambda: bench.child.stops == 1)


async def end(bench: RunsBench, task: asyncio.Task[None]) -> None:
    assert not task.done()
    bench.stopping.set()
    bench.over.set()
    await asyncio.wait_for(task, 5)
