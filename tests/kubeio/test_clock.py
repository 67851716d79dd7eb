"""Which of the machine's clocks decisions are made by."""

from __future__ import annotations

import time

import pytest

from kubeio.clock import SystemClock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has one monotonic clock")
def test_the_clock_counts_the_time_in_which_the_machine_was_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = {time.CLOCK_BOOTTIME: 7200.0, time.CLOCK_MONOTONIC: 3600.0, time.CLOCK_REALTIME: 1.0}
    monkeypatch.setattr(time, "clock_gettime", machine.__getitem__)
    assert SystemClock().now() == 7200.0
