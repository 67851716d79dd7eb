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


pytestmark = [pytest.mark.fleet, pytest.mark.timeout(180)]


def loadtest(
    out: Path, scenario: str, *arguments: str, load: tuple[int, int, int], slo: str = "", code: int = 0
) -> tuple[dict[str, Any], str]:
    """The report of `ringleader loadtest` with so many objects, operations per second and seconds; what it said.

    *slo* is the text of a service level; without one the example's counts.
    """
    limits = SLO
    if slo:
        limits = out.with_name("slo.yaml")
        limits.write_text(slo)
    objects, rate, seconds = map(str, load)
    command = [sys.executable, "-m", "ringleader", "loadtest", scenario, *arguments]
    command += ["--objects", objects, "--rate", rate, "--duration", f"{seconds}s", "--slo", str(limits)]
    command += ["--out", str(out), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, cwd=out.parent)
    assert done.returncode == code, f"{done.stderr[-3000:]}\n{done.stdout[:3000]}"
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    "name", [name if name in EVERYDAY else pytest.param(name, marks=pytest.mark.slow) for name in built_in()]
)
def test_a_short_run_of_the_scenario_does_what_it_says_and_loses_nothing(name: str, tmp_path: Path) -> None:
    report, said = loadtest(tmp_path / "out", name, load=(60, 20, 10), slo=PATIENT)
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


@pytest.mark.slow
def test_workers_create_apart_the_waits_are_in_locusts_statistics_and_the_page_stands_alone(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    report, _ = loadtest(out, "churn", "--processes", "2", load=(40, 30, 12))
    assert report["requests"]["create"]["failures"] == 0
    assert ASSIGNED in (out / "locust_stats.csv").read_text()
    assert READY.replace(">", r"\u003e") in (out / "locust.html").read_text()
    page = (out / "report.html").read_text()
    assert "<svg" in page
    assert "The service level was held." in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert not [word for word in ("<script", "<link", "<img") if word in page]
    assert json.loads((out / "report.json").read_text())["run"] == report["run"]


def test_a_service_level_that_is_not_held_is_exit_code_one_and_names_the_line(tmp_path: Path) -> None:
    slo = "assigned: 0s\nunowned: 0\n"
    report, said = loadtest(tmp_path / "out", "steady", load=(30, 20, 5), slo=slo, code=1)
    assert "FAILED: created to assigned, p99" in said
    assert not report["passed"]
    assert "NOT held" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_a_run_goes_on_while_the_api_server_restarts_and_says_so(tmp_path: Path) -> None:
    scenario = tmp_path / "restart.yaml"
    scenario.write_text("actions: [{at: 30%, do: restart-api, for: 2s}]\n")
    slo = "failures: 100%\nunowned: 0\noverlaps: 0\n"
    report, _ = loadtest(tmp_path / "out", str(scenario), load=(50, 20, 12), slo=slo)
    assert any("the API server did not answer the watch" in notice for notice in report["notices"])
    assert report["actions"][0]["text"] == "the API server was away for 2 s"
    assert any(" x update: " in notice for notice in report["notices"])


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


def test_a_full_disk_leaves_the_verdict_and_says_which_file_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").symlink_to("/dev/full")
    report, said = loadtest(out, "steady", load=(30, 20, 5), code=1)
    assert "report.html: No space left on device; the report is not complete" in said
    assert all(line["passed"] for line in report["verdict"])


def test_a_controller_of_ones_own_whose_kind_says_nothing_is_measured_up_to_assigned(tmp_path: Path) -> None:
    example = ROOT / "examples" / "checksum"
    own = ("--controller", f"{example}/controller.py:checksums", "--template", f"{example}/load.yaml")
    report, said = loadtest(tmp_path / "out", "churn", *own, load=(30, 20, 6), slo=PATIENT)
    assert "Secret shows neither status.observedGeneration nor a Ready condition" in said
    verdict = {line["name"]: line["passed"] for line in report["verdict"]}
    assert (verdict["assigned"], verdict["ready"], verdict["changed"]) == (True, None, None)
    assert report["waits"].keys() == {ASSIGNED}
