"""Random histories: crashes, partitions, outages, deposed leaders, lost Leases, forged labels, late writes; and what
must hold in each of them (the protocol's section 8), with the real membership, planner and Lease writers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kubeio.models import Lease, Meta
from sharder.membership.actions import Take
from sharder.membership.membership import Membership
from sharder.membership.shards import Holding, holding_of, shows_held
from sharder.membership.view import OwnerState, View
from sharder.planning.decisions import NOTHING, Assign, Drain, ReportUnknown, Strip, UpdateDrain, Wait
from sharder.planning.keys import Root
from sharder.planning.planner import Subject, Terms, plan
from tests.sharder.pure.lease_simulation import LeaseSimulation, is_dead, make_spec

DURATION_S = 9
MEMBERS = ("a", "b", "c", "d")
OBJECTS = tuple(f"site-{i}" for i in range(6))


@dataclass
class LateWrite:
    """An assignment that was decided and is still on its way to the server."""

    name: str
    version: str
    decision: Assign


class Histories(RuleBasedStateMachine):
    """A ring of up to four members and six objects. One sharder acts at a time; a standby watches."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = LeaseSimulation(max_lease_duration_s=20, hold_s=12)
        self.sim.acting = False
        self.keys = self.sim.keys
        self.standby = Membership(self.sim.spec)
        self.sim.standbys = [self.standby]
        self.objects = {
            name: Meta(name=name, namespace="ns", uid=name, resource_version="1") for name in OBJECTS
        }
        self.late: list[LateWrite] = []
        self.shards = 0
        self.writes = 1
        self.pulse: dict[str, tuple[object, float]] = {}
        self.old: list[Lease] = []

    # ---- what happens -----------------------------------------------------------------------------------------

    @initialize(members=st.integers(1, 4))
    def begin(self, members: int) -> None:
        for member in MEMBERS[:members]:
            self.join(member, False)
        self.pass_time(5)

    @rule(member=st.sampled_from(MEMBERS), hold=st.booleans())
    def join(self, member: str, hold: bool) -> None:
        self.shards += 1
        self.sim.join(f"{member}-{self.shards:08x}", member=member, duration_s=DURATION_S, hold=hold)

    @rule(data=st.data())
    def kill(self, data: Any) -> None:
        self.sim.kill(self.some_name(data))

    @rule(data=st.data())
    def cut(self, data: Any) -> None:
        self.sim.cut(self.some_name(data))

    @rule(data=st.data())
    def reconnect(self, data: Any) -> None:
        """A shard that was cut off finds its Lease as it left it: it goes on."""
        name = self.some_name(data)
        lease = self.sim.leases.get(name)
        is_its_own = lease and lease.spec.lease_duration_seconds == DURATION_S
        if lease and is_its_own and lease.spec.holder_identity == name and self.sim.may_work(name):
            self.sim.renew(name)
            self.sim.alive.add(name)

    @rule(data=st.data())
    def release(self, data: Any) -> None:
        name = self.some_name(data)
        lease = self.sim.leases.get(name)
        if lease and lease.spec.holder_identity == name:
            self.sim.release(name)

    @rule(data=st.data())
    def delete_lease(self, data: Any) -> None:
        name = self.some_name(data)
        if name in self.sim.leases:
            self.sim.delete(name)

    @rule(data=st.data(), seconds=st.integers(1, 20))
    def edit_duration(self, data: Any, seconds: int) -> None:
        """A person or a backup tool writes another duration into a Lease; its shard ends when it sees that."""
        name = self.some_name(data)
        if name in self.sim.leases:
            self.sim.edit(name, lease_duration_seconds=seconds)

    @rule(data=st.data())
    def lose_ring_label(self, data: Any) -> None:
        name = self.some_name(data)
        if name in self.sim.leases:
            self.sim.edit_meta(name, labels={})

    @rule(data=st.data())
    def force(self, data: Any) -> None:
        self.sim.machine.force(self.some_name(data))

    @rule(data=st.data(), how=st.sampled_from(["delete", "force", "unlabel"]), seconds=st.integers(3, 12))
    def lose_while_cut(self, data: Any, how: str, seconds: int) -> None:
        """An owner that cannot be reached, and may be at work, loses its Lease in some other way than by silence."""
        owners = {meta.labels.get(self.keys.shard, "") for meta in self.objects.values()}
        names = sorted(owners & self.sim.alive & self.sim.leases.keys())
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        self.sim.renew(name)
        self.sim.cut(name)
        match how:
            case "delete":
                self.sim.delete(name)
            case "force":
                self.sim.machine.force(name)
            case _:
                self.sim.edit_meta(name, labels={})
        self.pass_time(seconds)

    @rule(data=st.data(), label=st.sampled_from(["stranger-00000001", "Not_A_Name", ""]))
    def forge_label(self, data: Any, label: str) -> None:
        """Only on objects nobody may be working on: what forged labels do to owned ones is section 8's exception."""
        name = data.draw(st.sampled_from(OBJECTS))
        owner = self.objects[name].labels.get(self.keys.shard, "")
        if not self.sim.may_work(owner):
            self.write_labels(name, {self.keys.shard: label})

    @rule(data=st.data())
    def stale_event(self, data: Any) -> None:
        if self.old:
            self.sim.machine.observe_one(data.draw(st.sampled_from(self.old)), at=self.sim.at)

    @rule(seconds=st.integers(1, 40))
    def outage(self, seconds: int) -> None:
        """Nobody reaches the API server."""
        self.sim.reachable = False
        self.sim.run(seconds, step_s=1)
        self.sim.reachable = True

    @rule(seconds=st.integers(1, 40))
    def sharder_asleep(self, seconds: int) -> None:
        """The sharders are suspended; shards go on."""
        machine, standbys = self.sim.machine, self.sim.standbys
        self.sim.machine, self.sim.standbys = Membership(self.sim.spec), []
        self.sim.run(seconds, step_s=1)
        self.sim.machine, self.sim.standbys = machine, standbys

    @rule()
    def sharder_restarts(self) -> None:
        self.sim.machine = Membership(self.sim.spec)

    @rule()
    def standby_takes_over(self) -> None:
        self.sim.machine, self.standby = self.standby, self.sim.machine
        self.sim.standbys = [self.standby]

    @rule(seconds=st.integers(1, 25), lose=st.booleans())
    def pass_time(self, seconds: int, lose: bool = False) -> None:
        """The fleet works; with *lose*, what the sharder assigns stays on its way."""
        for _ in range(seconds):
            self.sim.run(1, step_s=1)
            self.act()
            self.shards_answer()
            self.sharder_writes(late=lose)

    @rule()
    def late_writes_arrive(self) -> None:
        late, self.late = self.late, []
        for write in late:
            if self.objects[write.name].resource_version == write.version:
                self.assign(write.name, write.decision)

    # ---- how it is carried out --------------------------------------------------------------------------------

    def some_name(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(sorted(self.sim._sent) or ["nobody"])))

    def act(self) -> None:
        """The leader's Lease writes, each checked against what the Lease really did."""
        self.note_pulses()
        before = dict(self.sim.leases)
        decided = len(self.sim.decided)
        self.sim.labelled = {meta.labels.get(self.keys.shard, "") for meta in self.objects.values()}
        self.sim.act()
        for _, intent in self.sim.decided[decided:]:
            if isinstance(intent, Take) and not intent.contested:
                self.check_take(before.get(intent.lease.metadata.name), intent)

    def note_pulses(self) -> None:
        for name, lease in self.sim.leases.items():
            self.old = [*self.old[-20:], lease]
            pulse = (lease.spec.renew_time, lease.spec.holder_identity, lease.spec.lease_transitions)
            if name not in self.pulse or self.pulse[name][0] != pulse:
                self.pulse[name] = (pulse, self.sim.at)

    def check_take(self, lease: Lease | None, intent: Take) -> None:
        if lease is None or lease.metadata.resource_version != intent.lease.metadata.resource_version:
            return
        silent_s = self.sim.at - self.pulse[lease.metadata.name][1]
        assert holding_of(lease) is Holding.RELEASED or silent_s >= 2 * DURATION_S, (
            f"taken after {silent_s} s"
        )

    def shards_answer(self) -> None:
        """Every shard that may work passes on what it was asked for."""
        for name, meta in self.objects.items():
            owner, drain = meta.labels.get(self.keys.shard), meta.labels.get(self.keys.drain)
            if drain is None or owner not in self.sim.alive:
                continue
            target = self.sim.leases.get(drain)
            to = drain if target is not None and shows_held(target, keys=self.keys) else None
            self.write_labels(name, {self.keys.shard: to} if to else {})

    def sharder_writes(self, *, late: bool) -> None:
        for name in OBJECTS:
            decision = self.planned(name)
            self.check_decision(name, decision)
            match decision:
                case Assign() if late:
                    self.late.append(LateWrite(name, self.objects[name].resource_version, decision))
                case Assign():
                    self.assign(name, decision)
                case Drain(owner=owner, to=to) | UpdateDrain(owner=owner, to=to):
                    self.write_labels(name, {self.keys.shard: owner, self.keys.drain: to})
                case ReportUnknown(name=unknown):
                    self.sim.machine.unknown_name_seen(unknown, at=self.sim.at)
                case _:
                    assert decision == NOTHING or isinstance(decision, Wait)
                    continue
            if isinstance(decision, Drain | UpdateDrain):
                assert self.planned(name) == NOTHING

    def planned(self, name: str, view: View | None = None) -> object:
        subject = Subject(self.objects[name], Root(f"example.com_ns_{name}"))
        return plan(subject, view=view or self.sim.view(), terms=Terms(), keys=self.keys)

    def check_decision(self, name: str, decision: object) -> None:
        view, owner = self.sim.view(), self.objects[name].labels.get(self.keys.shard)
        match decision:
            case Assign(to=to, was=was):
                assert view.owner_state(to) is OwnerState.LIVE
                assert was == (owner or "")
                assert not owner or is_dead(view, owner), "moved off a live owner without a drain"
            case Drain(to=to):
                assert view.may_receive(to)
            case Strip():
                raise AssertionError("nothing is given up here")
            case _:
                pass

    def assign(self, name: str, decision: Assign) -> None:
        """Evidence, then the write; nobody may be at work under the name that loses the object."""
        target = self.sim.leases.get(decision.to)
        if target is None or not shows_held(target, keys=self.keys):
            return
        assert not self.sim.may_work(decision.was), f"{decision.was} may be at work on {name}"
        self.write_labels(name, {self.keys.shard: decision.to})

    def write_labels(self, name: str, labels: dict[str, str]) -> None:
        self.writes += 1
        self.objects[name] = msgspec.structs.replace(
            self.objects[name], labels=labels, resource_version=str(self.writes)
        )

    # ---- what holds -------------------------------------------------------------------------------------------

    @invariant()
    def one_place_for_a_member_and_one_member_for_a_place(self) -> None:
        view = self.sim.view()
        filled = [place.shard for place in view.places.values() if place.shard is not None]
        assert len(filled) == len(set(filled))
        for member, place in view.places.items():
            assert place.member == member
            assert place.shard is None or view.shards[place.shard].member == member

    @invariant()
    def only_the_dead_leave_the_selector(self) -> None:
        view = self.sim.view()
        for name, shard in view.shards.items():
            assert (name in view.not_dead) is not is_dead(view, name)
            assert is_dead(view, name) or name in view.not_dead, shard

    @invariant()
    def who_may_work_is_not_dead(self) -> None:
        for name in self.sim._sent:
            if self.sim.may_work(name) and name in self.sim.leases:
                assert not is_dead(self.sim.view(), name), f"{name} may be at work and counts as dead"

    @invariant()
    def asking_twice_gives_the_same(self) -> None:
        assert self.sim.decide() == self.sim.decide()
        assert self.sim.view() == self.sim.view()

    def teardown(self) -> None:
        """Faults end; one shard is there: every object finds its place, and then nothing is written any more."""
        self.join("a", False)
        self.pass_time(120)
        self.late_writes_arrive()
        self.pass_time(10)
        view = self.sim.view()
        for name, meta in self.objects.items():
            desired = view.desired(f"example.com_ns_{name}")
            assert desired is not None
            assert meta.labels == {self.keys.shard: desired.shard}, f"{name} is left behind"
        super().teardown()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_a_history_without_faults_settles() -> None:
    """The machine above really works objects: otherwise its invariants hold for nothing."""
    history = Histories()
    history.begin(4)
    history.pass_time(20)
    owners = {meta.labels[history.keys.shard] for meta in history.objects.values()}
    assert len(owners) > 1
    assert make_spec().settle_s < 20
    history.teardown()
