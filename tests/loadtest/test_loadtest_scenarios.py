"""Every built-in scenario, run for some seconds against an own fleet; the page and the files of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.inputs.scenario import built_in, read_scenario
from loadtest.observing.observer import ASSIGNED, CHANGED, READY

ROOT = Path(__file__).parents[2]
SLO = ROOT / "examples" / "website" / "slo.yaml"


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
@pytest.mark.parametrize("name", built_in())
def test_a_short_run_of_the_scenario_holds_a_generous_service_level(name: str, tmp_path: Path) -> None:
    arguments = ["--objects", "60", "--rate", "20", "--duration", "10s", "--slo", str(SLO)]
    report, said = loadtest(tmp_path / "out", name, *arguments)
    wanted = [action.do for action in read_scenario(name).schedule(duration_s=10, rate=20).fleet_actions]
    assert [action["action"] for action in report["actions"]] == wanted
    assert not [action for action in report["actions"] if action["has_failed"]]
    assert all(report["waits"][wait]["count"] >= 5 for wait in (ASSIGNED, READY, CHANGED))
    assert report["passed"], said
    assert report["left_unready"] == 0
    if name == "burst":
        assert report["requests"]["create"]["requests"] > 5000
    if name in ("join", "node-loss"):
        assert report["moved"] > 0


@pytest.mark.fleet
@pytest.mark.timeout(180)
def test_workers_create_apart_the_waits_are_in_locusts_statistics_and_the_page_stands_alone(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    arguments = ["--objects", "40", "--rate", "30", "--duration", "8s", "--processes", "2"]
    report, _ = loadtest(out, "churn", *arguments, "--slo", str(SLO))
    assert report["requests"]["create"]["failures"] == 0
    assert ASSIGNED in (out / "locust_stats.csv").read_text()
    assert READY in (out / "locust.html").read_text()
    page = (out / "report.html").read_text()
    assert "<svg" in page
    assert "The service level was held." in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "")
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
def test_a_run_goes_on_while_the_api_server_restarts_and_says_so(tmp_path: Path) -> None:
    scenario = tmp_path / "restart.yaml"
    scenario.write_text("actions: [{at: 30%, do: restart-api, for: 2s}]\n")
    slo = tmp_path / "slo.yaml"
    slo.write_text("failures: 100%\nunowned: 0\noverlaps: 0\n")
    arguments = ["--objects", "50", "--rate", "20", "--duration", "12s", "--slo", str(slo)]
    report, _ = loadtest(tmp_path / "out", str(scenario), *arguments)
    assert any("the API server did not answer the watch" in notice for notice in report["notices"])
    assert report["actions"][0]["text"] == "the API server was away for 2 s"


@pytest.mark.fleet
@pytest.mark.real
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_a_run_on_a_real_control_plane_reads_its_own_metrics_too(tmp_path: Path) -> None:
    arguments = ["--plane", "real", "--objects", "200", "--rate", "20", "--duration", "15s"]
    report, said = loadtest(tmp_path / "out", "join", *arguments, "--slo", str(SLO), within_s=280)
    assert report["passed"], said
    assert report["api_server"]["PATCH"]["requests"] > 200
    assert report["witnesses"] == []
