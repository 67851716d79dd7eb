"""Rules, alerts and dashboard: every metric exists, every alert has a runbook, fires on its fault and on no other."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import ROOT, Helm
from tests.chart.monitoring import DASHBOARD, RULES, expressions, panels, rules
from tests.docs.metrics_page import documented

EXPECTED = Path(__file__).with_name("rules_test.yaml")
NAMED = re.compile(r"\b(?:ringleader|workqueue|controller_runtime|rest_client|leader_election)_[a-z_]+")
HISTOGRAM = re.compile(r"_(bucket|count|sum)$")


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not on PATH; install Prometheus (Debian: apt-get install prometheus)")
    return found


def test_every_metric_of_rules_and_dashboard_is_documented() -> None:
    named = {HISTOGRAM.sub("", name) for text in expressions() for name in NAMED.findall(text)}
    assert len(named) > 25
    assert named <= documented().keys()


def test_every_alert_has_a_runbook_and_the_reverse() -> None:
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    page = (ROOT / "docs" / "runbooks.md").read_text()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == list(alerts)
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook_url"] == f"RUNBOOKS#{name.lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_every_alert_is_seen_to_fire_and_to_be_silent() -> None:
    checks = [
        check
        for test in yaml.safe_load(EXPECTED.read_text())["tests"]
        for check in test.get("alert_rule_test", [])
    ]
    fired = {check["alertname"] for check in checks if check["exp_alerts"]}
    silent = {check["alertname"] for check in checks if not check["exp_alerts"]}
    assert fired == silent == {rule["alert"] for rule in rules() if "alert" in rule}


async def test_the_alerts_fire_as_expected_in_promtool(tmp_path: Path) -> None:
    (tmp_path / RULES.name).write_bytes(RULES.read_bytes())
    (tmp_path / EXPECTED.name).write_bytes(EXPECTED.read_bytes())
    process = await asyncio.create_subprocess_exec(
        promtool(), "test", "rules", EXPECTED.name, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()


def test_the_dashboard_is_complete() -> None:
    board = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]


async def test_the_chart_brings_rules_and_dashboard_as_they_are(renderer: Helm) -> None:
    monitoring = {
        "labels": {"release": "prometheus"},
        "rules": {"enabled": True, "runbooks": "https://wiki.example.com/runbooks"},
        "grafanaDashboard": {"enabled": True},
    }
    objects = await renderer.template({"monitoring": monitoring})
    (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    text = RULES.read_text().replace("RUNBOOKS#", "https://wiki.example.com/runbooks#")
    assert rule["spec"] == yaml.safe_load(text)
    (board,) = [
        each for each in objects if each["kind"] == "ConfigMap" and "dashboard" in each["metadata"]["name"]
    ]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["ringleader.json"]) == json.loads(DASHBOARD.read_text())
