"""Writes of the proxy itself, sent by an old view: the object has gone round."""

from __future__ import annotations

import pytest

from kubeio.patch import MergePatch
from proxy.trees import Node, node_of
from tests.proxy.runs_bench import BEFORE, KEYS, ROOTS, SHARD, RunsBench


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
