"""Judges of a run: what must never happen, at each step, and what must hold at its end.

They know the protocol (docs/protocol.md, section 8) and the store; of the processes they see what a bystander sees, and
the age of a Lease on the shard's own clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devcluster.embedded.store import Entry, Event
from devcluster.plane import Write
from kubeio.protocol import RingKeys
from ringleader.testing.ownership_checks import LEASES as LEASE_RESOURCE
from ringleader.testing.ownership_checks import foreign_writes
from simulation.store import Store
from simulation.world import World

if TYPE_CHECKING:
    from simulation.fleet import Fleet, Replica

_WATCH_LAGS_S: Final = 200.0
"""A silent watch is given up after 90 s; its list may be late, too."""
_SLACK_S: Final = 0.6
"""A heartbeat looks twice a second."""
_SILENT_DURATIONS: Final = 1.99
"""Two, on clocks that drift."""
_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
LEASES: Final = ("coordination.k8s.io", "leases")


@dataclass(slots=True)
class _Reconcile:
    """One reconcile that runs."""

    replica: Replica
    key: str
    began_at: float


@dataclass(slots=True)
class _Ownership:
    """What the store showed of one object's owner."""

    label: str
    turn: int
    since: float
    """When the label got this value."""
    written_at: float


class Judges:
    """Watches one run; what a judge finds ends it."""

    def __init__(
        self,
        world: World,
        store: Store,
        fleet: Fleet,
        *,
        keys: RingKeys,
        resources: tuple[tuple[str, str], ...],
    ) -> None:
        self.reconciles = 0
        self.outcomes: Final[Counter[str]] = Counter()
        self.history_began_at = -1.0
        """When etcd was restored; -1: never."""
        self.is_forging = False
        """A hostile writer is at work in this very moment: what it writes is not judged."""
        self.forged: Final[dict[str, float]] = {}
        """Names of Leases and uids of objects that a hostile writer touched, and when."""
        self._world: Final = world
        self._store: Final = store
        self._fleet: Final = fleet
        self._keys: Final = keys
        self._running: Final[dict[str, list[_Reconcile]]] = {}
        self._objects: Final[dict[str, _Ownership]] = {}
        self._held_until: Final[dict[str, float | None]] = {}
        """Shards whose Lease existed: when it ceased to be held; None: it is held."""
        self._holder_before: Final[dict[str, str]] = {}
        """Holder of each Lease before its last change."""
        self._synced: Final[set[str]] = set()
        """Shards that ever said that their caches are full."""
        self._unfenced: Final[set[int]] = set()
        """Creates that may be too late: no promise covers them."""
        self._contested: Final[set[str]] = set()
        """Shards whose Lease is taken, and that may work all the same."""
        self._register: Final[dict[str, int]] = {}
        self._resources: Final = resources
        for group, plural in resources:
            store.kind(group, plural).collection.listeners.append(self._on_object)
        store.kind(*_DEFINITIONS).collection.listeners.append(self._on_definition)
        store.on_write.append(self.judge_write)
        store.kind(*LEASES).collection.listeners.append(self._on_lease)

    # -- reconciles

    @contextmanager
    def reconcile(self, replica: Replica, uid: str, key: str) -> Iterator[None]:
        """The length of one reconcile of *uid* by *replica*."""
        running = self._running.setdefault(uid, [])
        own = _Reconcile(replica, key, self._world.now)
        self._judge_lease(own, begins=True)
        self._judge_overlap(uid, own, running)
        running.append(own)
        self.reconciles += 1
        try:
            yield
        finally:
            if not replica.process.has_ended:
                self._judge_lease(own, begins=False)
                running.remove(own)
                if not running:
                    self._running.pop(uid, None)
                self._judge_overlap(uid, own, running)

    def _judge_lease(self, own: _Reconcile, *, begins: bool) -> None:
        """Nothing begins when two thirds of the Lease are over, and nothing goes on when all of it is."""
        replica, age_s = own.replica, own.replica.lease_age_s
        most_s = replica.lease_s * (2 / 3 if begins else 1) + _SLACK_S
        if age_s is not None and age_s > most_s and replica.process.runs_well:
            what = "begins" if begins else "still runs"
            self._world.violate(
                "work ends with the lease",
                f"a reconcile of {own.key} {what} {age_s:.2f} s after the last renewal of {replica.shard}",
            )

    def ended(self, replica: Replica) -> None:
        """The process of *replica* has ended: nothing of it runs."""
        for uid, running in list(self._running.items()):
            left = [each for each in running if each.replica is not replica]
            if left:
                self._running[uid][:] = left
            else:
                del self._running[uid]

    def _judge_overlap(self, uid: str, own: _Reconcile, running: list[_Reconcile]) -> None:
        if not own.replica.is_responsible:
            return
        for other in running:
            is_excused = self._is_lagging(uid) or self._is_excused(own, other)
            if other.replica is not own.replica and other.replica.is_responsible and not is_excused:
                self._world.violate(
                    "one owner",
                    f"{own.key} is reconciled by {own.replica.shard} and by {other.replica.shard}"
                    f" (since {other.began_at:.3f}), and neither was kept from noticing it",
                )

    def _is_lagging(self, uid: str) -> bool:
        """Forged labels may give an object two workers, for as long as a watch lags (protocol, section 8)."""
        return self._world.now - self.forged.get(uid, -math.inf) < _WATCH_LAGS_S

    def _is_excused(self, *each: _Reconcile) -> bool:
        """An edited Lease, a copy of a process, and a machine that was stopped are beyond the promise."""
        return any(self.is_beyond_promises(one.replica) or one.replica.shard in self.forged for one in each)

    def is_beyond_promises(self, replica: Replica) -> bool:
        return replica.is_beyond_promises or replica.process.started_at <= self.history_began_at

    # -- the store

    def _on_definition(self, event: Event) -> None:
        """A definition that is created anew brings a new collection."""
        if event.old is None and event.new is not None:
            plural, _, group = event.new.name.partition(".")
            if (group, plural) in self._resources:
                self._store.kind(group, plural).collection.listeners.append(self._on_object)

    def _on_object(self, event: Event) -> None:
        old, new = event.old, event.new
        if new is None:
            if old is not None:
                self._objects.pop(old.uid, None)
            return
        label = new.labels.get(self._keys.shard, "")
        known = self._objects.get(new.uid)
        now = self._world.now
        if self.is_forging:
            self.forged[new.uid] = now
        if known is None:
            if event.old is not None:  # of an earlier history
                self.forged[new.uid] = now
            self._objects[new.uid] = _Ownership(label, _turn(new, self._keys), now, now)
            return
        if label != known.label:
            turn = _turn(new, self._keys)
            if new.uid not in self.forged:
                self._judge_change(new, known, label, turn)
            if label:
                known.turn = turn
            known.label, known.since = label, now
        known.written_at = now

    def _judge_change(self, new: Entry, known: _Ownership, label: str, turn: int) -> None:
        if not label:
            return
        if turn <= known.turn and known.turn:
            self._world.violate(
                "turns grow",
                f"{new.namespace}/{new.name} goes from {known.label or 'no owner'} (turn {known.turn})"
                f" to {label} with turn {turn}",
            )
        if label in self.forged:
            return
        until = self._held_until.get(label, -1.0)
        # a conditional patch tests the version that was read before the evidence
        is_directed = bool(known.label)
        if until is not None and until < (known.since if is_directed else known.written_at):
            what = f"was not held after {until:.3f}" if until >= 0 else "never existed"
            self._world.violate("evidence", f"{new.namespace}/{new.name} goes to {label}, whose Lease {what}")

    def judge_write(self, write: Write) -> None:
        """Of a replica: a Lease that was taken stays taken. Of others: an object leaves a shard that is dead."""
        if write.resource == LEASE_RESOURCE:
            self._judge_lease_write(write)
            return
        if write.verb == "create":
            self._note_create(write)
        before, after = write.labels_before or {}, write.labels_after
        owner = before.get(self._keys.shard, "")
        self._judge_place(write, owner, (after or {}).get(self._keys.shard, ""))
        if not owner or after is None or after.get(self._keys.shard) == owner or self.is_forging:
            return
        replica = self._fleet.of_shard(owner)
        may_work = replica is not None and replica.may_work and not self.is_beyond_promises(replica)
        is_alive = self._held_until.get(owner, 0.0) is None or owner in self._contested or may_work
        if (
            is_alive
            and not write.user.startswith("replica")
            and self.forged.keys().isdisjoint((owner, write.uid))
        ):
            self._world.violate(
                "take before move",
                f"{write.user} moves {write.namespace}/{write.name} away from {owner}, whose Lease is alive",
            )

    def _note_create(self, write: Write) -> None:
        """A CREATE has no fence: one of a process that stood still, or has ended, may come too late."""
        sender = self._fleet.network.sender
        if sender is not None and not sender.runs_well:
            self._unfenced.add(write.seq)

    def _judge_place(self, write: Write, was: str, owner: str) -> None:
        """A sharder gives objects to shards whose caches are full."""
        is_given = write.user.startswith("sharder") and owner not in ("", was)
        if is_given and owner not in self._synced and owner not in self.forged:
            what = f"{write.user} gives {write.namespace}/{write.name} to {owner}, whose caches are not full"
            self._world.violate("full caches", what)

    def _judge_lease_write(self, write: Write) -> None:
        """A shard renews no Lease that another one holds."""
        holder, name = self._holder_before.get(write.name, ""), write.name
        is_change = write.verb in ("update", "patch") and 200 <= write.code < 300 and not self.is_forging
        if (
            is_change
            and write.user.startswith("replica")
            and holder not in ("", name)
            and name in self._held_until
        ):
            self._world.violate(
                "taken stays taken", f"{write.user} writes Lease {name}, which {holder} holds"
            )

    def judge_copy(self, replica: Replica) -> None:
        """Of two copies of one process the second to renew has ended."""
        age_s = replica.lease_age_s
        if replica.process.runs_well and age_s is not None and age_s < replica.lease_s / 2:
            self._world.violate(
                "copies end", f"{replica.process} renews {replica.shard} beside a copy of itself"
            )

    def _on_lease(self, event: Event) -> None:
        entry = event.new or event.old
        if entry is None or entry.labels.get(self._keys.ring_label) != self._keys.ring:
            return
        name, now = entry.name, self._world.now
        self._holder_before[name] = _holder(event.old) if event.old is not None else ""
        if event.new is not None and self._keys.synced.encode() in event.new.raw:
            self._synced.add(name)
        if self.is_forging:
            self.forged[name] = now
        self._contested.discard(name)
        if event.new is not None and self._keys.contested.encode() in event.new.raw:
            self._contested.add(name)
        was_held = event.old is not None and _holder(event.old) == name
        is_held = event.new is not None and _holder(event.new) == name
        if is_held:
            self._held_until[name] = None
            return
        if was_held or name not in self._held_until:
            self._held_until[name] = now
        if was_held and event.new is not None and name not in self.forged:
            self._judge_take(name, event.new)

    def _judge_take(self, name: str, new: Entry) -> None:
        """*name*'s Lease is held no more: released by itself, or taken."""
        doc = new.decoded()
        annotations = doc["metadata"].get("annotations") or {}
        holder = (doc.get("spec") or {}).get("holderIdentity") or ""
        replica = self._fleet.of_shard(name)
        if replica is None or self.is_beyond_promises(replica):
            return
        by = annotations.get(self._keys.released_by, "")
        if not holder and not by:
            return  # the shard itself
        if by and not holder:
            if not replica.process.has_ended:
                self._world.violate("proof of an end", f"{by} released {name}, whose process runs")
            return
        if self._keys.contested in annotations:
            return
        age_s = replica.lease_age_s
        if age_s is not None and age_s < _SILENT_DURATIONS * replica.lease_s:
            self._world.violate(
                "take after silence",
                f"{name} is taken, uncontested, {age_s:.3f} s after its last renewal by its own clock",
            )

    def begin_history(self) -> None:
        """etcd was restored: what was seen before is of another history, and lives that began before are not judged."""
        self.judge_writes()
        leases = [write for write in self._store.writes if write.resource == LEASE_RESOURCE]
        self._store.writes[:] = leases  # who made which shard is known on
        self._register.clear()
        self._objects.clear()
        self._held_until.clear()
        self._contested.clear()
        self._holder_before.clear()
        self.history_began_at = self._world.now
        for entry in self._store.kind(*LEASES).collection.entries():
            self._held_until[entry.name] = None if _holder(entry) == entry.name else self._world.now

    def judge_history(self, newest: int) -> None:
        """The history went back from *newest* a while ago: no sharder that knew it is at work."""
        if self._store.endpoints.versions.current >= newest:
            return  # it cannot be seen any more
        for process in self._fleet.processes.values():
            knew = process.name.startswith("sharder") and process.started_at < self.history_began_at - 10
            if knew and process.runs_well and self._fleet.network.reaches_all(process):
                self._world.violate("history", f"{process} works on, although etcd was restored")

    # -- outside systems

    def write_outside(self, replica: Replica, uid: str, token: int) -> bool:
        """An outside system gets a write with *token*; whether it accepts it: no smaller one than before."""
        last = self._register.get(uid, 0)
        if token < last:
            known = self._objects.get(uid)
            if known is not None and known.label == replica.shard and uid not in self.forged:
                self._world.violate(
                    "tokens grow", f"{uid}: {replica.shard} owns it with {token}, {last} was seen"
                )
            return False
        self._register[uid] = token
        return True

    # -- the end

    def judge_writes(self) -> None:
        """Every accepted write of a replica was to an object that bore its name: the log of the whole run."""
        resources = self._fleet.resources
        found = foreign_writes(
            self._store.writes,
            keys=self._keys,
            resources=resources,
            controlled=self._fleet.controlled,
            replicas=self._fleet.accounts,
        )
        for foreign in found:
            is_forged = not self.forged.keys().isdisjoint((foreign.write.uid, foreign.write.controller))
            if not is_forged and foreign.write.seq not in self._unfenced:
                self._world.violate("writes of the owner only", f"{foreign} (at {foreign.write.t:.3f})")


def _turn(entry: Entry, keys: RingKeys) -> int:
    if keys.turn.encode() not in entry.raw:
        return 0
    text = (entry.decoded()["metadata"].get("annotations") or {}).get(keys.turn, "0")
    return int(text) if text.isdigit() else 0


def _holder(entry: Entry) -> str:
    spec: dict[str, Any] = entry.decoded().get("spec") or {}
    return str(spec.get("holderIdentity") or "")
