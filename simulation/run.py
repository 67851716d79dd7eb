"""One run of one seed: a fleet, its users, faults, and the judgement."""

from __future__ import annotations

import random
from typing import Final

import structlog

from devcluster.embedded.store import Entry
from simulation.fleet import KEYS, LEASE_NAMESPACE, Fleet, Scale
from simulation.judges import LEASES
from simulation.users import Users
from simulation.world import Violation, World

FAULTS_FROM_S: Final = 20.0
FAULTS_UNTIL_S: Final = 240.0
SETTLE_S: Final = 600.0


def scale_of(rng: random.Random) -> Scale:
    """A small world, drawn."""
    lease_s = rng.choice((5, 10, 15))
    return Scale(
        replicas=rng.randint(3, 8),
        sharders=2,
        machines=rng.randint(2, 4),
        servers=rng.randint(1, 3),
        objects=rng.choice((20, 40, 80, 200)),
        lease_s=lease_s,
        settle_s=rng.choice((0, 1, 2)),
        hold=rng.random() < 0.5,
        longest_reconcile_s=rng.choice((0.01, 0.5, 3.0)),
        updates_per_s=rng.choice((0.5, 1.0, 2.0)),
    )


def run(seed: int) -> World:
    world = World(seed)
    scale = scale_of(world.rng("scale"))
    structlog.configure(processors=[_dropped], cache_logger_on_first_use=False)
    fleet = Fleet(world, scale)
    world.note(str(scale))
    fleet.start()
    users = Users(fleet)
    users.start()
    world.run(FAULTS_UNTIL_S)
    users.stop()
    limit = world.now + SETTLE_S
    while why := unsettled(fleet):
        if world.now >= limit:
            raise Violation("no orphan", why)
        world.run(world.now + 1)
    fleet.judges.judge_writes()
    return world


def unsettled(fleet: Fleet) -> str:
    """What does not yet hold that has to hold in the end; empty if all does."""
    leases = {entry.name: entry for entry in fleet.store.kind(*LEASES).collection.entries() if entry.namespace == LEASE_NAMESPACE}
    for entry in fleet.store.kind("example.com", "websites").collection.entries():
        if why := _misplaced(entry, leases, fleet):
            return f"websites {entry.name} {why}"
        doc = entry.decoded()
        seen, generation = (doc.get("status") or {}).get("observedGeneration"), entry.generation
        if seen != generation:
            return f"websites {entry.name} is at generation {generation}, and {seen} was reconciled"
    for entry in fleet.store.kind("", "configmaps").collection.entries():
        if KEYS.shard in entry.labels and (why := _misplaced(entry, leases, fleet)):
            return f"configmaps {entry.name} {why}"
    return ""


def _misplaced(entry: Entry, leases: dict[str, Entry], fleet: Fleet) -> str:
    shard = entry.labels.get(KEYS.shard, "")
    if KEYS.drain in entry.labels:
        return f"has a drain label of {shard}"
    replica = fleet.of_shard(shard) if shard else None
    if replica is None or not replica.may_work or shard not in leases:
        return f"belongs to {shard or 'nobody'}, which does not work"
    return ""


def _dropped(logger: object, method: str, event: dict[str, object]) -> dict[str, object]:
    raise structlog.DropEvent
