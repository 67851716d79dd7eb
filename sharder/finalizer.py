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
WORKED_AS: Final = "ringleader.dev/worked-as"
"""Annotation of a ring: label domain and lease namespace under which its shards live (protocol, section 2)."""
LOOK_S: Final = 1.0


async def keep_ring(client: Client, name: str, *, worked_as: str) -> None:
    """Set the finalizer, and write down what may not change any more (*worked_as*), over fail-overs too.

    Without the finalizer a deletion would leave labels that nobody answers for. Raises KubeError.
    """
    found = (await client.get(CONTROLLER_RINGS, name, type=HasMeta)).metadata
    if found.deletion_timestamp is not None:
        return
    if FINALIZER in found.finalizers and WORKED_AS in found.annotations:
        return
    finalizers = [*(f for f in found.finalizers if f != FINALIZER), FINALIZER]
    changes = {"finalizers": finalizers, "annotations": {WORKED_AS: worked_as}}
    patch = MergePatch({"metadata": {"resourceVersion": found.resource_version, **changes}})
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
