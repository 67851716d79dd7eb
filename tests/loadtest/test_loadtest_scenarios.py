"""Every built-in scenario, run for some seconds against an own fleet; the page and the files of a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.inputs.scenario import built_in, read_scenario
from loadtest.machine import family
from loadtest.observing.observer import ASSIGNED, CHANGED, READY

ROOT = Path(__file__).parents[2]
SLO = ROOT / "examples" / "website" / "slo.yaml"
PATIENT = (
    "assigned: 90s\nready: 90s\nchanged: 90s\nfailures: 0.1%\noverlaps: 0\nforeignWrites: 0\nunowned: 0\n"
)
"""A take-over lasts longer than these runs, and machines are busy."""

EVERYDAY = ("steady", "kill")
"""The scenarios of `make test`; `make test-long` runs the others."""


def loadtest(out: Path, *arguments: str, code: int = 0, within_s: float = 170) -> tuple[dict[str, Any], str]:
    """The report of `ringleader loadtest ARGUMENTS`, and what it said."""
    command = [sys.executable, "-m", "ringleader", "loadtest", *arguments, "--out", str(out), "-o", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=within_s, check=False, cwd=out.parent
    )
    assert done.returncode == code, f"{done.stderr[-3000:]}\n{done.stdout[:3000]}"
    return json.loads(done.stdout), done.stderr


@pytest.mark.fleet
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "name", [name if name in EVERYDAY else pytest.param(name, marks=pytest.mark.slow) for name in built_in()]
)
def test_a_short_run_of_the_scenario_does_what_it_says_and_loses_nothing(name: str, tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text(PATIENT)
    arguments = ["--objects", "60", "--rate", "20", "--duration", "10s", "--slo", str(slo)]
    report, said = loadtest(tmp_path / "out", name, *arguments)
    schedule = read_scenario(name).schedule(duration_s=10, rate=20)
    assert [action["action"] for action in report["actions"]] == [each.do for each in schedule.fleet_actions]
    assert not [action for action in report["actions"] if action["has_failed"]]
    waits = (ASSIGNED, READY, CHANGED) if "create" in schedule.operations else (CHANGED,)
    assert all(report["waits"][wait]["count"] >= 5 for wait in waits)
    assert report["passed"], said
    assert report["left_unready"] == 0
    if name == "burst":
        assert report["requests"]["create"]["requests"] > 5000
    if name == "join":
        assert report["moved"] > 0


@pytest.mark.fleet
@pytest.mark.timeout(180)
@pytest.mark.slow
def test_workers_create_apart_the_waits_are_in_locusts_statistics_and_the_page_stands_alone(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    arguments = ["--objects", "40", "--rate", "30", "--duration", "12s", "--processes", "2"]
    report, _ = loadtest(out, "churn", *arguments, "--slo", str(SLO))
    assert report["requests"]["create"]["failures"] == 0
    assert ASSIGNED in (out / "locust_stats.csv").read_text()
    assert READY.replace(">", r"\u003e") in (out / "locust.html").read_text()
    page = (out / "report.html").read_text()
    assert "<svg" in page
    assert "The service level was held." in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert not [word for word in ("<script", "<link", "<img") if word in page]
    assert json.loads((out / "report.json").read_text())["run"] == report["run"]


@pytest.mark.fleet
@pytest.mark.timeout(180)
def test_a_service_level_that_is_not_held_is_exit_code_one_and_names_the_line(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("assigned: 0s\nunowned: 0\n")
    arguments = ["--objects", "30", "--rate", "20", "--duration", "5s", "--slo", str(slo)]
    report, said = loadtest(tmp_path / "out", "steady", *arguments, code=1)
    assert "FAILED: created to assigned, p99" in said
    assert not report["passed"]
    assert "NOT held" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.fleet
@pytest.mark.timeout(180)
@pytest.mark.slow
def test_a_run_goes_on_while_the_api_server_restarts_and_says_so(tmp_path: Path) -> None:
    scenario = tmp_path / "restart.yaml"
    scenario.write_text("actions: [{at: 30%, do: restart-api, for: 2s}]\n")
    slo = tmp_path / "slo.yaml"
    slo.write_text("failures: 100%\nunowned: 0\noverlaps: 0\n")
    arguments = ["--objects", "50", "--rate", "20", "--duration", "12s", "--slo", str(slo)]
    report, _ = loadtest(tmp_path / "out", str(scenario), *arguments)
    assert any("the API server did not answer the watch" in notice for notice in report["notices"])
    assert report["actions"][0]["text"] == "the API server was away for 2 s"
    assert any(" x update: " in notice for notice in report["notices"])


@pytest.mark.fleet
@pytest.mark.timeout(180)
@pytest.mark.slow
def test_a_worker_that_dies_is_named_and_the_load_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    slo = tmp_path / "slo.yaml"
    slo.write_text("unowned: 0\nready: 90s\n")
    arguments = ["steady", "--objects", "40", "--rate", "20", "--duration", "20s", "--processes", "2"]
    command = [sys.executable, "-m", "ringleader", "loadtest", *arguments, "--slo", str(slo)]
    with subprocess.Popen(
        [*command, "--out", str(out)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "load began" in line:
                os.kill(locust_worker(process.pid), signal.SIGKILL)
        process.wait(170)
    notices = json.loads((out / "report.json").read_text())["notices"]
    assert [notice for notice in notices if "was lost; the others took over its users" in notice]
    assert process.returncode in (0, 1)  # what was asked for may not have been reached


def locust_worker(root: int) -> int:
    """A process that locust has forked below *root*."""
    locusts = [pid for pid in family(root) if b"\0locust\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return next(pid for pid in locusts if len(family(pid)) == 1)


@pytest.mark.fleet
@pytest.mark.timeout(180)
def test_a_full_disk_leaves_the_verdict_and_says_which_file_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").symlink_to("/dev/full")
    arguments = ["--objects", "30", "--rate", "20", "--duration", "5s", "--slo", str(SLO)]
    report, said = loadtest(out, "steady", *arguments, code=1)
    assert "report.html: No space left on device; the report is not complete" in said
    assert all(line["passed"] for line in report["verdict"])


@pytest.mark.fleet
@pytest.mark.timeout(180)
def test_a_controller_of_ones_own_whose_kind_says_nothing_is_measured_up_to_assigned(tmp_path: Path) -> None:
    example = ROOT / "examples" / "checksum"
    slo = tmp_path / "slo.yaml"
    slo.write_text(PATIENT)
    arguments = ["--objects", "30", "--rate", "20", "--duration", "6s", "--slo", str(slo)]
    arguments += ["--controller", f"{example}/controller.py:checksums", "--template", f"{example}/load.yaml"]
    report, said = loadtest(tmp_path / "out", "churn", *arguments)
    assert "Secret shows neither status.observedGeneration nor a Ready condition" in said
    verdict = {line["name"]: line["passed"] for line in report["verdict"]}
    assert (verdict["assigned"], verdict["ready"], verdict["changed"]) == (True, None, None)
    assert report["waits"].keys() == {ASSIGNED}
