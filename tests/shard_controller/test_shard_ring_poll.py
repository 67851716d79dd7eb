"""Whether its ring is going away: a question that every replica asks all day."""

from __future__ import annotations

from typing import Any, ClassVar

from kubeio.access.cluster import load_cluster
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from kubeio.shard.ring import is_ring_ending, read_ring
from tests.sharder.io.environment import RING, SharderEnvironment


async def test_a_ring_ends_when_it_is_being_deleted_or_gone(env: SharderEnvironment) -> None:
    await env.ring()
    assert not await is_ring_ending(env.client, RING)
    keep = MergePatch({"metadata": {"finalizers": ["ringleader.dev/ring"]}})
    await env.client.patch(CONTROLLER_RINGS, RING, keep, type=bytes)
    await env.client.delete(CONTROLLER_RINGS, RING)
    assert await is_ring_ending(env.client, RING)
    await env.client.patch(CONTROLLER_RINGS, RING, MergePatch({"metadata": {"finalizers": []}}), type=bytes)
    assert await is_ring_ending(env.client, RING)


class Measured(Client):
    """A client that notes how long the answers to its reads are."""

    lengths: ClassVar[list[int]] = []

    async def __aenter__(self) -> Measured:
        await super().__aenter__()
        return self

    async def get(self, *args: Any, **options: Any) -> Any:
        self.lengths.append(len(await super().get(*args, **{**options, "type": bytes})))
        return await super().get(*args, **options)


async def test_asking_costs_no_row_of_a_thousand_members(env: SharderEnvironment) -> None:
    async with Measured(load_cluster(kubeconfig=str(env.plane.kubeconfig))) as client:
        await env.ring()
        row = {"place": "filled", "shard": "x" * 60, "state": "ready", "weight": 1.0, "inFlight": 0}
        status = {"status": {"members": [{"name": f"member-{number}", **row} for number in range(1000)]}}
        await client.patch(CONTROLLER_RINGS, RING, MergePatch(status), subresource="status", type=bytes)
        await read_ring(client, RING)
        assert not await is_ring_ending(client, RING)
        whole, asked = client.lengths
        assert whole > 100_000
        assert asked < 4_000
