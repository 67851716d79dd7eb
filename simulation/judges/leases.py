"""Judge of Leases: takes, contests, names that live once, releases, orphans, copies, and a history that went back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from devcluster.embedded.store import Event
from devcluster.plane import Write
from kubeio.protocol import SHARDER_HOLDER
from simulation.judges.known import LEASES, Known, holder_of, is_contested
from simulation.judges.requests import RequestJudge
from simulation.scale import RESOURCES, STRANGER
from simulation.store import Store

if TYPE_CHECKING:
    from simulation.fleet import Replica
    from simulation.process import Process

_SILENT_DURATIONS: Final = 1.99
"""Two, on clocks that drift."""
_WHOLE: Final = 0.99
"""Part of a duration that is over on every clock when all of it is over on one."""
_KNEW_S: Final = 10.0
"""A sharder that first read a Lease so long before a restore knows versions of the former history."""
_NOTICES_S: Final = 15.0
"""So long after a restore a sharder that runs and reaches every server has read the Leases."""


class LeaseJudge:
    """Judges the Leases of the ring."""

    def __init__(self, known: Known, store: Store, requests: RequestJudge) -> None:
        self._known: Final = known
        self._store: Final = store
        self._requests: Final = requests
        self._taken_before: Final[dict[str, str]] = {}
        """Who had taken each Lease from its shard before its last change; empty: no one."""
        self._born: Final[dict[str, tuple[Process | None, float]]] = {}
        """Names of shards: who created the Lease, and when."""
        store.kind(*LEASES).collection.listeners.append(self._on_lease)

    def judge_write(self, write: Write) -> None:
        """Of a shard: what was taken stays taken, and a name lives once. Of a sharder: what it deletes is an orphan."""
        if not 200 <= write.code < 300 or self._known.is_forging:
            return
        is_shard = write.user.startswith("replica")
        if write.name == STRANGER and (is_shard or write.user.startswith("sharder")):
            self._known.violate("foreign Leases", f"{write.user} writes the Lease {write.name}")
        match write.verb:
            case "create" if is_shard:
                self._judge_birth(write)
            case "update" | "patch" if is_shard:
                self._judge_renewal(write)
            case "delete" if write.user.startswith("sharder"):
                self._judge_orphan(write)

    def begin_history(self) -> None:
        """The Leases are those of the backup."""
        known = self._known
        self._taken_before.clear()
        self._born.clear()
        for entry in self._store.kind(*LEASES).collection.entries():
            known.held_until[entry.name] = None if holder_of(entry) == entry.name else known.world.now
            if is_contested(entry, known.keys):
                known.contested.add(entry.name)

    def judge_copy(self, replica: Replica, since: float) -> None:
        """Of two copies of one process, made *since* then, the second to renew has ended."""
        if self._known.history_began_at > since:
            return  # the copy's renewal was undone
        age_s = replica.lease_age_s
        if replica.process.runs_well and age_s is not None and age_s < replica.lease_s / 2:
            self._known.violate(
                "copies end", f"{replica.process} renews {replica.shard} beside a copy of itself"
            )

    def judge_standstill(self, replica: Replica, since: float) -> None:
        """A process whose threads stand still *since* then has ended when two durations are over."""
        process = replica.process
        is_still = not process.is_frozen and all(loop.is_frozen for loop in process.loops)
        was_moved = max(process.stood_still_at, process.machine.stood_still_at) > since
        if is_still and not was_moved and not process.has_ended and process.machine.is_running:
            self._known.violate("the end of a process", f"{replica.process} stands still, and lives")

    def watch_history(self, newest: int) -> None:
        """The history went back from *newest* just now: no sharder that knew it works on for long."""
        self._judge_history(newest, self._known.world.now, {})

    def _judge_history(self, newest: int, began_at: float, working: dict[Process, float]) -> None:
        """Every second; *working*: since when each sharder could have noticed it."""
        known = self._known
        if known.history_began_at != began_at or self._store.endpoints.versions.current >= newest:
            return  # another restore has its own judgement, or it cannot be seen any more
        for process in known.fleet.processes.values():
            read_before = process.read_leases_at < began_at - _KNEW_S
            knew = process.name.startswith("sharder") and read_before
            if not (knew and process.runs_well and known.fleet.network.reaches_all(process)):
                working.pop(process, None)
            elif known.world.now - working.setdefault(process, known.world.now) > _NOTICES_S:
                known.violate("history", f"{process} works on, although etcd was restored")
        known.world.after(1.0, partial(self._judge_history, newest, began_at, working))

    # -- events

    def _on_lease(self, event: Event) -> None:
        known, keys = self._known, self._known.keys
        entry = event.new or event.old
        if entry is None:
            return
        name, now = entry.name, known.world.now
        is_of_ring = any(
            each is not None and each.labels.get(keys.ring_label) == keys.ring
            for each in (event.old, event.new)
        )
        if not is_of_ring and name not in known.held_until:
            return
        before, holder = holder_of(event.old), holder_of(event.new)
        is_emptied = not before and name in known.contested  # by hand: a sharder writes its own name
        self._taken_before[name] = "a contest" if is_emptied else before if before != name else ""
        if event.new is not None and keys.synced.encode() in event.new.raw:
            known.synced.add(name)
        if known.is_forging:
            known.forged[name] = now
        known.contested.discard(name)
        if event.new is not None and is_contested(event.new, keys):
            known.contested.add(name)
        was_held, is_held = before == name, holder == name
        if is_held:
            known.held_until[name] = None
        elif was_held or name not in known.held_until:
            known.held_until[name] = now
        if event.new is None or is_held or known.is_forging:
            return
        if was_held and not holder:
            self._judge_release(name, event.new.decoded()["metadata"].get("annotations") or {})
        if holder.startswith(SHARDER_HOLDER) and name not in known.contested:
            self._judge_death(name, before)
            known.dead.add(name)

    def _judge_death(self, name: str, before: str) -> None:
        """*name* is dead now: its process cannot work, and if it was not contested, it was silent or released."""
        known = self._known
        if name in known.dead or name in known.forged or not before:
            return
        replica = known.fleet.of_shard(name)
        if replica is None or known.is_beyond_promises(replica):
            return
        age_s = replica.lease_age_s
        if age_s is None:
            return
        if before == name and age_s < _SILENT_DURATIONS * replica.lease_s:
            known.violate(
                "take after silence",
                f"{name} is taken, uncontested, {age_s:.3f} s after its last renewal by its own clock",
            )
        if age_s < _WHOLE * replica.lease_s and not replica.process.has_ended:
            known.violate("a contest is waited for", f"{name} is contested no more, and may still work")

    def _judge_release(self, name: str, annotations: dict[str, str]) -> None:
        """*name*'s Lease was released: by its process, when it has all answers, or by one that proves its end."""
        known = self._known
        replica, by = known.fleet.of_shard(name), annotations.get(known.keys.released_by, "")
        if replica is None or known.is_beyond_promises(replica):
            return
        if by:
            if not replica.process.has_ended:
                known.violate("proof of an end", f"{by} released {name}, whose process runs")
            return
        if under_way := self._requests.under_way(replica.process):
            known.violate("released when answered", f"{name} is released, and {under_way} may still arrive")

    # -- writes

    def _judge_birth(self, write: Write) -> None:
        """Every life makes a fresh name, once; what it sent before it knew of its birth may come later."""
        name, carried_out = write.name, self._known.fleet.network.carried_out
        sender = carried_out.process if carried_out is not None else None
        born_by, born_at = self._born.get(name, (sender, 0.0))
        if carried_out is not None and born_by is sender and carried_out.sent_at < born_at:
            return
        self._born.setdefault(name, (sender, self._known.world.now))
        replica = self._known.fleet.of_shard(name)
        is_anew = replica is not None and not self._known.is_beyond_promises(replica)
        if is_anew or born_by is not sender:
            self._known.violate("names live once", f"{write.user} creates the Lease {name} again")

    def _judge_renewal(self, write: Write) -> None:
        """A shard writes no Lease that was taken from it. After a restore of etcd, versions may come again."""
        name = write.name
        replica = self._known.fleet.of_shard(name)
        if replica is not None and self._known.is_beyond_promises(replica):
            return
        by = self._taken_before.get(name, "")
        if by and name in self._known.held_until:
            self._known.violate("taken stays taken", f"{write.user} writes Lease {name}, which {by} holds")

    def _judge_orphan(self, write: Write) -> None:
        """A sharder deletes the Lease of a name that no object carries."""
        known, keys = self._known, self._known.keys
        registry = self._store.endpoints.registry
        for group, plural in RESOURCES:
            kind = registry.get(group, plural)
            for entry in kind.collection.entries() if kind is not None else ():
                is_judged = entry.uid not in known.forged and known.world.now > known.history_began_at + 200
                if entry.labels.get(keys.shard) == write.name and is_judged:
                    known.violate(
                        "orphans only",
                        f"{write.user} deletes the Lease {write.name}, which {entry.name} carries",
                    )
