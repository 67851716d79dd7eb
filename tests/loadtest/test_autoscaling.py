"""The simulation of autoscaling: the autoscaler's algorithm, the fleet's handovers, the goals of the chart's policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.autoscale import CHOSEN, SEEDS, comparison, outcomes
from loadtest.autoscaling.fleet import GRACE_S, SAMPLE, member_name, new_fleet
from loadtest.autoscaling.hpa import SYNC_S, Autoscaler, Behavior, ScalingPolicy, ScalingRules
from loadtest.autoscaling.simulation import Held, Sample
from ring import HashRing, movement

PAGE = Path(__file__).parents[2] / "docs" / "autoscaling.md"
AT_ONCE = (ScalingPolicy("Percent", 900, 15),)


def rules(window_s: int = 0, *policies: ScalingPolicy, tolerance: float = 0.0) -> ScalingRules:
    return ScalingRules(window_s, policies or AT_ONCE, tolerance)


def decided(behavior: Behavior, metrics: list[float], *, spec: int = 4) -> list[int]:
    """`spec.replicas` after each of *metrics*, one sync apart; every pod runs at once."""
    autoscaler, found = Autoscaler(behavior), [spec]
    for number, metric in enumerate(metrics):
        now_s = number * SYNC_S
        found.append(autoscaler.decide(now_s, metric=metric, spec=found[-1], status=found[-1]))
    return found[1:]


def test_within_the_tolerance_nothing_changes() -> None:
    limits = Behavior(1, 20, rules(tolerance=0.1), rules(tolerance=0.1))
    assert decided(limits, [11, 9], spec=10) == [10, 10]
    assert decided(limits, [12], spec=10) == [12]


def test_the_window_up_takes_the_least_and_the_window_down_the_most() -> None:
    limits = Behavior(1, 20, rules(30), rules(60))
    assert decided(limits, [6, 6, 6, 3, 3, 3, 3, 3]) == [4, 4, 6, 6, 6, 6, 3, 3]
    assert decided(limits, [6, 4, 6, 6, 6]) == [4, 4, 4, 6, 6]


def test_steps_are_limited_within_their_period() -> None:
    limits = Behavior(1, 20, rules(0, ScalingPolicy("Pods", 2, 30), ScalingPolicy("Percent", 50, 30)))
    assert decided(limits, [16] * 5) == [6, 6, 9, 9, 14]
    limits = Behavior(1, 20, rules(), rules(0, ScalingPolicy("Pods", 1, 30)))
    assert decided(limits, [1] * 5) == [3, 3, 2, 2, 1]


def test_minimum_and_maximum_hold() -> None:
    limits = Behavior(2, 5, rules(), rules())
    assert decided(limits, [9, 0.5]) == [5, 2]


@pytest.mark.parametrize(("tolerance", "replicas"), [(0.1, 10), (0.0, 9)])
def test_a_pod_that_leaves_counts_as_a_replica_which_a_tolerance_mistakes_for_the_wanted_number(
    tolerance: float, replicas: int
) -> None:
    limits = Behavior(1, 20, rules(tolerance=tolerance), rules(tolerance=tolerance))
    assert Autoscaler(limits).decide(0, metric=9, spec=9, status=10) == replicas


def test_a_pod_that_joins_gets_what_the_ring_gives_it() -> None:
    fleet = new_fleet(4)
    fleet.scale(0, 5)
    for step in range(40):
        fleet.step(step * SYNC_S, SYNC_S, objects=SAMPLE, per_s=0)
    rings = [HashRing([member_name(ordinal) for ordinal in range(count)]) for count in (4, 5)]
    assert fleet.is_converged
    assert fleet.moved / SAMPLE == pytest.approx(float(movement(*rings).moved), abs=0.02)
    assert fleet.pods[4].keys == fleet.moved


def test_a_pod_that_leaves_ends_when_it_owns_nothing() -> None:
    fleet, objects = new_fleet(4), 100_000
    fleet.scale(0, 3)
    fleet.step(0, SYNC_S, objects=objects, per_s=0)
    keys = [fleet.pods[3].keys]
    for step in range(1, int(GRACE_S / SYNC_S) + 2):
        fleet.step(step * SYNC_S, SYNC_S, objects=objects, per_s=0)
        if 3 in fleet.pods:
            keys.append(fleet.pods[3].keys)
    assert 3 not in fleet.pods
    assert len(keys) > 10
    assert keys == sorted(keys, reverse=True)
    assert sum(pod.keys for pod in fleet.pods.values()) == SAMPLE


def sample(now_s: float, *, objects: float, is_converged: bool) -> Sample:
    return Sample(now_s, objects, (), 0.0, 2, is_converged)


def test_the_number_is_held_while_the_ring_moves_and_for_15_minutes_at_most() -> None:
    held = Held()
    assert held(sample(0, objects=40_000, is_converged=True)) == 2
    assert held(sample(30, objects=90_000, is_converged=False)) == 2
    assert held(sample(60, objects=90_000, is_converged=True)) == 2
    assert held(sample(180, objects=90_000, is_converged=True)) == 5
    assert held(sample(210, objects=20_000, is_converged=False)) == 5
    assert held(sample(1080, objects=20_000, is_converged=False)) == 5
    assert held(sample(1110, objects=20_000, is_converged=False)) == 1


def test_the_charts_policy_meets_its_goals() -> None:
    results = outcomes(CHOSEN, SEEDS[:4])
    assert sum(one.moves for one in results) / len(results) <= 4
    assert sum(one.over_oracle for one in results) / len(results) <= 1.15
    assert all(one.flaps == 0 for one in results)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_table_of_the_page_is_what_make_autoscale_prints() -> None:
    text = PAGE.read_text()
    for line in comparison().lines(is_wide=False):
        assert line in text
