"""The demo as a command: one document, and an exit code that means something."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.fleet, pytest.mark.slow, pytest.mark.timeout(400)]
KEYS = [
    "objects",
    "updates",
    "owners",
    "unowned",
    "stale",
    "overlaps",
    "foreign_writes",
    "refused_writes",
    "max_unattended_s",
    "reconciles",
    "events",
]


def demo(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringleader", "demo", "--headless", "--objects", "100", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=390)


def test_the_headless_demo_prints_one_document_and_proves_what_it_says() -> None:
    ended = demo("-o", "json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert list(document) == KEYS
    assert (document["objects"], sum(document["owners"].values()), len(document["owners"])) == (100, 100, 5)
    assert document["refused_writes"] >= 1
    events = {event["what"]: event for event in document["events"]}
    assert list(events) == ["kill", "freeze", "join", "roll", "leader_kill"]
    assert list(events["join"]) == ["what", "took_s", "moved", "ideal", "renamed"]
    assert events["join"]["ideal"] == 20
    assert events["roll"]["moved"] == 0
    assert events["freeze"]["moved"] == events["freeze"]["ideal"]


def test_without_the_fence_the_demo_fails_and_names_an_object() -> None:
    ended = demo("--no-fence", "--until", "freeze")
    assert ended.returncode == 1
    document = json.loads(ended.stdout)
    assert document["foreign_writes"] >= 1
    assert [event["what"] for event in document["events"]] == ["kill", "freeze"]
    assert "sites/site-" in ended.stderr
    assert "accepted while it bore the name replica-" in ended.stderr
    assert "Traceback" not in ended.stderr
