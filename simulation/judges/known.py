"""What the store showed of Leases and owners so far, and what no promise covers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devcluster.embedded.store import Entry
from devcluster.plane import Write
from kubeio.protocol import SHARDER_HOLDER, RingKeys
from simulation.world import World

if TYPE_CHECKING:
    from simulation.fleet import Fleet, Replica

_WATCH_LAGS_S: Final = 200.0
"""A silent watch is given up after 90 s; its list may be late, too."""
LEASES: Final = ("coordination.k8s.io", "leases")


@dataclass(slots=True)
class Owner:
    """What the store showed of one object's owner."""

    label: str
    turn: int
    since: float
    """When the label got this value."""
    written_at: float


class Known:
    """What all judges know."""

    def __init__(self, world: World, fleet: Fleet, *, keys: RingKeys) -> None:
        self.world: Final = world
        self.fleet: Final = fleet
        self.keys: Final = keys
        self.is_forging = False
        """A hostile writer is at work in this very moment: what it writes is not judged."""
        self.forged: Final[dict[str, float]] = {}
        """Names of Leases and uids of objects that a hostile writer touched, and when."""
        self.history_began_at = -math.inf
        """When etcd was restored last."""
        self.owners: Final[dict[str, Owner]] = {}
        """By the object's uid."""
        self.held_until: Final[dict[str, float | None]] = {}
        """Shards whose Lease existed: when it ceased to be held; None: it is held."""
        self.contested: Final[set[str]] = set()
        """Shards whose Lease is taken, and that may work all the same."""
        self.dead: Final[set[str]] = set()
        """Shards whose Lease a sharder held, uncontested, at some time: names live once."""
        self.synced: Final[set[str]] = set()
        """Shards that ever said that their caches are full."""

    def violate(self, rule: str, what: str) -> None:
        self.world.violate(rule, what)

    def is_beyond_promises(self, replica: Replica) -> bool:
        """A copy, on a machine that was stopped, or of a history that was undone."""
        return replica.is_beyond_promises or replica.process.started_at <= self.history_began_at

    def is_lagging(self, uid: str) -> bool:
        """Forged labels may give an object two workers, for as long as a watch lags (protocol, section 8)."""
        return self.world.now - self.forged.get(uid, -math.inf) < _WATCH_LAGS_S

    def is_unfenced(self, create: Write) -> bool:
        """Whether a CREATE may come too late, as no fence stops one.

        It is of a process that stood still, was stopped or has ended, or something on the way sent it again.
        """
        network = self.fleet.network
        sender = network.sender
        replica = self.fleet.of_shard((create.labels_after or {}).get(self.keys.shard, ""))
        is_stopped = replica is not None and replica.process is sender and self.is_beyond_promises(replica)
        return sender is not None and (is_stopped or not sender.runs_well or network.carries_again)

    def may_work(self, shard: str) -> Replica | None:
        """The replica of *shard*, if it may work by its own clock and by the promises."""
        replica = self.fleet.of_shard(shard)
        if replica is None or not replica.may_work or self.is_beyond_promises(replica):
            return None
        return replica

    def begin_history(self) -> None:
        """etcd was restored: what was seen before is of another history."""
        self.owners.clear()
        self.held_until.clear()
        self.contested.clear()
        self.history_began_at = self.world.now


def turn_of(entry: Entry, keys: RingKeys) -> int:
    """The turn that the object shows; 0: none."""
    if keys.turn.encode() not in entry.raw:
        return 0
    text = (entry.decoded()["metadata"].get("annotations") or {}).get(keys.turn, "0")
    return int(text) if text.isdigit() else 0


def holder_of(entry: Entry | None) -> str:
    """The holder of a Lease; empty if there is none."""
    if entry is None:
        return ""
    spec: dict[str, Any] = entry.decoded().get("spec") or {}
    return str(spec.get("holderIdentity") or "")


def is_contested(entry: Entry, keys: RingKeys) -> bool:
    """Whether the Lease says so, or somebody who is no sharder has written another holder into it."""
    holder = holder_of(entry)
    is_foreign = holder not in ("", entry.name) and not holder.startswith(SHARDER_HOLDER)
    return is_foreign or keys.contested.encode() in entry.raw
