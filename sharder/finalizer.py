"""The ring's own end: a finalizer keeps it until its objects are given up and no Lease of it is held."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.models import HasMeta
from kubeio.patch import JsonPatch, MergePatch
from kubeio.resource import CONTROLLER_RINGS

if TYPE_CHECKING:
    from kubeio.client import Client
    from sharder.activation import Activation
    from sharder.rebalance import Rebalance
    from sharder.roster import Roster

log = structlog.get_logger("sharder")

FINALIZER: Final = "ringleader.dev/ring"
LOOK_S: Final = 1.0


async def keep_ring(client: Client, name: str) -> None:
    """Set the finalizer: without it a deletion would leave labels that nobody answers for. Raises KubeError."""
    found = await client.get(CONTROLLER_RINGS, name, type=HasMeta)
    if FINALIZER in found.metadata.finalizers or found.metadata.deletion_timestamp is not None:
        return
    finalizers = [*found.metadata.finalizers, FINALIZER]
    version = found.metadata.resource_version
    patch = MergePatch({"metadata": {"resourceVersion": version, "finalizers": finalizers}})
    await client.patch(CONTROLLER_RINGS, name, patch, type=bytes)


async def let_go(
    client: Client, name: str, rebalance: Rebalance, roster: Roster, activation: Activation
) -> None:
    """Wait until no object carries a label of the ring and no Lease is held; then drop the finalizer."""
    while True:
        if rebalance.is_converged and rebalance.last_seen == 0 and not _is_held(roster):
            break
        await asyncio.sleep(LOOK_S)
    await activation.give_back()
    found = await client.get(CONTROLLER_RINGS, name, type=HasMeta)
    if FINALIZER not in found.metadata.finalizers:
        return
    at = f"/metadata/finalizers/{found.metadata.finalizers.index(FINALIZER)}"
    await client.patch(CONTROLLER_RINGS, name, JsonPatch().test(at, FINALIZER).remove(at), type=bytes)
    log.info("ring let go", ring=name)


def _is_held(roster: Roster) -> bool:
    return any(life.is_held for life in roster.view.lives.values())
