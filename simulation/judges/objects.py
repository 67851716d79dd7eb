"""Judge of objects: who may move what, to whom, with which turn; and outside systems, by the token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devcluster.embedded.store import Entry, Event
from devcluster.plane import Write
from kubeio.models import Meta
from kubeio.protocol import SHARDER_HOLDER, is_shard_name
from kubeio.versions import order
from ringleader.testing.ownership_checks import LEASES as LEASE_RESOURCE
from ringleader.testing.ownership_checks import foreign_writes
from simulation.judges.known import LEASES, Known, Owner, holder_of, turn_of
from simulation.judges.reconciles import ReconcileJudge
from simulation.judges.requests import RequestJudge
from simulation.scale import LEASE_NAMESPACE, RESOURCES, STRANGER
from simulation.store import Store

if TYPE_CHECKING:
    from simulation.fleet import Replica

_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")


class ObjectJudge:
    """Judges the objects of the ring."""

    def __init__(
        self, known: Known, store: Store, reconciles: ReconcileJudge, requests: RequestJudge
    ) -> None:
        self._known: Final = known
        self._store: Final = store
        self._reconciles: Final = reconciles
        self._requests: Final = requests
        self._register: Final[dict[str, int]] = {}
        self._contents: Final[dict[tuple[str, int], str]] = {}
        """What users wrote, by uid and generation."""
        self._read: Final[dict[tuple[Replica, str], int]] = {}
        """The version of an object that a reconcile of a process read last, by uid."""
        self._controllers: Final[dict[str, str]] = {}
        """Uid of the controller, by the uid of the controlled object."""
        self._sent_by_hand: Final[set[tuple[str, str]]] = set()
        """Uids of objects that a hostile writer touched, with the shards that their labels named then."""
        self._unfenced: Final[set[int]] = set()
        """Creates that may be too late: no promise covers them."""
        for group, plural in RESOURCES:
            if (kind := store.endpoints.registry.get(group, plural)) is not None:
                kind.collection.listeners.append(self._on_object)
        store.kind(*_DEFINITIONS).collection.listeners.append(self._on_definition)

    def judge_write(self, write: Write) -> None:
        """An object leaves a shard by its acknowledgement or because it is dead, and goes to one with full caches."""
        if write.verb == "create" and self._known.is_unfenced(write):
            self._unfenced.add(write.seq)
        if write.controller:
            self._controllers[write.uid] = write.controller
        before, after = write.labels_before or {}, write.labels_after
        owner = before.get(self._known.keys.shard, "")
        next_owner = (after or {}).get(self._known.keys.shard, "")
        self._judge_place(write, owner, next_owner)
        if not owner or after is None or next_owner == owner or self._known.is_forging:
            return
        if write.user.startswith("replica"):
            self._acknowledged(write, owner)
        else:
            self._judge_move(write, owner)

    def write_outside(self, replica: Replica, uid: str, token: int) -> bool:
        """An outside system gets a write with *token*; whether it accepts it: no smaller one than before."""
        last, known = self._register.get(uid, 0), self._known
        if token < last:
            owner = known.owners.get(uid)
            if owner is not None and owner.label == replica.shard and uid not in known.forged:
                known.violate("tokens grow", f"{uid}: {replica.shard} owns it with {token}, {last} was seen")
            return False
        self._register[uid] = token
        return True

    def reads(self, replica: Replica, meta: Meta, html: str) -> None:
        """A reconcile takes *html* for the content of an object at the generation that *meta* shows."""
        if self._known.is_beyond_promises(replica):
            return
        written = self._contents.get((meta.uid, meta.generation), html)
        if written != html:
            what = f"{replica.shard} takes {html} for {meta.name} at generation {meta.generation}, which is {written}"
            self._known.violate("observes what it reads", what)
        self.reads_version(replica, meta.uid, meta.resource_version)

    def reads_version(self, replica: Replica, uid: str, version: str) -> None:
        """A reconcile reads *version* of an object: none before it in its process read a newer one."""
        last = self._read.get((replica, uid), 0)
        if (
            order(version) < last
            and uid in self._known.owners
            and not self._known.is_beyond_promises(replica)
        ):
            self._known.violate(
                "reads go forward", f"{replica.shard} reads {uid} in version {version} after {last}"
            )
        self._read[replica, uid] = order(version)

    def admitted(self, owner: str, asked_at: float) -> None:
        """A sharder named *owner* for an object that is being created: held since it was asked, with full caches."""
        known = self._known
        if owner in known.forged or asked_at <= known.history_began_at:
            return
        until = known.held_until.get(owner, -1.0)
        if until is not None and until < asked_at:
            known.violate(
                "evidence", f"{owner} is named at admission, asked at {asked_at:.3f}, held until {until:.3f}"
            )
        if owner not in known.synced:
            known.violate("full caches", f"{owner} is named at admission, and its caches are not full")

    def begin_history(self) -> None:
        self.judge_all_writes()
        leases = [write for write in self._store.writes if write.resource == LEASE_RESOURCE]
        self._store.writes[:] = leases  # who made which shard is known on
        self._register.clear()
        self._contents.clear()
        self._read.clear()

    def judge_all_writes(self) -> None:
        """Every accepted write of a replica was to an object that bore its name: the log of the whole run."""
        known, fleet = self._known, self._known.fleet
        found = foreign_writes(
            self._store.writes,
            keys=known.keys,
            resources=fleet.resources,
            controlled=fleet.controlled,
            replicas=fleet.accounts,
        )
        for foreign in found:
            is_forged = not known.forged.keys().isdisjoint((foreign.write.uid, foreign.write.controller))
            if not is_forged and foreign.write.seq not in self._unfenced:
                known.violate("writes of the owner only", f"{foreign} (at {foreign.write.t:.3f})")

    # -- events

    def _on_definition(self, event: Event) -> None:
        """A definition that is created anew brings a new collection."""
        if event.old is None and event.new is not None:
            plural, _, group = event.new.name.partition(".")
            if (group, plural) in RESOURCES:
                self._store.kind(group, plural).collection.listeners.append(self._on_object)

    def _on_object(self, event: Event) -> None:
        old, new, known = event.old, event.new, self._known
        if new is None:
            if old is not None:
                known.owners.pop(old.uid, None)
            return
        if old is None or old.generation != new.generation:
            self._contents[new.uid, new.generation] = new.decoded().get("spec", {}).get("html", "")
        label, now = new.labels.get(known.keys.shard, ""), known.world.now
        owner = known.owners.get(new.uid)
        if known.is_forging:
            if owner is None or label != owner.label:
                known.forged[new.uid] = now
            named = (new.labels.get(key, "") for key in (known.keys.shard, known.keys.drain))
            self._sent_by_hand.update((new.uid, shard) for shard in named if shard)
        if label and (replica := known.fleet.of_shard(label)) is not None:
            self._reconciles.owned(replica, new.uid)
        if owner is None:
            if old is not None:  # of an earlier history
                known.forged[new.uid] = now
            known.owners[new.uid] = Owner(label, turn_of(new, known.keys), now, now)
            return
        if label != owner.label:
            turn = turn_of(new, known.keys)
            if new.uid not in known.forged:
                self._judge_change(new, owner, label, turn)
            if label:
                owner.turn = turn
            owner.label, owner.since = label, now
        owner.written_at = now

    def _judge_change(self, new: Entry, owner: Owner, label: str, turn: int) -> None:
        known = self._known
        if not label:
            return
        if turn <= owner.turn and owner.turn:
            known.violate(
                "turns grow",
                f"{new.namespace}/{new.name} goes from {owner.label or 'no owner'} (turn {owner.turn})"
                f" to {label} with turn {turn}",
            )
        if label in known.forged:
            return
        until = known.held_until.get(label, -1.0)
        # a conditional patch tests the version that was read before the evidence
        is_directed = bool(owner.label)
        if until is not None and until < (owner.since if is_directed else owner.written_at):
            what = f"was not held after {until:.3f}" if until >= 0 else "never existed"
            known.violate("evidence", f"{new.namespace}/{new.name} goes to {label}, whose Lease {what}")

    # -- writes

    def _judge_place(self, write: Write, was: str, owner: str) -> None:
        """A sharder gives objects to shards whose caches are full; a controlled object follows its controller."""
        known = self._known
        is_given = write.user.startswith("sharder") and owner not in ("", was)
        follows = (self._controllers.get(write.uid, ""), owner) in self._sent_by_hand
        if is_given and owner not in known.synced and owner not in known.forged and not follows:
            what = f"{write.user} gives {write.namespace}/{write.name} to {owner}, whose caches are not full"
            known.violate("full caches", what)

    def _judge_move(self, write: Write, owner: str) -> None:
        """A sharder moves an object away from *owner* without asking: its name is dead, or can be no shard's."""
        known = self._known
        is_dead = owner in known.dead or not is_shard_name(owner) or owner == STRANGER
        if not is_dead and not self._is_given_up(write, owner):
            known.violate(
                "take before move",
                f"{write.user} moves {write.namespace}/{write.name} away from {owner}, whose Lease is alive",
            )

    def _is_given_up(self, write: Write, owner: str) -> bool:
        """Whether an object loses an *owner* that does not work, and has no Lease: a ring that goes waits for none.

        A name that no replica had may have a tombstone by now: that of the leader after the one that wrote.
        """
        known = self._known
        is_given = bool((write.labels_after or {}).get(known.keys.shard))
        lease = self._store.kind(*LEASES).collection.get((LEASE_NAMESPACE, owner))
        own = f"{SHARDER_HOLDER}{known.fleet.network.sender}".replace("/", "-")
        is_anothers = holder_of(lease).startswith(SHARDER_HOLDER) and holder_of(lease) != own
        is_gone = lease is None or (is_anothers and known.fleet.of_shard(owner) is None)
        return not is_given and is_gone and known.may_work(owner) is None

    def _acknowledged(self, write: Write, owner: str) -> None:
        known, sender = self._known, self._known.fleet.network.sender
        replica = known.fleet.of_shard(owner)
        if replica is None or replica.process is not sender:
            return
        self._reconciles.acknowledged(replica, write.uid)
        self._read.pop((replica, write.uid), None)
        if under_way := self._requests.creates_under_way(replica.process, controller=write.uid):
            known.violate(
                "creates are settled first",
                f"{owner} gives {write.namespace}/{write.name} up, and {under_way} may still arrive",
            )
