"""The gate: writes pass to visible trees while the Lease is young."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.models import ObjectKey, OwnerReference
from kubeio.shard.lease_validity import LeaseValidity
from proxy.gate import Gate
from tests.kubeio.virtual import LoopClock
from tests.proxy.test_proxy_trees import BEFORE, node, trees

pytestmark = pytest.mark.looptime(start=0)
ROOT, CHILD = "deployments.apps", "replicasets.apps"


class Server:
    """Which references lead nowhere, and which names are taken."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.taken: set[ObjectKey] = set()

    async def is_gone(self, reference: OwnerReference, namespace: str) -> bool:
        assert namespace == "ns"
        return reference.uid in self.gone

    async def is_free(self, name: str, key: ObjectKey) -> bool:
        return key not in self.taken


@pytest.fixture
def server() -> Server:
    return Server()


def new_gate(server: Server) -> Gate:
    """A gate under a Lease that was renewed just now."""
    clock = LoopClock()
    validity = LeaseValidity(duration_s=15, sent_at=clock.now())
    gate = Gate(validity, server, clock=clock)
    gate.trees = trees(node("root"), node("child", of="root"), node("hidden", visible=BEFORE))
    return gate


@pytest.fixture
async def gate(server: Server) -> Gate:
    return new_gate(server)


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


async def test_a_write_to_a_visible_tree_passes(gate: Gate) -> None:
    assert await gate.admit(ROOT, key("root")) is None
    assert await gate.admit(CHILD, key("child")) is None
    assert await gate.admit(CHILD, key("new"), controller="root") is None


async def test_a_write_to_a_hidden_tree_is_a_conflict(gate: Gate) -> None:
    for refusal in (
        await gate.admit(ROOT, key("hidden")),
        await gate.admit(CHILD, key("new"), controller="hidden"),
        await gate.admit(ROOT, key("another-shard-s")),
    ):
        assert refusal is not None
        assert refusal.status == 409


async def test_a_write_waits_a_moment_for_what_the_informers_have_not_seen(gate: Gate) -> None:
    assert gate.trees is not None
    asyncio.get_running_loop().call_later(0.5, gate.trees.put, node("hidden"))
    assert await gate.admit(ROOT, key("hidden")) is None


async def test_what_an_object_that_is_gone_controlled_is_free(gate: Gate, server: Server) -> None:
    assert gate.trees is not None
    gate.trees.put(node("orphan", of="deleted"))
    assert await gate.admit(CHILD, key("orphan")) is not None
    server.gone.add("deleted")
    assert await gate.admit(CHILD, key("orphan")) is None


async def test_an_apply_creates_what_no_shard_has(gate: Gate, server: Server) -> None:
    server.taken = {key("another-shard-s"), key("child")}
    assert await gate.creates(CHILD, key("new"))
    assert not await gate.creates(CHILD, key("another-shard-s"))
    server.taken.clear()
    assert not await gate.creates(CHILD, key("child")), "known, and deleted a moment ago"


async def test_nothing_passes_when_two_thirds_of_the_lease_are_over(server: Server) -> None:
    gate = new_gate(server)
    await asyncio.sleep(9.9)
    assert await gate.admit(ROOT, key("root")) is None
    await asyncio.sleep(0.2)
    refusal = await gate.admit(ROOT, key("root"))
    assert refusal is not None
    assert (refusal.status, refusal.retry_after_s) == (429, 1)


async def test_what_has_waited_passes_under_a_young_lease_only(server: Server) -> None:
    """A process that was suspended while a write waited finds the tree as it was, and the Lease taken."""
    gate = new_gate(server)
    await asyncio.sleep(9.5)
    waiting = asyncio.create_task(gate.admit(CHILD, key("new")))
    await asyncio.sleep(0.6)
    assert gate.trees is not None
    gate.trees.put(node("new", of="root"))
    refusal = await waiting
    assert refusal is not None
    assert refusal.status == 429


async def test_nothing_passes_between_two_runs(gate: Gate) -> None:
    gate.trees = None
    assert await gate.admit(ROOT, key("root")) is not None


async def test_the_end_of_all_writes_is_waited_for(gate: Gate) -> None:
    await gate.wait_ended()
    gate.begin("a")
    gate.begin("b")
    waiting = asyncio.ensure_future(gate.wait_ended())
    gate.end("a", is_answered=True)
    await asyncio.sleep(1)
    assert not waiting.done()
    gate.end("b", is_answered=True)
    await waiting


async def test_a_write_may_be_carried_out_for_a_minute_after_its_answer_was_lost(server: Server) -> None:
    gate = new_gate(server)
    loop = asyncio.get_running_loop()
    for write in ("a", "b"):
        gate.begin(write)
        await asyncio.sleep(10)
        gate.end(write, is_answered=False)
    gate.begin("c")
    gate.end("c", is_answered=True)
    before = loop.time()
    await gate.wait_ended()
    assert 59 < loop.time() - before < 61
    await gate.wait_ended()
    assert loop.time() - before < 62
