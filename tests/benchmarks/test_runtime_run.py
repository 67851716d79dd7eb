"""The runtime's benchmark with a few hundred objects on the embedded control plane: what a run leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.fleet

OBJECTS = 300


def bench(out: Path, *flags: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A run on a machine without Go and with an empty cache of built programs."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.runtime",
        "--plane",
        "embedded",
        "--objects",
        str(OBJECTS),
    ]
    command += ["--rounds", "1", "--out", str(out), "-o", "json", *flags]
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(out)}
    environment.pop("KUBEBUILDER_ASSETS", None)
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)
    assert done.stdout, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return done, document


def figures_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {figure["key"]: figure for figure in document["figures"]}


@pytest.mark.skipif(Path("/usr/bin/go").exists(), reason="Go is where the run would find it")
@pytest.mark.slow
def test_a_start_is_measured_beside_every_peer_that_is_there(tmp_path: Path) -> None:
    done, document = bench(tmp_path, "--only", "start,stall")
    found = figures_of(document)
    assert done.returncode == 0, done.stderr[-2000:]
    assert found["start-raw-list"]["value"] > 0
    assert 10 < found["rss-raw"]["value"] < 500
    assert found["start-raw-go"]["verdict"] == "skipped"
    assert "install Go" in found["start-raw-go"]["how"]
    assert found["stall"]["value"] >= 0
    rows = {row["key"]: row for row in document["rows"]}
    contestants = rows["start"]["details"]["contestants"]
    for key in ("ours-raw", "kopf", "kubernetes"):
        assert contestants[key]["start_s"] > 0, contestants[key]
        assert contestants[key]["peak_rss_mb"] > 10, contestants[key]
    assert rows["start"]["details"]["list_bytes"] > OBJECTS * 800, "whole objects were read"
    assert {"kopf", "kubernetes", "controller-runtime", "apiserver"} <= set(document["versions"])
    assert json.loads((tmp_path / "report.json").read_text()) == document
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_rates_waits_and_renewals_are_counted(tmp_path: Path) -> None:
    flags = ("--reconciles", "2000", "--samples", "20", "--minutes", "0.1", "--lease-s", "3")
    done, document = bench(tmp_path, "--only", "rate,event,lease", *flags)
    found = figures_of(document)
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(found) == {
        *("rate-raw", "rate-model", "rate-kopf"),
        *("event-p50", "event-p99", "event-real", "lease"),
    }
    rows = {row["key"]: row for row in document["rows"]}
    assert found["rate-raw"]["value"] > 100
    assert len(rows["event"]["details"]["stub_ms"]) == 20
    assert min(rows["event"]["details"]["stub_ms"]) > 0, "no reconcile begins before its event was sent"
    assert len(rows["event"]["details"]["real_ms"]) == 10
    assert rows["lease"]["details"]["renewals"] >= 4, "every second for six seconds"
    assert rows["lease"]["details"]["writes_per_s"] > 0, "the load is a load"


@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk (the distribution's package of that name)")
@pytest.mark.slow
def test_status_writes_are_compared_with_what_wrk_reaches_with_the_same_patches(tmp_path: Path) -> None:
    _, document = bench(tmp_path, "--only", "write", "--limit-s", "3", "--connections", "8")
    write = figures_of(document)["write"]
    assert write["value"] > 0, write
    (row,) = document["rows"]
    (theirs,), (turn,) = row["details"]["wrk"], row["details"]["ringleader"]
    assert (theirs["writes"], theirs["refused"]) == (OBJECTS, 0), "every patch of wrk passed its fence"
    assert turn["writes"] == OBJECTS, "one status write for each object"
    assert {series["name"] for series in row["series"]} == {"wrk 1", "ringleader 1"}


def test_a_row_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.runtime", "--only", "strat", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "start" in done.stderr
    assert "Traceback" not in done.stderr
