"""The whole benchmark with a few hundred objects on the embedded control plane: what a run leaves behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.fleet


def bench(out: Path, *flags: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.sharder", "--plane", "embedded", "--objects", "300"]
    command += ["--rounds", "1", "--limit-s", "3", "--samples", "10", "--out", str(out), "-o", "json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout, done.stderr[-2000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return done, document


@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk (the distribution's package of that name)")
@pytest.mark.slow
def test_a_run_says_what_it_was_measured_on_and_which_goals_it_missed(tmp_path: Path) -> None:
    done, document = bench(tmp_path, "--only", "assign,join", "--strict")
    figures = {figure["key"]: figure for figure in document["figures"]}
    assert set(figures) == {"assign", "join", "join-moves", "join-in-flight", "peak"}
    assert all(figure["value"] is not None and figure["how"] for figure in figures.values()), figures
    told = {key: figure["verdict"] for key, figure in figures.items()}
    assert told["assign"] == ("met" if figures["assign"]["value"] >= 95 else "MISSED")
    assert done.returncode == ("MISSED" in told.values()), "--strict"
    assert figures["join-in-flight"]["value"] > 0
    assert 10 < figures["peak"]["value"] < 500

    assert document["machine"]["cores"] >= 1
    assert {"ringleader", "python", "apiserver", "wrk"} <= set(document["versions"])
    assert "--only assign,join" in document["command"]
    rows = {row["key"]: row for row in document["rows"]}
    assert [run["writes"] for run in rows["assign"]["details"]["sharder"]] == [300]
    assert rows["join"]["details"]["without_owner_in_between"] == 0
    assert {series["name"] for series in rows["assign"]["series"]} == {"wrk 1", "sharder 1"}
    assert json.loads((tmp_path / "report.json").read_text()) == document
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_rows_that_need_no_limit_run_without_wrk(tmp_path: Path) -> None:
    done, document = bench(tmp_path, "--only", "new,rest", "--rest-sizes", "1000,3000")
    figures = {figure["key"]: figure for figure in document["figures"]}
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(figures) == {"new-p50", "new-p99", "peak", "rest"}
    rows = {row["key"]: row for row in document["rows"]}
    assert len(rows["new"]["details"]["waits_ms"]) == 10
    assert rows["rest"]["details"]["objects_listed"]["3000"] >= 3000, "the sharder has looked at every object"


def test_a_row_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.sharder", "--only", "asign", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "assign" in done.stderr
    assert "Traceback" not in done.stderr
