"""The heartbeat on virtual time, against a Lease that behaves: protocol 5.1."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from kubeio.models import LeaseSpec
from kubeio.shard.errors import LeaseLost, Stalled
from kubeio.shard.exit_timer import LATEST
from kubeio.shard.heartbeat import Heartbeat
from kubeio.shard.lease_validity import LeaseValidity, Phase
from kubeio.shard.progress import StallDetector
from tests.kubeio.virtual import LoopClock
from tests.shard_controller.heartbeats import NAME, D, FakeLeases, Life

pytestmark = pytest.mark.looptime


async def test_it_renews_every_third_of_the_duration() -> None:
    life = Life()
    assert await life.run(for_s=26) is None
    assert life.swapped_at() == pytest.approx([5, 10, 15, 20, 25], abs=0.01)
    assert life.phases == []


async def test_the_age_counts_from_when_the_renewal_was_sent() -> None:
    life = Life()
    life.leases.takes_s = 4.0
    await life.run(for_s=9.5)
    assert life.validity.sent_at - life.began_at == pytest.approx(5, abs=0.01)


async def test_after_two_thirds_without_renewal_work_pauses() -> None:
    life = Life()
    life.leases.is_down = True
    assert await life.run(for_s=14) is None
    assert [(round(at), phase) for at, phase in life.phases] == [(10, Phase.PAUSED)]


@pytest.mark.parametrize(("duration_s", "least_s"), [(15.0, 0.8), (2.5, 0.2), (0.5, 0.2)])
async def test_renewals_that_are_refused_are_repeated_after_pauses(duration_s: float, least_s: float) -> None:
    life = Life(duration_s=duration_s)
    life.leases.is_down = True
    assert await life.run(for_s=30) is None
    attempts = life.leases.attempts
    assert len(attempts) > 20
    assert min(later - earlier for earlier, later in pairwise(attempts)) >= least_s


async def test_with_nothing_running_it_waits_and_goes_on_when_its_swap_succeeds() -> None:
    life = Life()
    life.leases.is_down = True
    life.later(60, setattr, life.leases, "is_down", False)
    assert await life.run(for_s=70) is None
    assert [phase for _, phase in life.phases] == [Phase.PAUSED, Phase.LAPSED, Phase.HELD]
    assert life.phases[-1][0] == pytest.approx(60, abs=2.0)


async def test_something_still_running_at_the_whole_duration_ends_the_process() -> None:
    life = Life()
    life.leases.is_down = True
    life.validity.running = 1
    error = await life.run(for_s=30)
    assert isinstance(error, LeaseLost)
    assert "still runs" in error.reason
    assert life.elapsed() == pytest.approx(D, abs=0.6)


async def test_a_suspended_process_that_was_working_ends_before_it_renews() -> None:
    life = Life()
    life.validity.running = 1

    error = await life.run(
        lambda: asyncio.get_running_loop().call_later(4.99, life.clock.jump, 40.0), for_s=10
    )
    assert isinstance(error, LeaseLost)
    assert life.leases.swaps == []


async def test_a_lease_that_was_taken_ends_the_process() -> None:
    life = Life()
    error = await life.run(life.leases.take, for_s=6)
    assert isinstance(error, LeaseLost)
    assert "'sharder'" in error.reason


async def test_a_lease_that_was_deleted_ends_the_process_and_is_not_made_again() -> None:
    life = Life()
    error = await life.run(lambda: setattr(life.leases, "lease", None), for_s=6)
    assert isinstance(error, LeaseLost)
    assert life.leases.lease is None


async def test_an_edited_duration_ends_the_process() -> None:
    life = Life()
    spec = LeaseSpec(holder_identity=NAME, lease_duration_seconds=600)
    error = await life.run(lambda: life.leases.edit(spec=spec), for_s=6)
    assert isinstance(error, LeaseLost)
    assert "duration" in error.reason


async def test_what_is_announced_is_in_the_lease_at_once_and_stays_there() -> None:
    life = Life()
    life.later(1, life.heartbeat.announce, lambda: {"synced": "true"})
    life.later(2, life.leases.edit)
    assert await life.run(for_s=12) is None
    assert life.swapped_at() == pytest.approx([1, 6, 11], abs=0.01)
    assert life.annotations() == {"synced": "true"}


async def test_each_renewal_writes_what_is_so_at_that_moment() -> None:
    life = Life()
    counts = {"objects": "websites=1"}
    life.later(1, life.heartbeat.announce, lambda: counts)
    life.later(2, counts.update, {"objects": "websites=2"})
    assert await life.run(for_s=4) is None
    assert life.annotations() == {"objects": "websites=1"}
    assert await life.run(for_s=4) is None
    assert life.annotations() == {"objects": "websites=2"}


async def test_what_was_announced_in_an_outage_is_written_after_it() -> None:
    life = Life()
    life.leases.is_down = True
    life.later(1, life.heartbeat.announce, lambda: {"synced": "true"})
    life.later(7, setattr, life.leases, "is_down", False)
    assert await life.run(for_s=9) is None
    assert life.annotations() == {"synced": "true"}


async def test_the_timer_counts_from_when_the_first_renewal_after_an_outage_was_sent() -> None:
    """The ticks put it off while nothing runs; threads may stand still as soon as work begins."""
    life = Life()
    life.leases.is_down, life.leases.takes_s = True, 0.3 * D
    life.later(3 * D, setattr, life.leases, "is_down", False)
    ends_in: list[float] = []

    def note_end() -> None:
        if life.validity.holds(life.clock.now()) and life.timer.ends_at is not None:
            ends_in.append(life.timer.ends_at - life.validity.sent_at)

    for hundredth in range(int(2.9 * D * 100), int(4.5 * D * 100)):
        life.later(hundredth / 100, note_end)
    assert await life.run(for_s=5 * D) is None
    assert ends_in
    assert max(ends_in) <= LATEST * D + 0.001


async def test_of_two_copies_of_one_process_the_second_to_renew_ends() -> None:
    """A guest restored from a snapshot beside the original has its name, its Lease and its memory."""
    life, copy = Life(), Life()
    copy.heartbeat = Heartbeat(
        life.leases,
        life.heartbeat.lease,
        validity=copy.validity,
        progress=copy.progress,
        timer=copy.timer,
        clock=copy.clock,
        rng=random.Random(2),
        on_phase=lambda _: None,
    )
    copy.validity.renewed(sent_at=copy.clock.now() + 1)
    ended, copy_ended = await asyncio.gather(life.run(for_s=40), copy.run(for_s=40))
    assert ended is None
    assert isinstance(copy_ended, LeaseLost)
    assert "another process" in copy_ended.reason
    assert life.swapped_at() == pytest.approx(range(5, 41, 5), abs=0.01)


async def test_a_copy_that_stops_does_not_release_the_lease_of_the_other() -> None:
    life = Life()
    assert life.leases.lease is not None
    assert life.heartbeat.wrote(life.leases.lease)
    spec = msgspec.structs.replace(life.leases.lease.spec, renew_time="2026-01-01T00:00:07.000000Z")
    life.leases.edit(spec=spec)
    assert not life.heartbeat.wrote(life.leases.lease)


async def test_a_label_written_by_the_sharder_costs_one_more_swap() -> None:
    life = Life()
    assert await life.run(lambda: life.leases.edit(labels={"state": "ready"}), for_s=6) is None
    assert life.swapped_at() == pytest.approx([5], abs=0.1)
    assert life.leases.lease is not None
    assert life.leases.lease.metadata.labels == {"state": "ready"}


async def test_a_renewal_whose_answer_was_lost_is_made_good_by_the_next() -> None:
    life = Life()
    life.leases.loses_answers = True
    life.later(6, setattr, life.leases, "loses_answers", False)
    assert await life.run(for_s=9) is None
    assert life.validity.sent_at - life.began_at == pytest.approx(6, abs=1.1)


async def test_a_renewal_whose_answer_was_lost_counts_once_it_is_read() -> None:
    """It is not sent again at once: with every third answer lost, a fleet would renew twice as often."""
    life = Life()
    life.leases.loses_answers = True
    life.later(5.5, setattr, life.leases, "loses_answers", False)
    assert await life.run(for_s=6.25) is None
    assert life.swapped_at() == pytest.approx([5], abs=0.01)
    assert life.validity.sent_at - life.began_at == pytest.approx(5, abs=0.01)
    assert await life.run(for_s=6) is None
    assert life.swapped_at()[1] - 5 < D / 3 + 0.01


async def test_after_an_outage_of_an_hour_a_label_written_by_the_sharder_costs_one_more_swap() -> None:
    """The Lease shows the renewal of before the outage; a thousand have failed since."""
    life = Life()
    life.later(6, setattr, life.leases, "is_down", True)
    life.later(3600, life.leases.edit)
    life.later(3600.001, setattr, life.leases, "is_down", False)
    assert await life.run(for_s=3620) is None
    assert life.phases[-1][1] is Phase.HELD


async def test_what_is_announced_after_an_answer_was_lost_is_written_at_once() -> None:
    life = Life()
    life.leases.loses_answers = True
    life.later(5.5, setattr, life.leases, "loses_answers", False)
    life.later(5.6, life.heartbeat.announce, lambda: {"synced": "true"})
    assert await life.run(for_s=5.8) is None
    assert life.annotations() == {"synced": "true"}


async def test_a_blocked_main_loop_stops_the_heartbeat() -> None:
    life = Life(deadline_s=60)
    beating = asyncio.create_task(life.heartbeat.run())
    await asyncio.wait({beating})
    group = beating.exception()
    assert isinstance(group, BaseExceptionGroup)
    assert group.subgroup(Stalled) is not None
    assert life.elapsed() == pytest.approx(60, abs=1.5)
    assert life.leases.swaps[-1] - life.began_at <= 61


async def test_a_loop_that_does_not_tick_is_noticed_at_the_deadline() -> None:
    clock = LoopClock()
    progress = StallDetector(deadline_s=60, clock=clock)
    found = []
    for _ in range(62):
        clock.jump(1)
        found.append(progress.check())
    assert found[:60] == [None] * 60
    assert found[60] == ("event loop did not tick", 61.0)


@pytest.mark.parametrize(
    ("ticks", "stalls"),
    [
        ({"due": 5}, "oldest due key did not move"),
        ({"is_fresh": False}, "watch streams were silent"),
        ({"due": 5, "moves": 1}, None),
        ({"due": 5, "is_held": False}, None),
        ({"is_fresh": False, "is_held": False}, None),
    ],
)
async def test_progress_is_keys_and_streams_while_the_lease_is_held(
    ticks: dict[str, Any], stalls: str | None
) -> None:
    progress = StallDetector(deadline_s=60, clock=LoopClock())
    reported: dict[str, Any] = {"due": 0, "is_fresh": True, "is_held": True, **ticks}
    moves = reported.pop("moves", 0)
    for number in range(62):
        progress.tick(taken=number * moves, **reported)
    found = progress.check()
    assert (found[0] if found else None) == stalls


async def test_a_suspended_process_does_not_wake_up_stalled() -> None:
    clock = LoopClock()
    progress = StallDetector(deadline_s=60, clock=clock)
    clock.jump(3600)
    assert progress.check() is None


async def test_starting_is_refused_from_two_thirds_on() -> None:
    validity = LeaseValidity(duration_s=15, sent_at=0.0)
    assert validity.start(9.99)
    assert not validity.start(10.0)
    assert validity.running == 1


async def test_after_an_outage_replicas_do_not_renew_in_step() -> None:
    """They all had failed, and all succeed in the same moment: the renewals after it are spread over a third."""
    nexts = []
    for seed in range(30):
        life = Life(seed=seed)
        life.leases.is_down = True

        async def end(leases: FakeLeases = life.leases) -> None:
            await asyncio.sleep(8)
            leases.is_down = False

        ending = asyncio.create_task(end())
        assert await life.run(for_s=20) is None
        await ending
        first, second, third = life.leases.swaps[:3]
        nexts.append(second - first)
        assert third - second == pytest.approx(D / 3, abs=0.01), "only the first one is early"
    assert min(nexts) < D / 3 * 0.2
    assert max(nexts) > D / 3 * 0.8


async def test_a_lease_of_a_restored_backup_is_lost() -> None:
    """Its history went back: it shows a renewal of long ago, at a version that comes again."""
    life = Life()
    backup = life.leases.lease
    restored = asyncio.get_running_loop().call_later(12, lambda: setattr(life.leases, "lease", backup))
    assert isinstance(await life.run(for_s=30), LeaseLost)
    restored.cancel()
