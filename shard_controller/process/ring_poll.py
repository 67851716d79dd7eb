"""Whether the ring is going away: what a replica asks all day."""

from __future__ import annotations

import asyncio
import random

import structlog

from kubeio.errors import KubeError, NotFound
from kubeio.models import HasMeta
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from shard_controller.objects.caches import Caches

log = structlog.get_logger("shard_controller")

_RING_POLL_S = 10.0


async def wait_ring_over(client: Client, ring: str, caches: Caches, rng: random.Random) -> None:
    """Return once *ring* is being deleted, or gone, and *caches* are empty."""
    while True:
        await asyncio.sleep(_RING_POLL_S * rng.uniform(0.8, 1.2))
        try:
            is_ending = await is_ring_ending(client, ring)
        except KubeError as error:
            log.debug("ring not read", error=str(error))
            continue
        if is_ending and all(len(kind.store) == 0 for kind in caches):
            log.info("ring is going away", ring=ring)
            return


async def is_ring_ending(client: Client, name: str) -> bool:
    """Whether the ring *name* is being deleted, or gone. Reads its metadata, as the server's cache has it.

    A thousand replicas ask all day: the whole ring has a row for each of them in its status. Raises KubeError.
    """
    try:
        ring = await client.get(CONTROLLER_RINGS, name, type=HasMeta, metadata_only=True, any_version=True)
    except NotFound:
        return True
    return ring.metadata.deletion_timestamp is not None
