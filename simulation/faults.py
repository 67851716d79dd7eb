"""Faults of a run: drawn beforehand from the seed, carried out in order, all healed at the end.

Each kind is a function of a `Strike`; its name is the function's. A run enables a random subset of the kinds. A fault
has randomness of its own, so that a list with some of them left out strikes with the others as before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from devcluster.embedded.status import Refusal
from simulation.fleet import Fleet, Replica
from simulation.network import Rule, Stream
from simulation.process import Process
from simulation.scale import KEYS, LEASE_NAMESPACE, RING, SITES
from simulation.store import Snapshot

if TYPE_CHECKING:
    from simulation.machine import Machine
    from simulation.users import Users

MERGE: Final = "application/merge-patch+json"
_RING: Final = f"/apis/ringleader.dev/v1alpha1/controllerrings/{RING}"
_SITES: Final = f"/apis/example.com/v1/namespaces/{SITES}/websites"
_CHILDREN: Final = f"/api/v1/namespaces/{SITES}/configmaps"
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of *kind* at a time, in seconds of the run."""

    at: float
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.at:.2f}#{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault that `str` wrote. Raises ValueError."""
        kind, _, rest = text.partition("@")
        at, _, seed = rest.partition("#")
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no fault: use {', '.join(KINDS)}")
        return cls(float(at), kind, int(seed))


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

    def again_in(self, delay_s: float, create: Callable[[], None]) -> None:
        """Have *create* make something anew in *delay_s*, or as soon after that as it is gone."""
        self.heal_in(delay_s, partial(self._create, create))

    def _create(self, create: Callable[[], None]) -> None:
        try:
            create()
        except Refusal:  # it is not gone yet
            self.fleet.world.after(1.0, partial(self._create, create))

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
            holder = self.request("GET", f"{_LEASES}/ringleader-sharder")["spec"].get("holderIdentity") or ""
            for process in self.processes("sharder"):
                if str(process).replace("/", "-") == holder:
                    return process
        return None

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
        self.fleet.judges.is_forging = True
        try:
            with suppress(Refusal):
                self.request(
                    method, path, doc, content_type=MERGE if method == "PATCH" else "application/json"
                )
        finally:
            self.fleet.judges.is_forging = False

    def site(self) -> str:
        """Path of an object; empty if there is none."""
        return f"{_SITES}/{self.rng.choice(self.users.names)}" if self.users.names else ""

    def shard(self) -> str:
        """A name of a Lease of the ring; empty if there is none."""
        names = [
            item["metadata"]["name"]
            for item in self.request("GET", _LEASES)["items"]
            if KEYS.ring_label in (item["metadata"].get("labels") or {})
        ]
        return self.rng.choice(sorted(names)) if names else ""


Kind = Callable[[Strike], None]

# -- requests


def _rule(strike: Strike, what: str, **fields: Any) -> None:
    process = strike.process()
    whose = process.name if process is not None and strike.rng.random() < 0.7 else ""
    rule = Rule(
        what,
        process=whose,
        verb=strike.rng.choice(("write", "read", "")),
        share=strike.rng.choice((0.05, 0.3, 1.0)),
        **fields,
    )
    for_s = strike.span_s()
    strike.note(
        f"{what} of {whose or 'all'}: {rule.share:.0%} of {rule.verb or 'all'} requests for {for_s:.1f} s"
    )
    rules = strike.fleet.network.rules
    rules.append(rule)
    strike.heal_in(for_s, lambda: rules.remove(rule))


def request_late(strike: Strike) -> None:
    """Requests arrive late, after the client's deadline perhaps."""
    _rule(strike, "request_late", delay_s=strike.rng.choice((0.5, 5.0, 60.0)))


def request_lost(strike: Strike) -> None:
    """Requests are lost before the server, the connection breaks."""
    _rule(strike, "request_lost")


def answer_lost(strike: Strike) -> None:
    """Requests are carried out, their answers are lost."""
    _rule(strike, "answer_lost")


def request_repeated(strike: Strike) -> None:
    """Something on the way sends requests twice."""
    _rule(strike, "request_repeated")


def server_errors(strike: Strike) -> None:
    """Requests are answered 429, 500, 503, or 504 although they are carried out."""
    _rule(strike, "server_errors", code=strike.rng.choice((429, 500, 503, 504)))


def write_refused(strike: Strike) -> None:
    """A policy refuses writes: of one object, or of new Leases."""
    if strike.rng.random() < 0.5:
        _refuse(strike, "POST", _LEASES)
    else:
        _refuse(strike, "PATCH", strike.site() or _SITES)


def _refuse(strike: Strike, verb: str, path: str) -> None:
    rule = Rule("write_refused", verb=verb, path=path, code=strike.rng.choice((403, 422)))
    for_s = strike.span_s()
    strike.note(f"write_refused {verb} {path.rpartition('/')[2]}: {rule.code} for {for_s:.1f} s")
    rules = strike.fleet.network.rules
    rules.append(rule)
    strike.heal_in(for_s, lambda: rules.remove(rule))


# -- watches


def watch_cut(strike: Strike) -> None:
    """Connections of watches break."""
    for stream in strike.streams():
        strike.note(f"watch_cut {stream.process}")
        stream.cut()


def watch_silent(strike: Strike) -> None:
    """Watches say nothing; what they had to say comes in the end."""
    for_s = strike.span_s() * strike.rng.choice((1, 5))
    for stream in strike.streams():
        strike.note(f"watch_silent {stream.process} for {for_s:.1f} s")
        stream.held_until = strike.fleet.world.now + for_s


def watch_expired(strike: Strike) -> None:
    """Watches end with 410, and the server has forgotten the past."""
    server = strike.rng.choice(strike.fleet.servers)
    strike.note(f"watch_expired {server.name}")
    server.forget_history()
    for stream in strike.streams():
        if stream.server is server:
            stream.watch.expire()


def bookmarks_withheld(strike: Strike) -> None:
    """Watches get no bookmarks any more."""
    for stream in strike.streams():
        stream.watch.withholds_bookmarks = True
    strike.note("bookmarks_withheld")


# -- processes


def process_killed(strike: Strike) -> None:
    """kill -9."""
    if process := strike.process(strike.rng.choice(("replica", "sharder"))):
        strike.note(f"process_killed {process}")
        process.kill()


def process_terminated(strike: Strike) -> None:
    """SIGTERM; it is started again."""
    if process := strike.process(strike.rng.choice(("replica", "replica", "sharder"))):
        strike.note(f"process_terminated {process}")
        strike.fleet.terminate(process.name)


def process_frozen(strike: Strike) -> None:
    """SIGSTOP, and SIGCONT later."""
    if process := strike.process(strike.rng.choice(("replica", "replica", "sharder"))):
        for_s = strike.span_s()
        strike.note(f"process_frozen {process} for {for_s:.1f} s")
        process.freeze()
        strike.heal_in(for_s, process.thaw)


def thread_frozen(strike: Strike) -> None:
    """One thread stands still: a blocked event loop, or a starved heartbeat."""
    if process := strike.process("replica"):
        loop = strike.rng.choice(process.loops)
        for_s = strike.span_s() * strike.rng.choice((1, 1, 5))
        strike.note(f"thread_frozen {process} {loop.name} for {for_s:.1f} s")
        process.freeze(loop)
        strike.heal_in(for_s, process.thaw)


def process_slowed(strike: Strike) -> None:
    """Each iteration of its loops takes time."""
    if process := strike.process():
        process.slow_s = strike.rng.choice((0.005, 0.05, 0.3))
        for_s = strike.span_s() * 2
        strike.note(f"process_slowed {process}: {process.slow_s} s per iteration for {for_s:.1f} s")
        strike.heal_in(for_s, process.speed_up)


def process_copied(strike: Strike) -> None:
    """A copy of a replica's memory renews its Lease too; what the copy writes is all that is simulated of it."""
    replica = strike.replica()
    if replica is None or not replica.shard:
        return
    path = f"{_LEASES}/{replica.shard}"
    with suppress(Refusal):
        lease = strike.request("GET", path)
        if lease["spec"].get("holderIdentity") != replica.shard:
            return
        strike.note(f"process_copied {replica.process}")
        replica.is_copied = True
        lease["spec"]["renewTime"] = replica.process.machine.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        strike.forge("PUT", path, lease)
        strike.fleet.world.after(1.5 * strike.lease_s, partial(strike.fleet.judges.judge_copy, replica))


def birth_unanswered(strike: Strike) -> None:
    """A replica is killed, and its next life gets no answers to its first writes."""
    if (replica := strike.replica()) is None:
        return
    name, for_s = replica.process.name, strike.span_s() + 5
    strike.note(f"birth_unanswered {name} for {for_s:.1f} s")
    rule = Rule("answer_lost", process=name, verb=strike.rng.choice(("POST", "write")))
    rules = strike.fleet.network.rules
    rules.append(rule)
    strike.heal_in(for_s, lambda: rules.remove(rule))
    replica.process.kill()


def leader_killed(strike: Strike) -> None:
    """kill -9 of the leading sharder."""
    if process := strike.leader():
        strike.note(f"leader_killed {process}")
        process.kill()


def leader_frozen(strike: Strike) -> None:
    """The leading sharder is stopped, and goes on where it was."""
    if process := strike.leader():
        for_s = strike.span_s()
        strike.note(f"leader_frozen {process} for {for_s:.1f} s")
        process.freeze()
        strike.heal_in(for_s, process.thaw)


def member_joined(strike: Strike) -> None:
    """One replica more."""
    taken = {name for name in strike.fleet.wanted if name.startswith("replica")}
    name = next(f"replica-{number}" for number in range(100) if f"replica-{number}" not in taken)
    if len(taken) < 10:
        strike.note(f"member_joined {name}")
        strike.fleet.add(name)


def member_left(strike: Strike) -> None:
    """The last replica is taken away for good."""
    names = sorted(name for name in strike.fleet.wanted if name.startswith("replica"))
    if len(names) > 2:
        strike.note(f"member_left {names[-1]}")
        strike.fleet.remove(names[-1])


def version_rolled(strike: Strike) -> None:
    """Every process is ended and started again, one after the other."""
    strike.note("version_rolled")
    for number, name in enumerate(sorted(strike.fleet.wanted)):
        strike.fleet.world.after(number * 4.0, partial(strike.fleet.terminate, name))


# -- machines


def machine_suspended(strike: Strike) -> None:
    """A laptop lid, or a guest that suspends itself: CLOCK_BOOTTIME runs on."""
    machine, for_s = strike.machine(), strike.span_s()
    if machine.is_running:
        strike.note(f"machine_suspended {machine.name} for {for_s:.1f} s")
        machine.suspend()
        strike.heal_in(for_s, machine.resume)


def machine_stopped(strike: Strike) -> None:
    """A hypervisor stops it: its clocks stand still."""
    machine, for_s = strike.machine(), strike.span_s()
    if machine.is_running:
        strike.note(f"machine_stopped {machine.name} for {for_s:.1f} s")
        machine.stop()
        strike.heal_in(for_s, machine.resume)


def machine_lost(strike: Strike) -> None:
    """Every process of a machine ends at once."""
    machine = strike.machine()
    strike.note(f"machine_lost {machine.name}")
    for process in strike.processes():
        if process.machine is machine:
            process.kill()


def clock_jumped(strike: Strike) -> None:
    """The wall clock of a machine is set."""
    machine, seconds = strike.machine(), strike.rng.choice((-3600.0, -30.0, 30.0, 3600.0))
    strike.note(f"clock_jumped {machine.name} by {seconds:g} s")
    machine.jump(seconds)


def clock_drifted(strike: Strike) -> None:
    """A clock runs wrong by half a thousandth: what NTP corrects at most."""
    machine, rate = strike.machine(), 1 + strike.rng.choice((-5e-4, 5e-4))
    strike.note(f"clock_drifted {machine.name} to {rate:g}")
    machine.drift(rate)


# -- servers


def partition(strike: Strike) -> None:
    """A machine does not reach some API servers, or none."""
    machine, for_s = strike.machine(), strike.span_s()
    servers = strike.fleet.servers
    if strike.rng.random() < 0.4:
        servers = strike.rng.sample(servers, strike.rng.randint(1, len(servers)))
    pairs = {(machine.name, server.name) for server in servers}
    strike.note(
        f"partition {machine.name} from {', '.join(server.name for server in servers)} for {for_s:.1f} s"
    )
    strike.fleet.network.partitions.update(pairs)
    strike.heal_in(for_s, lambda: strike.fleet.network.partitions.difference_update(pairs))


def server_restarted(strike: Strike) -> None:
    """One API server, or all, are away and come back without history."""
    servers = strike.fleet.servers if strike.rng.random() < 0.5 else [strike.rng.choice(strike.fleet.servers)]
    for_s = strike.span_s()
    strike.note(f"server_restarted {', '.join(server.name for server in servers)}, away for {for_s:.1f} s")
    for server in servers:
        server.is_up = False
        for stream in [each for each in strike.fleet.network.streams if each.server is server]:
            stream.cut()
        strike.heal_in(for_s, server.come_back)


def server_lagging(strike: Strike) -> None:
    """The watch cache of a server follows late."""
    server, for_s = strike.rng.choice(strike.fleet.servers), strike.span_s() * 2
    server.lag_s = strike.rng.choice((0.2, 2.0, 20.0))
    strike.note(f"server_lagging {server.name} by {server.lag_s} s for {for_s:.1f} s")
    strike.heal_in(for_s, server.catch_up)


def resource_failing(strike: Strike) -> None:
    """Requests for one resource are answered 500 by one server."""
    server, for_s = strike.rng.choice(strike.fleet.servers), strike.span_s()
    server.failing = strike.rng.choice(("websites", "configmaps", "leases"))
    strike.note(f"resource_failing {server.failing} on {server.name} for {for_s:.1f} s")
    strike.heal_in(for_s, server.mend)


# -- writers


def labels_forged(strike: Strike) -> None:
    """Somebody writes ring labels by hand."""
    number = strike.rng.choice((1, 5, 30))
    strike.note(f"labels_forged of {number} objects")
    for _ in range(number):
        path = strike.site()
        if not path:
            return
        key = strike.rng.choice((KEYS.shard, KEYS.drain))
        value = strike.rng.choice(
            (None, "", strike.shard(), f"replica-9-{strike.rng.getrandbits(32):08x}", "no.lease")
        )
        strike.fleet.world.note(f"forged {path.rpartition('/')[2]}: {key}={value}")
        strike.forge("PATCH", path, {"metadata": {"labels": {key: value}}})


def lease_deleted(strike: Strike) -> None:
    """A shard's Lease is deleted by hand, and a policy refuses tombstones perhaps."""
    name = strike.shard()
    if not name:
        return
    if strike.rng.random() < 0.3:
        _refuse(strike, "POST", _LEASES)
    strike.note(f"lease_deleted {name}")
    with suppress(Refusal):
        strike.request("DELETE", f"{_LEASES}/{name}")


def lease_edited(strike: Strike) -> None:
    """The duration of a shard's Lease is edited: not the renewals."""
    if name := strike.shard():
        seconds = strike.rng.choice((1, 3, int(strike.lease_s) * 2))
        strike.note(f"lease_edited {name}: {seconds} s")
        with suppress(Refusal):
            strike.request(
                "PATCH", f"{_LEASES}/{name}", {"spec": {"leaseDurationSeconds": seconds}}, content_type=MERGE
            )


def lease_forged(strike: Strike) -> None:
    """A Lease of the ring that no process holds: a restored backup."""
    name = f"ghost-{strike.rng.getrandbits(32):08x}"
    strike.note(f"lease_forged {name}")
    strike.forge(
        "POST",
        _LEASES,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "labels": {KEYS.ring_label: RING},
                "annotations": {KEYS.member: "ghost", KEYS.protocol: "v1", KEYS.synced: "true"},
            },
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": int(strike.lease_s),
                "renewTime": "2026-01-01T00:00:00.000000Z",
                "acquireTime": "2026-01-01T00:00:00.000000Z",
                "leaseTransitions": 0,
            },
        },
    )


def children_deleted(strike: Strike) -> None:
    """Children are deleted by hand."""
    names = [item["metadata"]["name"] for item in strike.request("GET", _CHILDREN)["items"]]
    for name in strike.rng.sample(names, min(len(names), 5)):
        with suppress(Refusal):
            strike.request("DELETE", f"{_CHILDREN}/{name}")
    strike.note(f"children_deleted {min(len(names), 5)}")


def owner_forged(strike: Strike) -> None:
    """A ConfigMap names a controller that no object can be, or one that does not exist."""
    name = f"stranger-{strike.rng.getrandbits(32):08x}"
    controller = strike.rng.choice(("a/b", "missing", "..", "x" * 300))
    strike.note(f"owner_forged {name}: {controller[:20]}")
    reference = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "name": controller,
        "uid": f"{strike.rng.getrandbits(32):08x}-0000-4000-8000-000000000000",
        "controller": True,
    }
    strike.forge("POST", _CHILDREN, {"metadata": {"name": name, "ownerReferences": [reference]}})


def ring_edited(strike: Strike) -> None:
    """The ring's spec is edited: settle window, imbalance, handoffs, pause."""
    field, value = strike.rng.choice(
        (
            ("settleSeconds", strike.rng.randint(0, 5)),
            ("imbalancePercent", strike.rng.choice((1, 5, 50))),
            ("maxInFlight", strike.rng.choice((1, 10, 250))),
            ("drainTimeoutSeconds", strike.rng.choice((5, 60))),
            ("paused", True),
            ("minMembers", 2),
        )
    )
    strike.note(f"ring_edited {field}={value}")
    _edit_ring(strike, {field: value})
    if field == "paused":
        strike.heal_in(strike.span_s(), partial(_edit_ring, strike, {"paused": False}))


def member_cordoned(strike: Strike) -> None:
    """A member is cordoned or weighted, and set free later."""
    if (replica := strike.replica()) is None:
        return
    name = replica.process.name
    changes: tuple[dict[str, object], ...] = ({"cordoned": True}, {"weight": 3}, {"weight": 1})
    change = strike.rng.choice(changes)
    strike.note(f"member_cordoned {name} {change}")
    _edit_ring(strike, {"members": {name: change}})
    strike.heal_in(strike.span_s() * 2, partial(_edit_ring, strike, {"members": {name: None}}))


def ring_deleted(strike: Strike) -> None:
    """The ring is deleted: every object is given up. It is made anew when it is gone."""
    strike.note("ring_deleted")
    with suppress(Refusal):
        strike.request("DELETE", _RING)
    strike.again_in(strike.span_s(), strike.fleet.create_ring)


def namespace_deselected(strike: Strike) -> None:
    """The ring selects no namespace any more, and later all of them again."""
    strike.note("namespace_deselected")
    _edit_ring(strike, {"namespaceSelector": {"matchLabels": {"no": "such-label"}}})
    strike.heal_in(strike.span_s(), partial(_edit_ring, strike, {"namespaceSelector": None}))


def resource_listed(strike: Strike) -> None:
    """The ring lists a resource that no replica works, and gives it up later."""
    strike.note("resource_listed")
    resources = strike.fleet.ring["spec"]["resources"]
    _edit_ring(strike, {"resources": [*resources, {"group": "", "resource": "secrets"}]})
    for number in range(3):
        with suppress(Refusal):
            strike.request(
                "POST", f"/api/v1/namespaces/{SITES}/secrets", {"metadata": {"name": f"secret-{number}"}}
            )
    strike.heal_in(strike.span_s(), partial(_edit_ring, strike, {"resources": resources}))


def _edit_ring(strike: Strike, change: dict[str, object]) -> None:
    with suppress(Refusal):
        strike.request("PATCH", _RING, {"spec": change}, content_type=MERGE)


def etcd_restored(strike: Strike) -> None:
    """etcd goes back to a backup, with or without raised revisions; with them everything is started again."""
    store, for_s = strike.fleet.store, strike.span_s()
    snapshot, bump = store.snapshot(), strike.rng.choice((0, 100_000))
    strike.note(f"etcd_restored {'with raised' if bump else 'without raised'} revisions in {for_s:.1f} s")
    strike.fleet.world.after(for_s, partial(_restore, strike, snapshot, bump))


def _restore(strike: Strike, snapshot: Snapshot, bump: int) -> None:
    fleet = strike.fleet
    fleet.world.note("FAULT etcd is restored now")
    fleet.store.restore(snapshot, bump=bump)
    fleet.judges.begin_history()
    strike.users.forget()
    for stream in list(fleet.network.streams):
        stream.cut()
    for server in fleet.servers:
        server.begin_history()
    if bump:
        for process in strike.processes():
            process.kill()


def namespace_recreated(strike: Strike) -> None:
    """A namespace is deleted with all that is in it, and made anew: the objects' or the Leases'."""
    name = strike.rng.choice((SITES, LEASE_NAMESPACE))
    strike.note(f"namespace_recreated {name}")
    if name == SITES:
        strike.users.names.clear()
    strike.forge("DELETE", f"/api/v1/namespaces/{name}")
    strike.again_in(strike.span_s(), partial(strike.fleet.create_namespace, name))


def definition_recreated(strike: Strike) -> None:
    """The CustomResourceDefinition is deleted, with all objects, and made anew."""
    strike.note("definition_recreated")
    strike.users.names.clear()
    strike.forge("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/websites.example.com")
    strike.again_in(strike.span_s(), strike.fleet.define)


KINDS: Final[dict[str, Kind]] = {
    kind.__name__: kind
    for kind in (
        request_late,
        request_lost,
        answer_lost,
        request_repeated,
        server_errors,
        write_refused,
        watch_cut,
        watch_silent,
        watch_expired,
        bookmarks_withheld,
        process_killed,
        process_terminated,
        process_frozen,
        thread_frozen,
        process_slowed,
        process_copied,
        birth_unanswered,
        leader_killed,
        leader_frozen,
        member_joined,
        member_left,
        version_rolled,
        machine_suspended,
        machine_stopped,
        machine_lost,
        clock_jumped,
        clock_drifted,
        partition,
        server_restarted,
        server_lagging,
        resource_failing,
        labels_forged,
        lease_deleted,
        lease_edited,
        lease_forged,
        children_deleted,
        owner_forged,
        ring_edited,
        member_cordoned,
        ring_deleted,
        namespace_deselected,
        resource_listed,
        etcd_restored,
        namespace_recreated,
        definition_recreated,
    )
}


_DENSE_S: Final = 300.0
"""A run of so long has 3 to 32 faults, a longer one more."""


def draw(rng: random.Random, *, begin: float, end: float, kinds: Sequence[str]) -> list[Fault]:
    """The faults of a run between *begin* and *end*: a random subset of *kinds*, few or many."""
    share = rng.choice((0.1, 0.3, 0.6))
    enabled = [kind for kind in kinds if rng.random() < share] or [rng.choice(list(kinds))]
    number = round(rng.choice((3, 8, 16, 32)) * max(1.0, (end - begin) / _DENSE_S))
    times = sorted(rng.uniform(begin, end) for _ in range(number))
    return [Fault(round(at, 2), rng.choice(enabled), rng.randrange(10**6)) for at in times]


class Faults:
    """Carries out *faults*, and heals what is left of them with `heal`."""

    def __init__(self, fleet: Fleet, users: Users, faults: Iterable[Fault]) -> None:
        self._fleet: Final = fleet
        self._users: Final = users
        self._open: Final[dict[int, Callable[[], object]]] = {}
        for fault in faults:
            fleet.world.at(fault.at, partial(self._strike, fault))

    def heal(self) -> None:
        """Undo every fault that still lasts."""
        for number in list(self._open):
            self._undo(number)

    def _strike(self, fault: Fault) -> None:
        rng = random.Random(fault.seed)  # noqa: S311 - drawn from the run's seed
        KINDS[fault.kind](Strike(self._fleet, self._users, rng, self._heal_in))

    def _heal_in(self, delay_s: float, undo: Callable[[], object]) -> None:
        number = len(self._open) + self._fleet.world.events
        while number in self._open:
            number += 1
        self._open[number] = undo
        self._fleet.world.after(delay_s, partial(self._undo, number))

    def _undo(self, number: int) -> None:
        undo = self._open.pop(number, None)
        if undo is not None:
            undo()
