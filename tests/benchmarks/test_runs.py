"""Each benchmark once in a small size on the embedded control plane: its exit code and its report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runtime.programs import GO_PROGRAM, go_recipe
from devcluster.real.binaries import BinariesMissing, find_binaries

pytestmark = pytest.mark.fleet

NEEDS_WRK = pytest.mark.skipif(
    shutil.which("wrk") is None, reason="needs wrk (the distribution's package of that name)"
)


def bench(
    script: str, out: Path, flags: str, *, has_go: bool = False
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A run and its report. Without *has_go*: on a machine without Go and with an empty cache of built programs."""
    command = [
        sys.executable,
        "-m",
        f"benchmarks.{script}",
        "--plane",
        "embedded",
        "--out",
        str(out),
        "-o",
        "json",
    ]
    environment = dict(os.environ)
    if not has_go:
        environment |= {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(out)}
        environment.pop("KUBEBUILDER_ASSETS", None)
    done = subprocess.run(
        [*command, *flags.split()], capture_output=True, text=True, timeout=110, check=False, env=environment
    )
    assert done.stdout, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    assert json.loads((out / "report.json").read_text()) == document
    return done, document


def figures_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {figure["key"]: figure for figure in document["figures"]}


def details_of(document: dict[str, Any], row: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one["details"] for one in document["rows"] if one["key"] == row)
    return found


@NEEDS_WRK
@pytest.mark.slow
def test_the_sharder_is_measured_beside_wrk(tmp_path: Path) -> None:
    flags = "--objects 300 --rounds 1 --limit-s 3 --only assign,join --strict"
    done, document = bench("sharder", tmp_path, flags)
    figures = figures_of(document)
    assert set(figures) == {"assign", "join", "join-moves", "join-in-flight", "peak"}
    assert all(figure["value"] is not None and figure["how"] for figure in figures.values()), figures
    assert done.returncode == any(figure["verdict"] == "MISSED" for figure in figures.values())
    assert 10 < figures["peak"]["value"] < 500
    assert [sample["writes"] for sample in details_of(document, "assign")["sharder"]] == [300]
    assert details_of(document, "join")["without_owner_in_between"] == 0
    assert document["machine"]["cores"] >= 1
    assert {"ringleader", "python", "apiserver", "wrk"} <= set(document["versions"])
    assert "--only assign,join" in document["command"]


@pytest.mark.slow
def test_rows_of_the_sharder_that_need_no_limit_run_without_wrk(tmp_path: Path) -> None:
    flags = "--objects 300 --samples 10 --only new,rest --rest-sizes 1000,3000"
    done, document = bench("sharder", tmp_path, flags)
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(figures_of(document)) == {"new-p50", "new-p99", "peak", "rest"}
    assert len(details_of(document, "new")["waits_ms"]) == 10
    assert details_of(document, "rest")["objects_listed"]["3000"] >= 3000, (
        "the sharder looked at every object"
    )


@pytest.mark.skipif(Path("/usr/bin/go").exists(), reason="Go is where the run would find it")
@pytest.mark.slow
def test_the_runtime_is_measured_beside_every_peer_that_is_there(tmp_path: Path) -> None:
    flags = "--objects 300 --rounds 1 --reconciles 2000 --samples 20 --minutes 0.1 --lease-s 3"
    done, document = bench("runtime", tmp_path, f"{flags} --only start,rate,event,stall,lease")
    figures = figures_of(document)
    assert done.returncode == 0, done.stderr[-2000:]
    skipped = {key for key, figure in figures.items() if figure["verdict"] == "skipped"}
    assert skipped == {
        *("start-raw-go", "start-compressed-go", "metadata-go", "metadata-rss", "load-go", "load-go-metadata")
    }
    assert "install Go" in figures["start-raw-go"]["how"]
    assert all(figure["value"] is not None for key, figure in figures.items() if key not in skipped)
    assert 10 < figures["rss-raw"]["value"] < 500
    start, event, lease = (details_of(document, row) for row in ("start", "event", "lease"))
    assert all(start["candidates"][key]["start_s"] > 0 for key in ("ours-raw", "kopf", "kubernetes"))
    assert start["list_bytes"] > 300 * 800, "whole objects were read"
    assert (len(event["stub_ms"]), len(event["real_ms"])) == (20, 10)
    assert min(event["stub_ms"]) > 0, "no reconcile begins before its event was sent"
    assert lease["renewals"] >= 4, "every second for six seconds"
    assert lease["writes_per_s"] > 0, "the load is a load"


@NEEDS_WRK
@pytest.mark.slow
def test_status_writes_are_compared_with_wrk_and_the_same_patches(tmp_path: Path) -> None:
    _, document = bench(
        "runtime", tmp_path, "--objects 300 --rounds 1 --only write --limit-s 3 --connections 8"
    )
    assert figures_of(document)["write"]["value"] > 0
    (theirs,), (sample,) = (details_of(document, "write")[key] for key in ("wrk", "ringleader"))
    assert (theirs["writes"], theirs["refused"]) == (300, 0), "every patch of wrk passed its fence"
    assert sample["writes"] == 300, "one status write for each object"


@NEEDS_WRK
@pytest.mark.slow
def test_every_pace_is_measured_beside_a_load_generator(tmp_path: Path) -> None:
    done, document = bench("neighbour", tmp_path, "--objects 3000 --rounds 1 --connections 1,4")
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(figure["value"] > 0 for figure in document["figures"])
    loads = details_of(document, "loads")
    assert set(loads) == {"idle", "wrk, 1", "wrk, 4", "Background", "Normal", "Urgent"}


@pytest.mark.slow
def test_forged_labels_are_measured_beside_honest_objects(tmp_path: Path) -> None:
    done, document = bench("forged", tmp_path, "--forged 200 --per-s 20 --honest 40 --no-strict")
    figures = figures_of(document)
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(figure["value"] is not None for figure in figures.values()), figures
    assert figures["relabels"]["value"] > 10
    assert figures["leases"]["value"] < 150, "names under care are bounded"


@pytest.mark.slow
def test_members_are_measured_at_rest_and_when_one_more_joins(tmp_path: Path) -> None:
    done, document = bench("members", tmp_path, "--members 10 --objects 200 --rest-s 3 --lease-s 6")
    figures = figures_of(document)
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(figures) == {"rest-cpu", "rest-rss", "renewal", "join", "peak"}
    assert figures["join"]["value"] > 0


def test_the_relay_of_the_proxy_is_measured_beside_the_same_work_without_it(tmp_path: Path) -> None:
    done, document = bench("proxy", tmp_path, "--rounds 1 --requests 50")
    figures = figures_of(document)
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(figures) == {"chunk", "chunk-ratio", "patch", "patch-ratio", "create", "create-ratio"}
    assert figures["patch-ratio"]["value"] > 0


@pytest.mark.slow
def test_a_controller_behind_proxies_is_measured_beside_itself_alone(tmp_path: Path) -> None:
    try:
        find_binaries([GO_PROGRAM], go_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    done, document = bench("unmodified", tmp_path, "--objects 600", has_go=True)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = figures_of(document)
    assert all(figure["value"] > 0 for figure in figures.values()), figures
    replicas = details_of(document, "replicas")
    assert [len(values) for values in replicas.values()] == [3, 3, 3]


def test_the_guard_is_not_measured_where_there_are_no_policies(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.guard", "--plane", "embedded", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "has no admission policies" in done.stderr
    assert "Traceback" not in done.stderr
