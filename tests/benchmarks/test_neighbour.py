"""The benchmark of the neighbour: its arithmetic, and a small run on the embedded control plane."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measuring.probe import Probe
from benchmarks.neighbour import GOALS, Beside, rate_at


@pytest.mark.parametrize(
    ("p99_ms", "per_s"),
    [(5, 300.0), (10, 300.0), (15, 400.0), (20, 500.0), (30, 500.0), (60, 800.0), (99, 800.0)],
)
def test_the_rate_of_the_load_generator_is_read_between_its_points(p99_ms: float, per_s: float) -> None:
    """The point at 40 ms is slower than one that others feel less: it counts as that one."""
    curve = [(20.0, 500.0), (10.0, 300.0), (40.0, 450.0), (60.0, 800.0)]
    assert rate_at(p99_ms, curve) == pytest.approx(per_s)


def test_answers_count_by_verb_and_only_those_sent_in_the_window(tmp_path: Path) -> None:
    file = tmp_path / "answers"
    rows = [f"GET {at} 0.00{at}" for at in range(1, 6)] + ["PATCH 3 0.5", "PATCH 9 9.0", "GET 3.5 0"]
    file.write_text("\n".join(rows))  # the last line is still being written
    beside = Beside("wrk, 2")
    beside.note(Probe(file), 1.0, 5.0, 400.0)  # the first quarter does not count
    assert (beside.p50("GET"), beside.p50("PATCH"), beside.rate) == (3.0, 500.0, 400.0)
    assert beside.worst_p99 == 500.0


@pytest.mark.fleet
@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk (the distribution's package of that name)")
@pytest.mark.slow
def test_every_pace_is_measured_beside_a_load_generator(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.neighbour",
        "--plane",
        "embedded",
        "--out",
        str(tmp_path),
    ]
    command += ["--objects", "3000", "--rounds", "1", "--connections", "1,4", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    document = json.loads(done.stdout)
    assert [figure["key"] for figure in document["figures"]] == list(GOALS)
    assert all(figure["value"] > 0 for figure in document["figures"])
    assert [row["key"] for row in document["rows"]] == [
        "idle",
        "wrk, 1",
        "wrk, 4",
        "Background",
        "Normal",
        "Urgent",
    ]
    assert (tmp_path / "report.png").exists()
