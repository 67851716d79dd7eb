"""The numbers of a load test: percentiles, what the observer makes of events, what locust's rows become."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.clock import ManualClock
from kubeio.models import HasMeta, Object
from kubeio.resource import Resource
from kubeio.watches.watch import Changed, WatchEvent
from loadtest.observer import Observer, Sample
from loadtest.report import draw, percentile, requests_of, summary

LABEL = "shard.ringleader.dev/websites"


class Script:
    """Plays *steps*: seconds to let pass, then what the watch shows."""

    def __init__(self, clock: ManualClock, steps: list[tuple[float, WatchEvent]]) -> None:
        self._clock = clock
        self._steps = steps

    async def events(self):  # type: ignore[no-untyped-def] # stands in for ListWatch.events
        for pause_s, event in self._steps:
            self._clock.advance(pause_s)
            yield event


def site(*, generation: int, done: int = 0, owner: str = "", uid: str = "u1") -> Changed:
    status = {"observedGeneration": done, "conditions": [{"type": "Ready", "status": "True"}]} if done else {}
    labels = {LABEL: owner} if owner else {}
    document = {
        "metadata": {"name": "a", "uid": uid, "generation": generation, "labels": labels},
        "status": status,
    }
    raw = msgspec.json.encode(document)
    return Changed(Object(msgspec.json.decode(raw, type=HasMeta).metadata, raw), is_new=False)


async def observe(steps: list[tuple[float, WatchEvent]], monkeypatch: pytest.MonkeyPatch) -> Observer:
    clock = ManualClock()
    monkeypatch.setattr("loadtest.observer.ListWatch", lambda *_, **__: Script(clock, steps))
    observer = Observer(
        None,  # type: ignore[arg-type] # the script needs no client
        Resource("example.com", "v1", "websites", "Website"),
        shard_label=LABEL,
        clock=clock,
    )
    observer.listed.set()
    await observer.run()
    return observer


async def test_waits_are_counted_from_the_first_event_that_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = await observe(
        [
            (1.0, site(generation=1)),
            (0.2, site(generation=1, owner="s")),
            (0.3, site(generation=1, owner="s", done=1)),
            (5.0, site(generation=2, owner="s", done=1)),
            (0.4, site(generation=3, owner="s", done=1)),
            (0.1, site(generation=3, owner="s", done=3)),
        ],
        monkeypatch,
    )
    found = [(s.what, round(s.took_s, 6)) for s in observer.samples]
    assert found == [("assigned", 0.2), ("ready", 0.5), ("updated", 0.5), ("updated", 0.1)]
    assert observer.behind() == 0


async def test_what_is_not_ready_at_the_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = await observe(
        [(1.0, site(generation=1)), (1.0, site(generation=1, uid="u2", done=1))], monkeypatch
    )
    assert observer.behind() == 1


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_not_exceeded_by_its_share_of_the_values(values: list[float], share: float) -> None:
    answer = percentile(values, share)
    assert answer in values
    assert sum(value <= answer for value in values) >= share * len(values) - 1e-9


def test_nothing_measured_is_not_a_number() -> None:
    assert math.isnan(percentile([], 0.5))
    assert summary([]) == {}


def test_locusts_histogram_becomes_seconds() -> None:
    row = {"name": "create", "num_requests": 100, "num_failures": 1, "response_times": {"5": 98, "200": 2}}
    assert requests_of([row]) == {"create": {"requests": 100, "failures": 1, "p50_s": 0.005, "p99_s": 0.2}}


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    rng = random.Random(1)
    samples = [
        Sample(what, n / 10, rng.expovariate(20)) for n in range(100) for what in ("assigned", "ready")
    ]
    draw(samples, tmp_path / "report.png", title="a load")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.fleet
def test_a_short_load_leaves_no_website_behind(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "loadtest",
        "--duration-s",
        "5",
        "--rate",
        "20",
        "--users",
        "4",
        "-o",
        "json",
    ]
    command += ["--replicas", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["left_behind"] == 0
    assert report["waits"]["ready"]["count"] >= 10
    assert report["requests"]["create"]["failures"] == 0


def test_a_form_that_does_not_exist_is_refused() -> None:
    command = [sys.executable, "-m", "loadtest", "-o", "xml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "xml" in done.stderr
