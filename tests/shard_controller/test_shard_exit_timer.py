"""The timer that ends a process, on virtual time: it is armed whenever work can begin."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.shard.exit_timer import LATEST
from kubeio.shard.lease_validity import LeaseValidity
from tests.kubeio.virtual import LoopClock
from tests.shard_controller.noted_timer import NotedTimer

pytestmark = pytest.mark.looptime
D = 15.0


async def test_it_ends_the_process_before_two_durations_of_the_last_renewal() -> None:
    clock = LoopClock()
    validity = LeaseValidity(duration_s=D, sent_at=clock.now())
    timer = NotedTimer(validity, clock=clock)
    timer.rearm()
    assert timer.ends_at == pytest.approx(validity.sent_at + LATEST * D)
    validity.running = 1
    await asyncio.sleep(1.5 * D)
    timer.rearm()
    assert timer.ends_at == pytest.approx(validity.sent_at + LATEST * D)


async def test_it_is_armed_at_every_moment_after_an_old_lease_is_renewed() -> None:
    """Threads may stand still from the first moment on: no tick comes then."""
    clock = LoopClock()
    validity = LeaseValidity(duration_s=D, sent_at=clock.now())
    timer = NotedTimer(validity, clock=clock)
    await asyncio.sleep(4 * D)
    timer.rearm()
    assert timer.ends_at is not None, "nothing runs under an old Lease: each tick puts it off"
    assert timer.ends_at > clock.now() + D
    await asyncio.sleep(0.3)
    validity.renewed(sent_at=clock.now())
    assert timer.ends_at <= validity.sent_at + LATEST * D
    timer.close()
    assert timer.ends_at is None
