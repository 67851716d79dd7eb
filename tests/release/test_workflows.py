"""The hosted workflows: pinned actions, no rights by default, and nothing that make cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.real.recipes import kubernetes_recipe

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / ".github/workflows").glob("*.yaml"))
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
PINNED = re.compile(r"actions/[\w-]+@[0-9a-f]{40}")
PLAIN = re.compile(r"""((sudo env "PATH=\$PATH" )?make|git|gh|cp|sudo apt-get update)\b""")
"""What a step may begin with: make, and what brings its result to its place."""


def _workflow(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def _steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_has_no_rights_but_those_of_its_jobs_and_ends(path: Path) -> None:
    workflow = _workflow(path)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert set(job["permissions"]) == {"contents"}
        assert job["timeout-minutes"] <= 90


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_steps_are_targets_of_make(path: Path) -> None:
    for step in _steps(_workflow(path)):
        if "uses" in step:
            assert PINNED.fullmatch(step["uses"]), step
        else:
            assert PLAIN.match(step["run"]), step
            called = re.match(r"(?:sudo .*)?make ((?:[a-z-]+ ?)+)", step["run"])
            assert called is None or set(called[1].split()) <= TARGETS, step


def test_every_supported_python_meets_every_pinned_kubernetes() -> None:
    matrix = _workflow(ROOT / ".github/workflows/test.yaml")["jobs"]["kubernetes"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    for minor in matrix["kubernetes"]:
        assert kubernetes_recipe(minor).version.startswith(f"{minor}.")
    pinned = {path.name.rpartition(".")[0] for path in (ROOT / "devcluster/real/gomod").iterdir()}
    assert set(matrix["kubernetes"]) == pinned


def test_no_expression_of_the_event_is_pasted_into_a_shell() -> None:
    allowed = {"matrix.kubernetes"}
    for path in FILES:
        for step in _steps(_workflow(path)):
            assert set(re.findall(r"\${{ *([\w.]+) *}}", step.get("run", ""))) <= allowed, step
