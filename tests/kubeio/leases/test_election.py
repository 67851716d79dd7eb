"""Leader election on virtual time: one body at a time, prompt hand-over, loss that stops the body."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kubeio.clock import micro_time
from kubeio.errors import Forbidden, HistoryWentBack, InputError, ServerFailure
from kubeio.leases.election import LeadershipLost, leader_gauge
from kubeio.models import Lease, LeaseSpec, Meta
from tests.kubeio.leases.candidates import NAME, Election, Process, SkewedClock, alone, through
from tests.kubeio.leases.fake_leases import LeaseServer
from tests.kubeio.virtual import run_virtually


@pytest.mark.looptime
@pytest.mark.parametrize("count", [2, 5])
async def test_one_leads_and_the_others_wait_and_know_for_whom(count: int) -> None:
    async with Election(count) as election:
        await asyncio.sleep(600)
        leader = election.leader()
        assert [term for process in election.processes for term in process.terms] == []
        for process in election.processes:
            assert process.holders == ([] if process is leader else [leader.identity])
        renewals = [write for write in election.server.writes if write[1] == leader.identity]
        assert 600 / 2.5 < len(renewals) < 600 / 2
        lease = election.server.get(NAME)
        assert lease.spec.lease_duration_seconds == 15
        assert lease.spec.lease_transitions == 0
        assert lease.spec.acquire_time is not None


@pytest.mark.looptime
async def test_leader_that_ends_releases_and_a_standby_leads_within_a_retry_period() -> None:
    async with Election(3) as election:
        await asyncio.sleep(60)
        first = election.leader()
        assert first.task is not None
        first.task.cancel()
        await asyncio.wait([first.task])
        assert election.server.get(NAME).spec.holder_identity == ""
        await asyncio.sleep(2.5)
        assert election.leader() is not first
        assert election.server.get(NAME).spec.lease_transitions == 1
        first.task = asyncio.create_task(first.run())


@pytest.mark.looptime
async def test_a_candidate_that_reads_more_often_leads_sooner_and_renews_no_more_often() -> None:
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
    async with Election(count) as election:
        await asyncio.sleep(60)
        first = election.leader()
        last_renewal = max(at for at, who, _ in election.server.writes if who == first.identity)
        first.link.is_cut = True
        await asyncio.sleep(last_renewal + 10.2 - asyncio.get_running_loop().time())
        assert election.leaders.names == []
        assert first.terms[-1][1] <= last_renewal + 10.1
        await asyncio.sleep(15 + 2.4 - 10.2 + 0.5)
        second = election.leader()
        assert second is not first
        assert second.held is not None
        taken_at = min(at for at, who, _ in election.server.writes if who == second.identity)
        assert last_renewal + 15 <= taken_at
        assert "not renewed for 10 s" in first.losses
        first.link.is_cut = False
        await asyncio.sleep(60)
        assert election.leader() is second
        assert election.leaders.overlaps == []


@pytest.mark.looptime
async def test_process_that_was_suspended_finds_its_leadership_lost() -> None:
    async with Election(1) as election:
        await asyncio.sleep(60)
        process = election.leader()
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
    async with Election(2) as election:
        await asyncio.sleep(10)
        leader = election.leader()
        for process in election.processes:
            process.link.latency_s = 3.0
        await asyncio.sleep(600)
        assert election.leader() is leader
        assert leader.losses == []


@pytest.mark.looptime
async def test_renewal_counts_from_when_it_was_sent_and_not_from_its_answer() -> None:
    async with Election(1) as election:
        process = election.processes[0]
        process.link.latency_s = 3.0
        await asyncio.sleep(60)
        process.link.is_cut = True  # what is on its way still arrives and is answered
        await asyncio.sleep(14)
        sent_at = election.server.writes[-1][0] - 3.0
        assert sent_at > 50
        assert process.terms[0][1] <= sent_at + 10.1


@pytest.mark.looptime
async def test_lease_made_anew_by_another_life_of_the_same_name_is_not_taken_for_ones_own() -> None:
    async with Election(1) as election:
        await asyncio.sleep(60)
        process = election.leader()
        lease = election.server.leases.pop(NAME)
        spec = LeaseSpec(
            holder_identity=process.identity,
            lease_duration_seconds=15,
            acquire_time="2026-01-01T01:00:00.000000Z",
            renew_time="2026-01-01T01:00:00.000000Z",
            lease_transitions=lease.spec.lease_transitions,
        )
        election.server.create(Lease(Meta(name=NAME), spec), "twin")
        await asyncio.sleep(2.5)
        assert process.losses == [f"the Lease is held by {process.identity}"]


@pytest.mark.looptime
async def test_answers_that_get_lost_are_recognized_as_own_writes() -> None:
    async with Election(1) as election:
        await asyncio.sleep(10)
        process = election.leader()
        for _ in range(20):
            process.link.answers_get_lost = True
            await asyncio.sleep(4)
            process.link.answers_get_lost = False
            await asyncio.sleep(6)
        assert process.losses == []
        assert process.held is not None


@pytest.mark.looptime
async def test_claim_whose_answer_was_lost_is_taken_up_and_not_waited_for() -> None:
    async with Election(1) as election:
        process = election.processes[0]
        process.link.latency_s = 0.5
        await asyncio.sleep(0.6)  # the read was answered, the claim is on its way
        process.link.answers_get_lost = True
        await asyncio.sleep(1)
        process.link.answers_get_lost = False
        assert election.server.get(NAME).spec.holder_identity == process.identity
        await asyncio.sleep(14)
        assert election.leader() is process


@pytest.mark.looptime
async def test_storm_of_foreign_edits_costs_no_leadership() -> None:
    async with Election(2) as election:
        await asyncio.sleep(10)
        leader = election.leader()
        for _ in range(2000):
            election.server.touch(NAME)
            await asyncio.sleep(0.02)
        assert election.leader() is leader
        assert leader.losses == []


@pytest.mark.looptime
@pytest.mark.parametrize("change", ["deleted", "taken"])
async def test_lease_deleted_or_taken_by_another_ends_the_body_at_the_next_renewal(change: str) -> None:
    async with Election(2) as election:
        await asyncio.sleep(60)
        leader = election.leader()
        lease = election.server.get(NAME)
        if change == "deleted":
            del election.server.leases[NAME]
        else:
            lease.spec.holder_identity = "thief"
            election.server.swap(lease, "thief")
        await asyncio.sleep(2.5)
        assert leader.losses == [
            "the Lease was deleted" if change == "deleted" else "the Lease is held by thief"
        ]
        await asyncio.sleep(30)
        assert len(election.leaders.names) == 1
        assert election.leaders.overlaps == []


@pytest.mark.looptime
async def test_a_leader_whose_lease_goes_back_ends_at_the_next_renewal() -> None:
    server = LeaseServer()

    async def lead() -> None:
        async with alone(server):
            await asyncio.sleep(60)
            server.restore(NAME, version=2)
            await asyncio.sleep(3)
            raise AssertionError("the body goes on")

    with pytest.raises(HistoryWentBack, match="sharder: version 2 after"):
        await lead()


@pytest.mark.looptime
async def test_a_candidate_that_sees_a_lease_go_back_ends_at_the_next_look() -> None:
    server = LeaseServer()
    server.create(Lease(Meta(name=NAME), LeaseSpec("leader", 100)), "leader")
    server.touch(NAME)

    async def wait() -> None:
        async with alone(server, "standby"):
            raise AssertionError("it leads")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(10)
    assert not waiting.done()
    server.restore(NAME, version=1)
    await asyncio.sleep(3)
    assert isinstance(waiting.exception(), HistoryWentBack)


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
async def test_first_attempt_that_cannot_succeed_is_reported_and_a_passing_failure_is_not() -> None:
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
async def test_gauge_shows_dashboards_who_leads() -> None:
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
        async with Election(count) as election:
            for what, which, pause_s in steps:
                strike(election, what, election.processes[which % count])
                await asyncio.sleep(pause_s)
                assert election.leaders.overlaps == []
            for process in election.processes:
                strike(election, "heal", process)
            await asyncio.sleep(45)
            assert len(election.leaders.names) == 1
            assert election.leaders.overlaps == []

    run_virtually(main())


def strike(election: Election, what: str, process: Process) -> None:
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
            if NAME in election.server.leases:
                election.server.touch(NAME)
        case "kill":  # and started again at once, with the same name
            assert process.task is not None
            process.task.cancel()
            process.task = asyncio.create_task(process.run())
