"""Simulation of a ring's Leases on a manual clock, with the real `Membership` as its sharder.

Of the server there is what counts: resourceVersions grow, writes are compare-and-swap, shards renew every third of
their duration while they are alive. `run` lets time pass in small steps, reads the Leases as the sharder does,
and, while `acting`, carries out what it decides. Everything decided is remembered in `decided`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any

import msgspec

from kubeio.models import GroupResource, Lease, LeaseSpec, Meta
from sharder.membership import lease_writes
from sharder.membership.actions import (
    ClearContested,
    CreateTombstone,
    DeleteOrphan,
    Intent,
    MarkState,
    NeedOrphanCheck,
    Take,
)
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState
from sharder.membership.view import OwnerState, View, WaitReason
from sharder.ringspec.spec import RingResource, RingSpec

WALL = datetime(2026, 1, 1, tzinfo=UTC)
WEBSITES = GroupResource("example.com", "websites")
NAMESPACE = "ring-system"


def make_spec(**changes: Any) -> RingSpec:
    """A ring `r` of websites with few virtual nodes, so that building it costs nothing."""
    given: dict[str, Any] = {
        "name": "r",
        "lease_namespace": NAMESPACE,
        "resources": (RingResource(WEBSITES),),
        "virtual_nodes": 16,
        **changes,
    }
    return RingSpec(**given)


class LeaseSimulation:
    """One ring's Leases, its shards, and one or several sharders that watch them."""

    def __init__(self, *, at: float = 1000.0, **spec: Any) -> None:
        self.spec = make_spec(**spec)
        self.keys = self.spec.keys
        self.at = at
        self.leases: dict[str, Lease] = {}
        self.alive: set[str] = set()
        self.acting = True
        self.reachable = True
        self.labelled: set[str] = set()
        self.machine = Membership(self.spec)
        self.standbys: list[Membership] = []
        self.decided: list[tuple[float, Intent]] = []
        self.refused: list[Intent] = []
        self._version = 100
        self._ticks = 0
        self._sent: dict[str, float] = {}
        self._durations: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    # ---- shards -----------------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        *,
        member: str = "",
        duration_s: int | None = 15,
        hold: bool = False,
        protocol: str = "v1",
        fills: bool = True,
        works: str = "",
    ) -> None:
        """A shard creates its Lease and keeps renewing it; and says that its caches are full, if it *fills* them."""
        annotations = {
            self.keys.member: member,
            self.keys.protocol: protocol,
            self.keys.hold: "true" if hold else "",
            self.keys.duration: str(duration_s) if protocol else "",
            self.keys.resources: works,
        }
        meta = Meta(
            name=name,
            namespace=NAMESPACE,
            uid=f"uid-{self._version}",
            labels={self.keys.ring_label: self.keys.ring},
            annotations={key: value for key, value in annotations.items() if value},
            creation_timestamp=f"2026-01-01T00:00:00.{self._version:06d}Z",
        )
        spec = LeaseSpec(name, duration_s, self._stamp(), self._stamp(), 0)
        self.write(Lease(meta, spec))
        self.alive.add(name)
        self._sent[name] = self.at
        self._durations[name] = float(duration_s or 15)
        self.watched(name)
        if fills and protocol:
            self.fill(name)

    def watched(self, name: str) -> None:
        """Every sharder that reads already sees this version too, and not only the next one."""
        for machine in (self.machine, *self.standbys) if self.reachable else ():
            machine.observe_one(self.leases[name], at=self.at)

    def fill(self, name: str) -> None:
        """The shard's caches are full: it says so, and renews at once."""
        annotations = {**self.leases[name].metadata.annotations, self.keys.synced: "true"}
        self.edit_meta(name, annotations=annotations)
        self.renew(name)

    def renew(self, name: str) -> None:
        self.edit(name, renew_time=self._stamp())
        self._sent[name] = self.at

    def release(self, name: str) -> None:
        """The shard stops in good order."""
        self.kill(name)
        self.edit(name, holder_identity="")

    def leave(self, name: str) -> None:
        """The shard's replica is scaled away: it says so with a renewal, and works on."""
        self.edit_meta(
            name, annotations={**self.leases[name].metadata.annotations, self.keys.leaving: "true"}
        )
        self.renew(name)

    def cut(self, name: str) -> None:
        """The shard cannot reach the API server, or is frozen: it does not renew, and may work on for a while."""
        self.alive.discard(name)

    def may_work(self, name: str) -> bool:
        """Whether a process may be at work under *name*: it lives, and its Lease is not past by its own clock."""
        if name not in self._sent or name in self._ended:
            return False
        return self.at < self._sent[name] + self._durations[name]

    def edit(self, name: str, **spec: Any) -> None:
        lease = self.leases[name]
        self.write(msgspec.structs.replace(lease, spec=msgspec.structs.replace(lease.spec, **spec)))

    def edit_meta(self, name: str, **meta: Any) -> None:
        lease = self.leases[name]
        self.write(msgspec.structs.replace(lease, metadata=msgspec.structs.replace(lease.metadata, **meta)))

    def kill(self, *names: str) -> None:
        """The processes are gone: their Leases stand still."""
        self.alive.difference_update(names)
        for name in names:
            self._ended.setdefault(name, self.at)

    # ---- server -----------------------------------------------------------------------------------------------

    def write(self, lease: Lease) -> Lease:
        self._version += 1
        meta = msgspec.structs.replace(lease.metadata, resource_version=str(self._version))
        meta.uid = meta.uid or f"uid-{self._version}"
        stored = msgspec.structs.replace(lease, metadata=meta)
        self.leases[meta.name] = stored
        return stored

    def delete(self, name: str) -> None:
        self._version += 1
        del self.leases[name]

    def visible(self) -> list[Lease]:
        """What a list with the ring's selector gives."""
        return [
            lease
            for lease in self.leases.values()
            if lease.metadata.labels.get(self.keys.ring_label) == self.keys.ring
        ]

    # ---- sharder ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Every sharder reads the Leases consistently."""
        for machine in (self.machine, *self.standbys):
            machine.observe_list(
                self.visible(), resource_version=str(self._version), begun_at=self.at, at=self.at
            )

    def decide(self) -> list[Intent]:
        return self.machine.iterate(at=self.at, acting=True)[0]

    def wishes(self) -> list[Intent]:
        """What the sharder wants, labels for people left out."""
        return [intent for intent in self.decide() if not isinstance(intent, MarkState)]

    def view(self) -> View:
        return self.machine.view(at=self.at)

    def state(self, name: str) -> ShardState | None:
        shard = self.view().shards.get(name)
        return shard.state if shard else None

    def run(self, seconds: float, *, step_s: float = 0.5) -> None:
        """Let *seconds* pass: shards renew, the sharder reads, and writes if it acts."""
        for _ in range(round(seconds / step_s)):
            self.at += step_s
            if not self.reachable:
                continue
            self._renew_due()
            self.read()
            if self.acting:
                self.act()

    def act(self) -> None:
        for intent in self.decide():
            self.decided.append((self.at, intent))
            self._carry_out(intent)

    def takes_of(self, name: str) -> list[tuple[float, Take]]:
        return [(at, i) for at, i in self.decided if isinstance(i, Take) and i.lease.metadata.name == name]

    def _renew_due(self) -> None:
        for name in sorted(self.alive):
            if self.at - self._sent[name] < self._durations[name] / 3:
                continue
            if self._has_its_lease(name):
                self.renew(name)
            else:
                self.kill(name)

    def _has_its_lease(self, name: str) -> bool:
        """What a shard sees when it renews: one whose duration was edited ends; some say no duration at all."""
        spec = self.leases[name].spec if name in self.leases else LeaseSpec()
        said = spec.lease_duration_seconds
        return spec.holder_identity == name and said in (None, -1, 0, self._durations[name])

    def _carry_out(self, intent: Intent) -> None:
        common: dict[str, Any] = {"keys": self.keys}
        ours: dict[str, Any] = {"keys": self.keys, "identity": "sharder-1", "wall": WALL}
        match intent:
            case Take(lease=lease, contested=contested):
                self._swap(intent, lease, lease_writes.taken(lease, contested=contested, **ours))
            case ClearContested(lease=lease):
                self._swap(intent, lease, lease_writes.cleared(lease, **common))
            case MarkState(lease=lease, state=state):
                self._swap(intent, lease, lease_writes.marked(lease, state=state, **common))
            case CreateTombstone(name=name, member=member, duration_s=duration_s):
                if name not in self.leases:
                    self.write(
                        lease_writes.tombstone(
                            name, member=member, namespace=NAMESPACE, duration_s=duration_s, **ours
                        )
                    )
                self.machine.observe_one(self.leases[name], at=self.at)
            case NeedOrphanCheck(name=name):
                if name in self.labelled:
                    self.machine.orphan_refuted(name, at=self.at)
                else:
                    self.machine.orphan_confirmed(name, begun_at=self.at)
            case DeleteOrphan(lease=lease):
                assert self.leases[lease.metadata.name] == lease
                self.delete(lease.metadata.name)
                self.gone(lease.metadata.name)

    def _swap(self, intent: Intent, judged: Lease, wanted: Lease) -> None:
        name = judged.metadata.name
        current = self.leases.get(name)
        if current is None:
            self.gone(name)
        elif current.metadata.resource_version != judged.metadata.resource_version:
            self.refused.append(intent)
            self.machine.observe_one(current, at=self.at)
        else:
            self.machine.observe_one(self.write(wanted), at=self.at)

    def gone(self, name: str, *, known: str | None = None) -> None:
        """A GET is answered by 404; *known* was the newest version seen when it was sent, else it still is."""
        version = self.machine.version_of(name) if known is None else known
        self.machine.gone(name, at=self.at, resource_version=version)

    def _stamp(self) -> str:
        self._ticks += 1
        return f"2026-01-01T00:00:00.{self._ticks:06d}Z"


Step = Callable[[LeaseSimulation], object]
"""One event of a simulation."""


def step(method: str, *arguments: Any, **options: Any) -> Step:
    return methodcaller(method, *arguments, **options)


def run(seconds: float) -> Step:
    return step("run", seconds)


def replay(sim: LeaseSimulation, steps: Iterable[Step]) -> None:
    """Replay *steps* one after the other; the sharder reads at the end."""
    for each in steps:
        each(sim)
    sim.read()


def is_dead(view: View, name: str) -> bool:
    """Whether objects labelled *name* may be given away without a drain."""
    return view.owner_state(name) is OwnerState.DEAD


def fleet(count: int = 4, *, duration_s: int = 15, **spec: Any) -> LeaseSimulation:
    """*count* members, settled and well."""
    sim = LeaseSimulation(**spec)
    for i in range(count):
        sim.join(f"m{i}-00000001", member=f"m{i}", duration_s=duration_s)
    sim.read()
    sim.run(20)
    return sim


def fall_silent(sim: LeaseSimulation, name: str) -> float:
    """The process of *name* ends just after a renewal; when that was."""
    sim.renew(name)
    sim.read()
    sim.kill(name)
    return sim.at


def reason_of_hold(sim: LeaseSimulation) -> WaitReason | None:
    hold = sim.view().hold
    return hold.reason if hold else None


def waited(sim: LeaseSimulation, name: str, *, since: float, seconds: float = 60) -> list[tuple[float, bool]]:
    """How long after *since* the Lease was taken within *seconds*, and whether it was contested then."""
    sim.run(seconds)
    return [(at - since, take.contested) for at, take in sim.takes_of(name)]
