"""`make autoscale`: policies of autoscaling compared over two simulated days, each on the same eight loads.

The ring is the real one, the autoscaler is HorizontalPodAutoscaler's algorithm, the work is a fluid
(`loadtest.autoscaling`). Figures are means of all loads, beside the worst of the moves. docs/autoscaling.md has the
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loadtest.autoscaling.hpa import Behavior, ScalingPolicy, ScalingRules
from loadtest.autoscaling.simulation import (
    BUSY,
    MAXIMUM,
    MINIMUM,
    Held,
    Outcome,
    Policy,
    Sample,
    raw_replicas,
    run,
)
from loadtest.autoscaling.workload import workload
from ringleader.output import Table, print_line, print_table

SEEDS: Final = range(8)
_STEPS_UP: Final = (ScalingPolicy("Pods", 2, 120), ScalingPolicy("Percent", 50, 120))
_STEPS_DOWN: Final = (ScalingPolicy("Pods", 1, 300),)
_COLUMNS: Final = (
    "POLICY",
    "STEPS A DAY",
    "UP-DOWN-UP",
    "MOVES PER OBJECT AND DAY",
    "WORST",
    "REPLICA HOURS A DAY",
    "OF THE ORACLE'S",
    "SLOW",
)


def behavior(up_s: int, down_s: int, *, tolerance: float = 0.0) -> Behavior:
    """The chart's steps, behind windows of *up_s* and *down_s*."""
    up = ScalingRules(up_s, _STEPS_UP, tolerance)
    return Behavior(MINIMUM, MAXIMUM, up, ScalingRules(down_s, _STEPS_DOWN, tolerance))


CHART: Final = behavior(600, 3600)
"""What manifests/chart/templates/scaling.yaml renders."""


def busy_replicas(sample: Sample) -> float:
    """What a target of utilisation asks for: as many replicas as keep BUSY of the workers busy."""
    return sum(sample.busy) / BUSY


def waiting_replicas(sample: Sample) -> float:
    """What a target of one second for the queue's wait asks for: half to four times as many, by the ratio."""
    return sample.spec * min(4.0, max(0.5, sample.wait_s))


DEFAULTS: Final = Behavior(MINIMUM, MAXIMUM)
CHOSEN: Final = Policy("wanted, held while the ring moves, 600 s / 3,600 s", Held, CHART)
POLICIES: Final = (
    Policy("busy workers, HPA's defaults", lambda: busy_replicas, DEFAULTS),
    Policy("queue wait, HPA's defaults", lambda: waiting_replicas, DEFAULTS),
    Policy("busy workers, windows 60 s / 1,800 s", lambda: busy_replicas, behavior(60, 1800, tolerance=0.1)),
    Policy("wanted, not held, 60 s / 1,800 s", lambda: raw_replicas, behavior(60, 1800)),
    Policy("wanted, held while the ring moves, 60 s / 1,800 s", Held, behavior(60, 1800)),
    Policy("wanted, not held, 600 s / 3,600 s", lambda: raw_replicas, CHART),
    CHOSEN,
)


def outcomes(policy: Policy, seeds: Sequence[int] = SEEDS) -> list[Outcome]:
    """Two days of *policy* on the load of each seed."""
    return [run(policy, workload(seed)) for seed in seeds]


def comparison(policies: Sequence[Policy] = POLICIES, seeds: Sequence[int] = SEEDS) -> Table:
    """One row for each of *policies*."""
    return Table(_COLUMNS, [_row(policy, outcomes(policy, seeds)) for policy in policies])


def _row(policy: Policy, results: Sequence[Outcome]) -> list[str]:
    def average(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    return [
        policy.name,
        f"{average([one.steps for one in results]):.0f}",
        f"{average([one.flaps for one in results]):.1f}",
        f"{average([one.moves for one in results]):.1f}",
        f"{max(one.moves for one in results):.1f}",
        f"{average([one.replica_hours for one in results]):.0f}",
        f"{average([one.over_oracle for one in results]):.2f}",
        f"{average([one.slow_percent for one in results]):.1f} %",
    ]


if __name__ == "__main__":
    print_table(comparison(), form=None)
    print_line()
    print_line(
        "UP-DOWN-UP: times a day, within 30 minutes. SLOW: time in which some key waits for more than 10 s."
    )
