"""Leader election on virtual time: one body at a time, prompt hand-over, loss that stops the body."""

from __future__ import annotations

import asyncio
import math
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kubeio.clock import micro_time
from kubeio.errors import Forbidden, InputError, ServerFailure
from kubeio.leases.election import Leadership, LeadershipLost, leader_gauge, leadership
from kubeio.models import Lease, LeaseSpec, Meta
from tests.kubeio.leases.fake_leases import ConnectedLeases, LeaseServer
from tests.kubeio.virtual import LoopClock, rng, run_virtually

NAME = "sharder"
Scope = AbstractAsyncContextManager[Leadership]


class Process:
    """A replica that leads whenever it can; `terms` are the times between which its body ran."""

    def __init__(self, server: LeaseServer, identity: str, scene: Scene) -> None:
        self.identity = identity
        self.link: ConnectedLeases = server.seen_by(identity)
        self.clock = LoopClock()
        self.terms: list[tuple[float, float]] = []
        self.losses: list[str] = []
        self.holders: list[str] = []
        self.held: Leadership | None = None
        self._scene = scene
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Lead, lose, try again, as a process that is started again."""
        life = 0
        while True:
            life += 1
            try:
                await self._lead(life)
            except LeadershipLost as lost:
                self.losses.append(lost.reason)
                await asyncio.sleep(0.1)

    async def _lead(self, life: int) -> None:
        async with leadership(
            self.link.leases,
            name=NAME,
            identity=self.identity,
            clock=self.clock,
            rng=rng(hash((self.identity, life)) & 0xFFFF),
            on_waiting=self.holders.append,
        ) as held:
            self.held = held
            began = asyncio.get_running_loop().time()
            self._scene.enter(self.identity)
            try:
                await asyncio.Event().wait()
            finally:
                self._scene.leave(self.identity)
                self.terms.append((began, asyncio.get_running_loop().time()))
                self.held = None


class Scene:
    """Who leads now, and whether ever two did."""

    def __init__(self) -> None:
        self.leaders: list[str] = []
        self.overlaps: list[list[str]] = []

    def enter(self, identity: str) -> None:
        self.leaders.append(identity)
        if len(self.leaders) > 1:
            self.overlaps.append(list(self.leaders))

    def leave(self, identity: str) -> None:
        self.leaders.remove(identity)


class SkewedClock(LoopClock):
    """The clock of a machine whose wall clock is *behind_s* behind that of the others."""

    def __init__(self, behind_s: float) -> None:
        super().__init__()
        self._behind_s = behind_s

    def wall(self) -> datetime:
        return super().wall() - timedelta(seconds=self._behind_s)


class Stage:
    """Several processes and one server."""

    def __init__(self, count: int) -> None:
        self.server = LeaseServer()
        self.scene = Scene()
        self.processes = [Process(self.server, f"p{number}", self.scene) for number in range(count)]

    async def __aenter__(self) -> Stage:
        for process in self.processes:
            process.task = asyncio.create_task(process.run(), name=process.identity)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            assert process.task is not None
            process.task.cancel()
        await asyncio.wait([process.task for process in self.processes if process.task])
        for process in self.processes:
            assert process.task is not None
            assert process.task.cancelled(), process.task.exception()

    def leader(self) -> Process:
        [identity] = self.scene.leaders
        return next(process for process in self.processes if process.identity == identity)


def alone(server: LeaseServer, identity: str = "me", **options: float) -> Scope:
    """A scope for a test that leads by itself."""
    return through(server.seen_by(identity), identity, **options)


def through(link: ConnectedLeases, identity: str = "me", **options: Any) -> Scope:
    return leadership(link.leases, name=NAME, identity=identity, clock=LoopClock(), rng=rng(), **options)


@pytest.mark.looptime
@pytest.mark.parametrize("count", [2, 5])
async def test_one_leads_and_the_others_wait_and_know_for_whom(count: int) -> None:
    async with Stage(count) as stage:
        await asyncio.sleep(600)
        leader = stage.leader()
        assert [term for process in stage.processes for term in process.terms] == []
        for process in stage.processes:
            assert process.holders == ([] if process is leader else [leader.identity])
        renewals = [write for write in stage.server.writes if write[1] == leader.identity]
        assert 600 / 2.5 < len(renewals) < 600 / 2
        lease = stage.server.get(NAME)
        assert lease.spec.lease_duration_seconds == 15
        assert lease.spec.lease_transitions == 0
        assert lease.spec.acquire_time is not None


@pytest.mark.looptime
async def test_leader_that_ends_releases_and_a_standby_leads_within_a_retry_period() -> None:
    async with Stage(3) as stage:
        await asyncio.sleep(60)
        first = stage.leader()
        assert first.task is not None
        first.task.cancel()
        await asyncio.wait([first.task])
        assert stage.server.get(NAME).spec.holder_identity == ""
        await asyncio.sleep(2.5)
        assert stage.leader() is not first
        assert stage.server.get(NAME).spec.lease_transitions == 1
        first.task = asyncio.create_task(first.run())


@pytest.mark.looptime
async def test_a_candidate_that_looks_more_often_leads_sooner_and_renews_no_more_often() -> None:
    server = LeaseServer()
    now = asyncio.get_running_loop().time
    led_at = math.inf

    async def second() -> None:
        nonlocal led_at
        async with alone(server, "second", look_period_s=0.4):
            led_at = now()
            await asyncio.sleep(60)

    async with alone(server, "first"):
        waiting = asyncio.create_task(second())
        await asyncio.sleep(30)
    released_at = now()
    await waiting
    assert led_at - released_at <= 0.5
    renewals = [at for at, who, _ in server.writes if who == "second"]
    assert len(renewals) == pytest.approx(2 + 60 / 2.2, abs=3)


@pytest.mark.looptime
@pytest.mark.parametrize("count", [2, 5])
async def test_partitioned_leader_stops_before_a_standby_takes_over_after_one_duration(count: int) -> None:
    async with Stage(count) as stage:
        await asyncio.sleep(60)
        first = stage.leader()
        last_renewal = max(at for at, who, _ in stage.server.writes if who == first.identity)
        first.link.is_cut = True
        await asyncio.sleep(last_renewal + 10.2 - asyncio.get_running_loop().time())
        assert stage.scene.leaders == []
        assert first.terms[-1][1] <= last_renewal + 10.1
        await asyncio.sleep(15 + 2.4 - 10.2 + 0.5)
        second = stage.leader()
        assert second is not first
        assert second.held is not None
        taken_at = min(at for at, who, _ in stage.server.writes if who == second.identity)
        assert last_renewal + 15 <= taken_at
        assert "not renewed for 10 s" in first.losses
        first.link.is_cut = False
        await asyncio.sleep(60)
        assert stage.leader() is second
        assert stage.scene.overlaps == []


@pytest.mark.looptime
async def test_process_that_was_suspended_finds_its_leadership_lost() -> None:
    async with Stage(1) as stage:
        await asyncio.sleep(60)
        process = stage.leader()
        held = process.held
        assert held is not None
        process.clock.jump(7)
        await asyncio.sleep(5)
        assert process.losses == []
        process.clock.jump(20)
        assert not held.is_held(), "a last look before an act sees it at once"
        await asyncio.sleep(0.6)
        assert process.losses == ["not renewed for 10 s"]


@pytest.mark.looptime
@pytest.mark.parametrize("behind_s", [300, -300])
async def test_a_leader_whose_wall_clock_is_behind_is_not_taken_for_silent(behind_s: float) -> None:
    """Machines disagree by minutes: a candidate counts from what it saw itself, on its own clock."""
    server, walls = LeaseServer(), SkewedClock(behind_s)
    renew_time = micro_time(walls.wall())
    spec = LeaseSpec("leader", 15, renew_time, renew_time, 0)
    server.create(Lease(Meta(name=NAME), spec), "leader")
    began = asyncio.get_running_loop().time()
    async with alone(server):
        waited_s = asyncio.get_running_loop().time() - began
    assert 15 <= waited_s <= 15 + 2.4 + 0.1


@pytest.mark.looptime
async def test_slow_api_server_costs_no_leadership() -> None:
    async with Stage(2) as stage:
        await asyncio.sleep(10)
        leader = stage.leader()
        for process in stage.processes:
            process.link.latency_s = 3.0
        await asyncio.sleep(600)
        assert stage.leader() is leader
        assert leader.losses == []


@pytest.mark.looptime
async def test_renewal_counts_from_when_it_was_sent_and_not_from_its_answer() -> None:
    async with Stage(1) as stage:
        process = stage.processes[0]
        process.link.latency_s = 3.0
        await asyncio.sleep(60)
        process.link.is_cut = True  # what is on its way still arrives and is answered
        await asyncio.sleep(14)
        sent_at = stage.server.writes[-1][0] - 3.0
        assert sent_at > 50
        assert process.terms[0][1] <= sent_at + 10.1


@pytest.mark.looptime
async def test_lease_made_anew_by_another_life_of_the_same_name_is_not_taken_for_ones_own() -> None:
    async with Stage(1) as stage:
        await asyncio.sleep(60)
        process = stage.leader()
        lease = stage.server.leases.pop(NAME)
        spec = LeaseSpec(
            holder_identity=process.identity,
            lease_duration_seconds=15,
            acquire_time="2026-01-01T01:00:00.000000Z",
            renew_time="2026-01-01T01:00:00.000000Z",
            lease_transitions=lease.spec.lease_transitions,
        )
        stage.server.create(Lease(Meta(name=NAME), spec), "twin")
        await asyncio.sleep(2.5)
        assert process.losses == [f"the Lease is held by {process.identity}"]


@pytest.mark.looptime
async def test_answers_that_get_lost_are_recognized_as_own_writes() -> None:
    async with Stage(1) as stage:
        await asyncio.sleep(10)
        process = stage.leader()
        for _ in range(20):
            process.link.answers_get_lost = True
            await asyncio.sleep(4)
            process.link.answers_get_lost = False
            await asyncio.sleep(6)
        assert process.losses == []
        assert process.held is not None


@pytest.mark.looptime
async def test_claim_whose_answer_was_lost_is_taken_up_and_not_waited_for() -> None:
    async with Stage(1) as stage:
        process = stage.processes[0]
        process.link.latency_s = 0.5
        await asyncio.sleep(0.6)  # the read was answered, the claim is on its way
        process.link.answers_get_lost = True
        await asyncio.sleep(1)
        process.link.answers_get_lost = False
        assert stage.server.get(NAME).spec.holder_identity == process.identity
        await asyncio.sleep(14)
        assert stage.leader() is process


@pytest.mark.looptime
async def test_storm_of_foreign_edits_costs_no_leadership() -> None:
    async with Stage(2) as stage:
        await asyncio.sleep(10)
        leader = stage.leader()
        for _ in range(2000):
            stage.server.touch(NAME)
            await asyncio.sleep(0.02)
        assert stage.leader() is leader
        assert leader.losses == []


@pytest.mark.looptime
@pytest.mark.parametrize("change", ["deleted", "taken"])
async def test_lease_deleted_or_taken_by_another_ends_the_body_at_the_next_renewal(change: str) -> None:
    async with Stage(2) as stage:
        await asyncio.sleep(60)
        leader = stage.leader()
        lease = stage.server.get(NAME)
        if change == "deleted":
            del stage.server.leases[NAME]
        else:
            lease.spec.holder_identity = "thief"
            stage.server.swap(lease, "thief")
        await asyncio.sleep(2.5)
        assert leader.losses == [
            "the Lease was deleted" if change == "deleted" else "the Lease is held by thief"
        ]
        await asyncio.sleep(30)
        assert len(stage.scene.leaders) == 1
        assert stage.scene.overlaps == []


@pytest.mark.looptime
@pytest.mark.parametrize(("holder", "duration_s"), [("me", 15), ("other", 40)])
async def test_a_holder_is_waited_for_as_long_as_its_lease_says_even_one_of_ones_own_name(
    holder: str, duration_s: int
) -> None:
    server = LeaseServer()
    spec = LeaseSpec(holder, duration_s, renew_time="2020-01-01T00:00:00.000000Z")
    server.create(Lease(Meta(name=NAME), spec), holder)
    async with alone(server):
        assert duration_s <= asyncio.get_running_loop().time() <= duration_s + 2.5


@pytest.mark.looptime
async def test_body_that_swallows_its_cancellation_still_ends_in_leadership_lost() -> None:
    server = LeaseServer()

    async def lead() -> None:
        async with alone(server):
            del server.leases[NAME]
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(100)

    with pytest.raises(LeadershipLost, match="the Lease was deleted"):
        await lead()


@pytest.mark.looptime
async def test_error_of_the_body_passes_unchanged_and_the_lease_is_released() -> None:
    server = LeaseServer()
    error = ExceptionGroup("the body's own", [ValueError("broken")])

    async def lead() -> None:
        async with alone(server):
            await asyncio.sleep(5)
            raise error

    with pytest.raises(ExceptionGroup) as caught:
        await lead()
    assert caught.value is error
    assert server.get(NAME).spec.holder_identity == ""


@pytest.mark.looptime
async def test_error_of_a_body_that_also_lost_its_lease_is_the_cause_of_the_loss() -> None:
    server = LeaseServer()

    async def lead() -> None:
        async with alone(server):
            del server.leases[NAME]
            try:
                await asyncio.sleep(100)
            finally:
                raise ValueError("cleanup failed")

    with pytest.raises(LeadershipLost) as caught:
        await lead()
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.looptime
async def test_lease_is_renewed_until_the_body_has_cleaned_up_and_released_only_then() -> None:
    server = LeaseServer()

    async def main() -> None:
        async with alone(server):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(60)
                assert server.get(NAME).spec.holder_identity == "me"

    task = asyncio.create_task(main())
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.sleep(59)
    renewed_at, _, lease = server.writes[-1]
    assert lease.spec.holder_identity == "me"
    assert renewed_at > asyncio.get_running_loop().time() - 3
    await asyncio.wait([task])
    assert task.cancelled()
    assert server.get(NAME).spec.holder_identity == ""


@pytest.mark.looptime
async def test_release_does_not_wait_for_ever_for_a_dead_server() -> None:
    link = LeaseServer().seen_by("me")
    async with through(link):
        link.is_cut = True
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began <= 5.1


@pytest.mark.looptime
async def test_first_attempt_that_cannot_succeed_is_told_and_a_passing_failure_is_not() -> None:
    link = LeaseServer().seen_by("me")
    link.fail_with = Forbidden("create", status=403)
    with pytest.raises(Forbidden):
        async with through(link):
            pass
    link.fail_with = ServerFailure("get", status=500)
    asyncio.get_running_loop().call_later(30, setattr, link, "fail_with", None)
    async with through(link):
        assert 30 <= asyncio.get_running_loop().time() <= 33


@pytest.mark.looptime
async def test_gauge_tells_dashboards_who_leads() -> None:
    registry = CollectorRegistry()

    def value() -> float | None:
        return registry.get_sample_value("leader_election_master_status", {"name": NAME})

    async with through(LeaseServer().seen_by("me"), status=leader_gauge(registry)):
        assert value() == 1
    assert value() == 0


@pytest.mark.parametrize("duration_s", [0, -15])
async def test_a_lease_without_duration_is_refused(duration_s: float) -> None:
    with pytest.raises(InputError, match="too short"):
        await alone(LeaseServer(), lease_duration_s=duration_s).__aenter__()


FAULT = st.sampled_from(["cut", "heal", "slow", "lose", "kill", "edit", "wait", "wait", "wait"])


@settings(max_examples=30, deadline=None)
@given(
    count=st.sampled_from([2, 5]),
    steps=st.lists(st.tuples(FAULT, st.integers(0, 4), st.floats(0.05, 12)), max_size=25),
)
def test_whatever_the_network_does_never_two_bodies_and_in_the_end_one(
    count: int, steps: list[tuple[str, int, float]]
) -> None:
    async def main() -> None:
        async with Stage(count) as stage:
            for what, which, pause_s in steps:
                strike(stage, what, stage.processes[which % count])
                await asyncio.sleep(pause_s)
                assert stage.scene.overlaps == []
            for process in stage.processes:
                strike(stage, "heal", process)
            await asyncio.sleep(45)
            assert len(stage.scene.leaders) == 1
            assert stage.scene.overlaps == []

    run_virtually(main())


def strike(stage: Stage, what: str, process: Process) -> None:
    link = process.link
    match what:
        case "cut":
            link.is_cut = True
        case "heal":
            link.is_cut, link.answers_get_lost, link.latency_s = False, False, 0.001
        case "slow":
            link.latency_s = 4.0
        case "lose":
            link.answers_get_lost = True
        case "edit":
            if NAME in stage.server.leases:
                stage.server.touch(NAME)
        case "kill":  # and started again at once, with the same name
            assert process.task is not None
            process.task.cancel()
            process.task = asyncio.create_task(process.run())
