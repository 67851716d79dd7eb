"""The chart's priority levels on a real API server with few seats, while the real sharder labels objects.

A stranger writes and a replica's account renews a Lease meanwhile. What the server counts tells which level took each
request; how long the stranger waits is printed: two cores shared by server and clients are no place for a limit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measuring.run import Run
from benchmarks.priority import GOALS, LEVELS, WITHOUT, Documents, Flags, Turn, flags_parser, levels, measure
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
        settings: dict[str, Documents] = {WITHOUT: [], LEVELS: levels()}
        flags = flags_parser().parse_args(
            ["--objects", str(OBJECTS), "--rounds", "1", "--out", str(tmp_path)], namespace=Flags()
        )
        turns = await measure(flags, Run("priority", GOALS, flags, tmp_path), settings)
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    without, under = turns
    with capsys.disabled():
        p99s = {turn.name: round(turn.stranger.p(0.99), 1) for turn in turns}
        print(f"\nstranger's p99 in ms beside the sharder: {p99s}")

    assert {LEASES, LABELS}.isdisjoint(without.dispatched)
    assert without.dispatched["workload-low"] >= 2 * OBJECTS
    assert under.dispatched[LABELS] >= 2 * OBJECTS, "first assignment, alone and beside the stranger"
    assert under.dispatched[LEASES] >= len(under.renewals.took_ms) > 0
    assert under.dispatched["workload-low"] < without.dispatched["workload-low"] - OBJECTS
    for turn in turns:
        assert_unharmed(turn)


def assert_unharmed(turn: Turn) -> None:
    assert (turn.rejected, turn.lost_leases) == (0, 0)
    assert (turn.stranger.failed, turn.renewals.failed) == (0, 0)
    assert len(turn.stranger.took_ms) > 0
