"""Rules and dashboard of the chart: their files, rules, panels and queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.chart.helm import CHART

Doc = dict[str, Any]
RULES = CHART / "files" / "rules.yaml"
DASHBOARD = CHART / "files" / "dashboard.json"


def rules() -> list[Doc]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[Doc]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """Every query of rules and dashboard."""
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
