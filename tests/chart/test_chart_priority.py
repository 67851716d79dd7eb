"""The chart's priority levels on a real API server with few seats, while the real sharder labels objects.

Another client writes and a replica's account renews a Lease meanwhile. The server's counters show the level of each
request. The client's latency is printed, not limited: server and clients share two cores.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measuring.run import Run
from benchmarks.priority import GOALS, Flags, Sample, measure
from devcluster.real import BinariesMissing
from devcluster.real.binaries import find_binaries, helm_recipe

pytestmark = [pytest.mark.real, pytest.mark.fleet, pytest.mark.timeout(300)]

OBJECTS = 1_500
LEASES, LABELS = "bench-leases-bench-ringleader-leases", "bench-leases-bench-ringleader-labels"


@pytest.mark.slow
async def test_patches_and_renewals_take_levels_of_their_own_and_nothing_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        find_binaries(["helm"], helm_recipe())
        options = Flags(
            plane="real", objects=OBJECTS, rounds=1, rate=50.0, seats=60, watchers=0, out=tmp_path
        )
        samples = await measure(options, Run("priority", GOALS, options, tmp_path))
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    ((without,), (under,)) = samples.values()
    with capsys.disabled():
        p99s = {name: round(found.client.p(0.99), 1) for name, (found,) in samples.items()}
        print(f"\nother client's p99 in ms beside the sharder: {p99s}")

    assert {LEASES, LABELS}.isdisjoint(without.dispatched)
    assert without.dispatched["workload-low"] >= 2 * OBJECTS
    assert under.dispatched[LABELS] >= 2 * OBJECTS, "first assignment, alone and beside the other client"
    assert under.dispatched[LEASES] >= len(under.renewals.took_ms) > 0
    assert under.dispatched["workload-low"] < without.dispatched["workload-low"] - OBJECTS
    assert_unharmed(without)
    assert_unharmed(under)


def assert_unharmed(sample: Sample) -> None:
    assert (sample.rejected, sample.lost_leases) == (0, 0)
    assert (sample.client.failed, sample.renewals.failed) == (0, 0)
    assert len(sample.client.took_ms) > 0
