"""What every fault has at hand: the fleet, its users, randomness of its own, and what is to be undone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from devcluster.embedded.status import Refusal
from simulation.fleet import Fleet, Replica
from simulation.network import Rule, Stream
from simulation.process import Process
from simulation.scale import KEYS, LEASE_NAMESPACE, RING, SITES

if TYPE_CHECKING:
    from simulation.machine import Machine
    from simulation.users import Users

MERGE: Final = "application/merge-patch+json"
RING_PATH: Final = f"/apis/ringleader.dev/v1alpha1/controllerrings/{RING}"
SITES_PATH: Final = f"/apis/example.com/v1/namespaces/{SITES}/websites"
CHILDREN_PATH: Final = f"/api/v1/namespaces/{SITES}/configmaps"
DEFINITIONS_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASES_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"


class Strike:
    """What a fault needs: the fleet, its users, randomness of its own, and what is to be healed."""

    def __init__(
        self,
        fleet: Fleet,
        users: Users,
        rng: random.Random,
        heal: Callable[[float, Callable[[], object]], None],
    ) -> None:
        self.fleet: Final = fleet
        self.users: Final = users
        self.rng: Final = rng
        self.heal_in: Final = heal
        """Undo something in some seconds, at the end of the faults at the latest."""

    def correct_in(self, delay_s: float, undo: Callable[[], object]) -> None:
        """`heal_in` for what is stored: once more after a restore of etcd, which may bring it back."""
        self.heal_in(delay_s, undo)
        self.fleet.corrections.append(undo)

    def again_in(self, delay_s: float, create: Callable[[], None]) -> None:
        """Have *create* make something anew in *delay_s*, or as soon after that as it is gone."""
        self.heal_in(delay_s, partial(self._create, create))

    def _create(self, create: Callable[[], None]) -> None:
        try:
            create()
        except Refusal:  # it is not gone yet
            self.fleet.world.after(1.0, partial(self._create, create))

    def go_on_in(self, delay_s: float, act: Callable[[], object]) -> None:
        """Carry out a later part of the fault in *delay_s*, unless the faults are over by then."""
        self.fleet.world.after(delay_s, partial(self._go_on, act))

    def _go_on(self, act: Callable[[], object]) -> None:
        if not self.fleet.is_settling:
            act()

    @property
    def lease_s(self) -> float:
        return float(self.fleet.scale.lease_s)

    def span_s(self) -> float:
        """A short while, or one beyond two durations of a Lease."""
        return self.rng.choice((0.1, 0.5, 1.0, 2.5, 3.5)) * self.lease_s * self.rng.uniform(0.7, 1.3)

    def note(self, text: str) -> None:
        self.fleet.world.note(f"FAULT {text}")

    def processes(self, kind: str = "") -> list[Process]:
        return [
            each
            for name, each in self.fleet.processes.items()
            if not each.has_ended and name.startswith(kind)
        ]

    def replica(self) -> Replica | None:
        """A replica that runs."""
        running = [each for each in self.fleet.replicas.values() if not each.process.has_ended]
        return self.rng.choice(running) if running else None

    def process(self, kind: str = "") -> Process | None:
        running = self.processes(kind)
        return self.rng.choice(running) if running else None

    def leader(self) -> Process | None:
        """The sharder that the election's Lease names."""
        with suppress(Refusal):
            holder = (
                self.request("GET", f"{LEASES_PATH}/ringleader-sharder")["spec"].get("holderIdentity") or ""
            )
            for process in self.processes("sharder"):
                if str(process).replace("/", "-") == holder:
                    return process
        return None

    def kill_leader(self) -> None:
        """If some sharder leads."""
        if process := self.leader():
            process.kill()

    def machine(self) -> Machine:
        return self.rng.choice(self.fleet.machines)

    def streams(self) -> list[Stream]:
        """Some of the open watches, one at least if there are any."""
        open_ = self.fleet.network.streams
        return self.rng.sample(open_, self.rng.randint(1, len(open_))) if open_ else []

    def request(
        self, method: str, path: str, doc: object = None, *, content_type: str = "application/json"
    ) -> Any:
        return self.fleet.store.request(method, path, doc, content_type=content_type)

    def forge(self, method: str, path: str, doc: object = None) -> None:
        """A write that the guard would refuse."""
        self.fleet.judges.known.is_forging = True
        try:
            with suppress(Refusal):
                self.request(
                    method, path, doc, content_type=MERGE if method == "PATCH" else "application/json"
                )
        finally:
            self.fleet.judges.known.is_forging = False

    def forge_label(self, path: str, key: str, value: str | None) -> None:
        """Write a label of the ring by hand; None removes it."""
        self.fleet.world.note(f"forged {path.rpartition('/')[2]}: {key}={value}")
        self.forge("PATCH", path, {"metadata": {"labels": {key: value}}})

    def site(self) -> str:
        """Path of an object; empty if there is none."""
        return f"{SITES_PATH}/{self.rng.choice(self.users.names)}" if self.users.names else ""

    def owned_by(self, shard: str) -> list[str]:
        """Names of the objects that carry the label of *shard*."""
        with suppress(Refusal):  # not served for a while, perhaps
            items = self.request("GET", SITES_PATH)["items"]
            labels = [(item["metadata"]["name"], item["metadata"].get("labels") or {}) for item in items]
            return [name for name, label in labels if label.get(KEYS.shard) == shard]
        return []

    def shard(self) -> str:
        """A name of a Lease of the ring; empty if there is none."""
        names = [
            item["metadata"]["name"]
            for item in self.request("GET", LEASES_PATH)["items"]
            if KEYS.ring_label in (item["metadata"].get("labels") or {})
        ]
        return self.rng.choice(sorted(names)) if names else ""

    def works_pages(self, shard: str) -> bool:
        """Whether *shard* is of a replica that works no websites."""
        replica = self.fleet.of_shard(shard)
        return replica is not None and self.fleet.scale.works_pages(replica.process.name)

    def cut_off(self, process: Process, for_s: float) -> None:
        """Have no request of *process* arrive for *for_s*: it goes on, and learns nothing."""
        self.note(f"{process} is cut off for {for_s:.1f} s")
        self.add_rule(Rule("request_lost", process=process.name), for_s)

    def live_shard(self) -> Replica | None:
        """A replica that has a Lease and may work."""
        working = [each for each in self.fleet.replicas.values() if each.shard and each.may_work]
        return self.rng.choice(working) if working else None

    def refuse(self, verb: str, path: str) -> None:
        """Have a policy refuse requests of *verb* to *path* for a while."""
        rule = Rule("write_refused", verb=verb, path=path, code=self.rng.choice((403, 422)))
        self.note(f"{verb} {path.rpartition('/')[2]} is refused with {rule.code}")
        self.add_rule(rule, self.span_s())

    def stand_still(self, replica: Replica, *, judged_in_s: float | None) -> None:
        """Have every thread of *replica* stand still; unless *judged_in_s* is None it has ended by then."""
        for loop in replica.process.loops:
            replica.process.freeze(loop)
        world = self.fleet.world
        if judged_in_s is not None:
            world.after(judged_in_s, partial(self.fleet.judges.leases.judge_standstill, replica, world.now))
        self.heal_in(2.2 * self.lease_s, replica.process.thaw)

    def add_rule(self, rule: Rule, for_s: float) -> None:
        """Have *rule* hold for *for_s*."""
        rules = self.fleet.network.rules
        rules.append(rule)
        self.heal_in(for_s, partial(rules.remove, rule))

    def delete_lease(self, name: str) -> None:
        """By hand, if it is there."""
        with suppress(Refusal):
            self.request("DELETE", f"{LEASES_PATH}/{name}")

    def unlabel_lease(self, name: str) -> None:
        """Take the ring's label off a Lease, if it is there."""
        self.note(f"Lease {name} loses the ring's label")
        change = {"metadata": {"labels": {KEYS.ring_label: None}}}
        with suppress(Refusal):
            self.request("PATCH", f"{LEASES_PATH}/{name}", change, content_type=MERGE)

    def delete_children(self, *, owner: str = "") -> None:
        """Some children, of *owner* or of anybody."""
        items = self.request("GET", CHILDREN_PATH)["items"]
        labels = [(item["metadata"]["name"], item["metadata"].get("labels") or {}) for item in items]
        names = [name for name, label in labels if not owner or label.get(KEYS.shard) == owner]
        for name in self.rng.sample(names, min(len(names), 5)):
            with suppress(Refusal):
                self.request("DELETE", f"{CHILDREN_PATH}/{name}")

    def set_member(self, name: str, change: dict[str, object], for_s: float) -> None:
        """Weigh or cordon a member for *for_s*."""
        self.note(f"member {name} {change} for {for_s:.1f} s")
        self.edit_ring({"members": {name: change}})
        self.heal_in(for_s, partial(self.edit_ring, {"members": {name: None}}))

    def revoke(self, verb: str, path: str, *, process: str = "", code: int = 403, for_s: float) -> None:
        """Take a right from *process*, or from all: every request of *verb* to *path* is answered *code*."""
        self.note(f"{process or 'each process'} may not {verb} {path} for {for_s:.1f} s")
        self.add_rule(Rule("permission_revoked", process=process, verb=verb, path=path, code=code), for_s)

    def delete_ring(self) -> None:
        """If there is one; it goes when everything is released."""
        with suppress(Refusal):
            self.request("DELETE", RING_PATH)

    def edit_ring(self, change: dict[str, object]) -> None:
        """Merge *change* into the ring's spec, if there is a ring."""
        self.merge(RING_PATH, {"spec": change})

    def reset_ring(self, *fields: str) -> None:
        """Have *fields* of the ring's spec as they usually are."""
        usual = {field: self.fleet.ring["spec"].get(field) for field in fields}
        maps = (field for field, value in usual.items() if isinstance(value, dict))
        self.edit_ring(dict.fromkeys(maps))  # a merge would leave in them what they have more
        self.edit_ring(usual)

    def merge(self, path: str, change: Mapping[str, object]) -> None:
        """Merge *change* into what is at *path*, if it is there."""
        with suppress(Refusal):
            self.request("PATCH", path, change, content_type=MERGE)


Kind = Callable[[Strike], None]
KINDS: Final[dict[str, Kind]] = {}
"""Every fault by its name, in the order of the modules."""
MOMENTS: Final[dict[str, float]] = {}
"""Those that strike at one moment, and in which part of the runs."""
AT_REST: Final[set[str]] = set()
"""Those of them that strike after all others."""


def fault(kind: Kind) -> Kind:
    """Decorator: *kind* is a fault."""
    KINDS[kind.__name__] = kind
    return kind


def fault_at_rest(share: float) -> Callable[[Kind], Kind]:
    """Decorator: as `fault_at_a_moment`, when no other fault is left and everything has been at its place."""

    def add(kind: Kind) -> Kind:
        AT_REST.add(kind.__name__)
        return fault_at_a_moment(share)(kind)

    return add


def fault_at_a_moment(share: float) -> Callable[[Kind], Kind]:
    """Decorator: the fault is drawn apart, once in *share* of the runs: the others stay what they are without it."""

    def add(kind: Kind) -> Kind:
        MOMENTS[kind.__name__] = share
        return fault(kind)

    return add
