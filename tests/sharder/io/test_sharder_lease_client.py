"""Leases never queue behind label patches: they have connections of their own (protocol, 5.1 and 6.1)."""

from __future__ import annotations

from kubeio.access.cluster import load_cluster
from kubeio.errors import TooManyRequests
from kubeio.protocol import RingKeys
from kubeio.rest.client import Client
from sharder.rings.manager import RingManager
from tests.sharder.io.ground import RING, Ground, running, sharder_context, wait_until

KEYS = RingKeys(RING)


async def test_a_lease_is_taken_while_every_patch_has_to_pause(ground: Ground) -> None:
    """Two accounts, so that the server's log tells the connections apart."""
    accounts = [await ground.plane.kubeconfig_for(name) for name in ("patches", "leases")]
    async with (
        Client(load_cluster(kubeconfig=str(accounts[0])), max_connections=1) as client,
        Client(load_cluster(kubeconfig=str(accounts[1]))) as leases,
    ):
        context = sharder_context(client, lease_client=leases)
        rings = RingManager(context, names=())
        rings.lead()
        async with running(rings.run()):
            await ground.ring()
            dying = await ground.shard("a")
            await ground.site("before")
            await wait_until(lambda: _owner(ground, "before"))
            context.limiter.failed(0.01, TooManyRequests("PATCH", status=429, retry_after_s=60.0))
            await ground.site("meanwhile")
            await dying.fall_silent()
            await wait_until(lambda: _taken(ground, dying.name))
            assert await _owner(ground, "meanwhile") == ""
    writers = {
        (write.resource.partition(".")[0], write.user)
        for write in ground.plane.writes()
        if write.user in ("patches", "leases")
    }
    assert ("websites", "patches") in writers
    assert ("leases", "leases") in writers
    assert ("leases", "patches") not in writers


async def _owner(ground: Ground, name: str) -> str:
    return (await ground.owners()).get(name, "")


async def _taken(ground: Ground, name: str) -> bool:
    holder = (await ground.leases.get(name)).spec.holder_identity or ""
    return holder not in ("", name)
