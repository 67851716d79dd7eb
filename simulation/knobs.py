"""Constants of the product that a run may set anew: page sizes, waits, limits. Rare paths become common.

Only constants that no promise rests on: every value here must keep every rule.
"""

from __future__ import annotations

import importlib
import random
from dataclasses import dataclass
from typing import Any, Final

_SHARE: Final = 0.2
"""Part of the knobs that a run turns."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A constant *name* of *module*, and values for it."""

    module: str
    name: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


KNOBS: Final = (
    Knob("kubeio.watches.reflector", "_PART", (1, 3)),
    Knob("kubeio.watches.reflector", "_WATCH_LASTS_S", ((3, 20), (20, 60))),
    Knob("shard_controller.reconcile.worker", "HANDOFFS", (1, 4)),
    Knob("kubeio.shard.ring", "_RING_POLL_S", (1.0, 60.0)),
    Knob("sharder.membership.hash_rings", "BUILT_AT_ONCE", (0,)),
    Knob("sharder.membership.orphans", "BATCH", (1,)),
    Knob("sharder.membership.orphans", "PAGE", (1, 3)),
    Knob("sharder.membership.unknown_names", "MAX_UNKNOWN_NAMES", (1, 3)),
    Knob("sharder.moving.audit", "PAGE", (1, 7)),
    Knob("sharder.moving.missent", "MAX_MISSENT", (1,)),
    Knob("sharder.moving.scan", "PAGE", (1, 7)),
    Knob("sharder.moving.scan", "MAX_WAITING", (1, 5)),
    Knob("sharder.moving.scan", "MUCH_TO_DO", (0, 5)),
    Knob("sharder.moving.scan_pass", "MAX_SUSPECTS", (0, 2)),
    Knob("sharder.planning.planner", "CHILDREN_FIRST_S", (0.5, 60.0)),
    Knob("sharder.rings.controller", "UNSERVED_RETRY_S", (1.0,)),
    Knob("sharder.unowned.pending", "ENOUGH", (5, 20)),
    Knob("sharder.unowned.reflector", "GIVES_UP_S", (0.5, 60.0)),
    Knob("sharder.unowned.reflector", "PAGE", (1, 7)),
    Knob("sharder.unowned.reflectors", "OVERLAP_S", (0.0, 5.0)),
    Knob("sharder.unowned.reflectors", "ENOUGH_TO_DO", (2, 20)),
    Knob("sharder.unowned.selector", "LONGEST_BYTES", (100, 300)),
    Knob("sharder.writing.assignment_queue", "SPARE", (0, 1)),
    Knob("sharder.writing.evidence_reads", "FEW_WRITES", (0, 100)),
    Knob("sharder.writing.evidence_reads", "MOST_READS", (1,)),
    Knob("sharder.writing.evidence_reads", "OLDEST_S", (0.5, 2.0)),
    Knob("sharder.writing.evidence_reads", "VALID_S", (0.02, 2.0)),
    Knob("sharder.membership.controller", "ITERATIONS_PER_S", (0.3, 1.0)),
    Knob("sharder.membership.controller", "ITERATIONS_AT_ONCE", (1,)),
)


def turn(rng: random.Random) -> list[str]:
    """Turn some knobs of this process; what was turned, in words. Raises: AttributeError for one that is not there."""
    turned = []
    for knob in KNOBS:
        if rng.random() < _SHARE:
            module, value = importlib.import_module(knob.module), rng.choice(knob.values)
            getattr(module, knob.name)
            setattr(module, knob.name, value)
            turned.append(f"{knob}={value}")
    return turned
