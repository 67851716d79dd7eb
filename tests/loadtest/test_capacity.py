"""The search for the highest rate that keeps a service level."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.errors import InputError
from loadtest.capacity.document import Capacity, CapacityDocument
from loadtest.capacity.search import PRECISION, SMALL_STEP, SMALLEST, STEP, TIMES, RateSearch
from loadtest.inputs.replicas import parse_baselines, parse_imbalance, parse_replicas
from loadtest.inputs.scenario import read_scenario
from loadtest.targets.target import Way


def searched(limit: float, first: float, *, times: int = 200) -> tuple[RateSearch, list[float]]:
    """A search where every rate up to *limit* passes."""
    search, tried = RateSearch(first, times=times), list[float]()
    while (rate := search.rate) is not None:
        tried.append(rate)
        search.note(passed=rate <= limit)
    return search, tried


@given(limit=st.floats(1, 1000), first=st.floats(0.5, 2000))
def test_it_finds_the_limit_from_wherever_it_begins(limit: float, first: float) -> None:
    search, _ = searched(limit, first)
    assert limit / (1 + PRECISION) <= search.best <= limit


def test_a_rate_fails_when_it_failed_twice() -> None:
    search = RateSearch(20.0)
    search.note(passed=False)
    assert search.rate == 20.0
    search.note(passed=True)
    assert search.best == 20.0


def test_a_rate_that_failed_clearly_is_not_tried_again() -> None:
    search = RateSearch(20.0, step=2.0)
    search.note(passed=False, is_clear=True)
    assert search.rate == 10.0


def test_what_carries_nothing_ends_the_search() -> None:
    search, tried = searched(0.0, 10.0)
    assert search.best == 0.0
    assert min(tried) >= SMALLEST


def test_a_good_guess_takes_few_trials_and_a_bad_one_is_bounded() -> None:
    assert len(searched(100, 95)[1]) <= 10
    assert len(searched(1000, 0.5, times=12)[1]) == 12


@pytest.mark.parametrize(
    ("limit", "first", "step"),
    [(66, 100, SMALL_STEP), (100, 20, SMALL_STEP), (60, 133, SMALL_STEP), (300, 20, STEP), (26, 20, STEP)],
)
def test_twelve_trials_find_a_limit_that_is_far_from_the_guess(
    limit: float, first: float, step: float
) -> None:
    search = RateSearch(first, step=step)
    trials = 0
    while (rate := search.rate) is not None:
        search.note(passed=rate <= limit, is_clear=rate > 1.2 * limit)
        trials += 1
    assert search.is_met
    assert limit * 0.9 <= search.best <= limit
    assert trials <= TIMES


def test_a_limit_that_was_not_reached_is_no_limit() -> None:
    search, _ = searched(100_000, 0.5, times=5)
    assert not search.is_met


@pytest.mark.parametrize("text", ["", "0", "1,x", "65", "-1"])
def test_numbers_that_are_no_replicas_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--replicas"):
        parse_replicas(text)


def test_baselines_are_named_once_and_others_are_refused() -> None:
    assert parse_baselines("kopf, leader-elected,kopf") == [Way.KOPF, Way.LEADER_ELECTED]
    assert parse_baselines("") == []
    for text in ("sharded", "kubebuilder"):
        with pytest.raises(InputError, match="name leader-elected or kopf"):
            parse_baselines(text)


def test_each_number_is_compared_with_one_replica() -> None:
    found = [
        Capacity("sharded", 1, 25.0, {"replica": 0.1}, []),
        Capacity("sharded", 5, 122.5, {"replica": 0.5, "control plane": 1.0}, [], 0.2062),
        Capacity("leader-elected", 5, 25.0, {}, []),
    ]
    document = CapacityDocument("r", "c", "t", 100, 300, 45.0, {}, found, {"cores": 2}, {})
    assert [row[3] for row in document.table().rows] == ["1.00x", "4.90x", "1.00x"]
    assert [row[4] for row in document.table().rows] == ["-", "20.6%", "-"]
    assert document.passed


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_an_imbalance_that_no_ring_takes_is_refused(percent: int) -> None:
    assert parse_imbalance(None) is None
    assert parse_imbalance(1) == 1
    with pytest.raises(InputError, match="--imbalance-percent"):
        parse_imbalance(percent)


@pytest.mark.parametrize(
    ("scenario", "creates"), [("updates", False), ("steady", True), ("churn", True), ("burst", True)]
)
def test_objects_are_prepared_without_the_wait_where_nothing_is_created(scenario: str, creates: bool) -> None:
    schedule = read_scenario(scenario).schedule(duration_s=60.0, rate=10.0)
    assert schedule.creates is creates


@pytest.mark.fleet
@pytest.mark.timeout(420)
@pytest.mark.slow
def test_capacity_is_measured_on_an_own_fleet(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("changed: 2s\n")
    scenario = tmp_path / "updates.yaml"
    scenario.write_text("operations: {update: 1}\n")
    command = [sys.executable, "-m", "ringleader", "loadtest", "capacity", "--replicas", "1", "-o", "json"]
    command += [
        "--objects",
        "20",
        "--scenario",
        str(scenario),
        "--trial",
        "5s",
        "--rate",
        "8",
        "--workers",
        "2",
    ]
    command += [
        "--wait-ms",
        "200",
        "--precision",
        "100%",
        "--baseline",
        "kopf,leader-elected",
        "--slo",
        str(slo),
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout)
    found, kopf, baseline = document["capacities"]
    assert found["rate_per_s"] > 0
    assert (found["largest_share"], baseline["largest_share"]) == (1.0, None)
    assert found["cores"].keys() >= {"replica", "sharder", "control plane"}
    assert (baseline["mode"], baseline["replicas"]) == ("leader-elected", 1)
    assert baseline["rate_per_s"] > 0
    assert (kopf["mode"], kopf["replicas"]) == ("kopf", 1)
    assert kopf["rate_per_s"] > 0
    assert document["notices"] == [], "the checks found nothing, and judged no fleet without a ring"
    assert {trial["passed"] for trial in found["trials"]} == {True, False}, "the limit was met"
    assert (tmp_path / "capacity.png").stat().st_size > 10_000
