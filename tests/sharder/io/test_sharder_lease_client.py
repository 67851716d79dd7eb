"""Leases never queue behind label patches: they have connections of their own (protocol, 5.1 and 6.1)."""

from __future__ import annotations

from kubeio.access.cluster import load_cluster
from kubeio.errors import TooManyRequests
from kubeio.protocol import RingKeys
from kubeio.rest.client import Client
from sharder.rings.manager import RingManager
from tests.sharder.io.environment import RING, SharderEnvironment, running, sharder_context, wait_until

KEYS = RingKeys(RING)


async def test_a_lease_is_taken_while_every_patch_has_to_pause(env: SharderEnvironment) -> None:
    """Two accounts, so that the server's log tells the connections apart."""
    accounts = [await env.plane.kubeconfig_for(name) for name in ("patches", "leases")]
    async with (
        Client(load_cluster(kubeconfig=str(accounts[0])), max_connections=1) as client,
        Client(load_cluster(kubeconfig=str(accounts[1]))) as leases,
    ):
        context = sharder_context(client, lease_client=leases)
        rings = RingManager(context, names=())
        rings.lead()
        async with running(rings.run()):
            await env.ring()
            dying = await env.shard("a")
            await env.site("before")
            await wait_until(lambda: _owner(env, "before"))
            context.limiter.failed(0.01, TooManyRequests("PATCH", status=429, retry_after_s=60.0))
            await env.site("meanwhile")
            await dying.fall_silent()
            await wait_until(lambda: _taken(env, dying.name))
            assert await _owner(env, "meanwhile") == ""
    writers = {
        (write.resource.partition(".")[0], write.user)
        for write in env.plane.writes()
        if write.user in ("patches", "leases")
    }
    assert ("websites", "patches") in writers
    assert ("leases", "leases") in writers
    assert ("leases", "patches") not in writers


async def _owner(env: SharderEnvironment, name: str) -> str:
    return (await env.owners()).get(name, "")


async def _taken(env: SharderEnvironment, name: str) -> bool:
    holder = (await env.leases.get(name)).spec.holder_identity or ""
    return holder not in ("", name)
