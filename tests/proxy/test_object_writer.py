"""Writes of the proxy itself, sent by an old view: the object has gone round, or is asked for otherwise by now."""

from __future__ import annotations

import pytest

from kubeio.patch import MergePatch
from proxy.trees import Node, Trees, node_of
from tests.proxy.runs_bench import BEFORE, KEYS, OTHER, ROOTS, SHARD, RunsBench

THIRD = "web-2-00000001"


async def node(bench: RunsBench, name: str) -> Node:
    """The root *name* as an informer shows it now."""
    meta = await bench.meta(ROOTS, name)
    return node_of(meta, ROOTS.group_resource, keys=KEYS, is_root=True, is_leaf=False)


async def set_turn(bench: RunsBench, name: str, turn: str) -> None:
    patch = MergePatch({"metadata": {"annotations": {KEYS.turn: turn}}})
    await bench.client.patch(ROOTS, name, patch, namespace=bench.namespace, type=bytes)


@pytest.mark.parametrize("turn", [None, "5"])
async def test_an_object_that_stayed_becomes_visible(bench: RunsBench, turn: str | None) -> None:
    await bench.put(ROOTS, "blog", visible=BEFORE)
    if turn is not None:
        await set_turn(bench, "blog", turn)
    assert await bench.writer.show(await node(bench, "blog"))
    assert (await bench.labels(ROOTS, "blog"))[KEYS.visible] == SHARD


async def test_an_object_that_left_and_came_back_stays_hidden(bench: RunsBench) -> None:
    """What its tree misses by now was read before it left."""
    await bench.put(ROOTS, "blog", visible="")
    await set_turn(bench, "blog", "5")
    found = await node(bench, "blog")
    await set_turn(bench, "blog", "9")
    assert not await bench.writer.show(found)
    assert (await bench.labels(ROOTS, "blog"))[KEYS.visible] == ""


@pytest.mark.parametrize("drain", [THIRD, SHARD, None])
async def test_an_object_that_is_asked_for_otherwise_by_now_stays(
    bench: RunsBench, drain: str | None
) -> None:
    await bench.lease(OTHER)
    await bench.put(ROOTS, "blog", visible=SHARD, drain=OTHER)
    trees = Trees(SHARD, since="")
    found = await node(bench, "blog")
    trees.put(found)
    await bench.label(ROOTS, "blog", drain=drain)
    assert not await bench.writer.give_up(trees, found.uid)
    labels = await bench.labels(ROOTS, "blog")
    assert (labels[KEYS.shard], labels.get(KEYS.drain)) == (SHARD, drain)


async def test_an_object_that_changed_otherwise_is_given_up(bench: RunsBench) -> None:
    await bench.lease(OTHER)
    await bench.put(ROOTS, "blog", visible=SHARD, drain=OTHER)
    trees = Trees(SHARD, since="")
    found = await node(bench, "blog")
    trees.put(found)
    await set_turn(bench, "blog", "5")
    assert await bench.writer.give_up(trees, found.uid)
    assert (await bench.labels(ROOTS, "blog"))[KEYS.shard] == OTHER
