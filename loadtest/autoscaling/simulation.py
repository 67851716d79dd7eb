"""Two days of one fleet under one policy: what moved, what it cost, what waited.

Owns the order of things within a step: rules every 30 s, autoscaler every 15 s, then the fleet works.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from loadtest.autoscaling.fleet import CAPACITY_PER_S, WORKERS, Fleet, new_fleet
from loadtest.autoscaling.hpa import SYNC_S, Autoscaler, Behavior
from loadtest.autoscaling.workload import LENGTH_S, Workload

MINIMUM: Final = 2
MAXIMUM: Final = 16
OBJECTS_PER_REPLICA: Final = 20_000
BUSY: Final = 0.6
"""The part of the workers that may be busy."""
SLOW_S: Final = 10.0
"""A key that waits longer misses the service level."""
FLAP_S: Final = 1800.0
_RULES_S: Final = 30.0
_MEAN_STEPS: Final = 20
"""Steps in `avg_over_time(...[5m])`."""
_SETTLED_S: Final = 120.0
_HOLD_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What Prometheus knows at one moment."""

    now_s: float
    objects: float
    busy: tuple[float, ...]
    """Mean busy part of the workers over five minutes, of each member."""
    wait_s: float
    spec: int
    is_converged: bool


Metric = Callable[[Sample], float]
"""The number that the autoscaler follows."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A name, what makes the number (anew for each run), and what the autoscaler does with it."""

    name: str
    metric: Callable[[], Metric]
    behavior: Behavior


@dataclass(frozen=True, slots=True)
class Outcome:
    """What two days cost, by day or in all."""

    steps: float
    flaps: float
    """Steps up within 30 minutes of a step down that itself followed a step up within 30 minutes."""
    moves: float
    """Per object and day."""
    replica_hours: float
    over_oracle: float
    """Replica hours divided by those of an oracle."""
    slow_percent: float
    """Part of the time in which some key waited for longer than SLOW_S."""


def raw_replicas(sample: Sample) -> float:
    """`ringleader:replicas:raw`."""
    workers = sum(sample.busy) / BUSY
    return math.ceil(max(sample.objects / OBJECTS_PER_REPLICA, workers))


@dataclass(slots=True)
class Held:
    """`ringleader:replicas:wanted`: the raw number, held while the ring moves, for 15 minutes at most."""

    value: float = 0.0
    converged_since_s: float | None = -math.inf
    last_converged_s: float = -math.inf

    def __call__(self, sample: Sample) -> float:
        if not sample.is_converged:
            self.converged_since_s = None
        else:
            self.last_converged_s = sample.now_s
            if self.converged_since_s is None:
                self.converged_since_s = sample.now_s
        since_s = self.converged_since_s
        is_settled = since_s is not None and sample.now_s - since_s >= _SETTLED_S
        gave_up = sample.now_s - self.last_converged_s > _HOLD_S
        if not self.value or is_settled or gave_up:
            self.value = raw_replicas(sample)
        return self.value


@dataclass(slots=True)
class _Tally:
    steps: list[tuple[float, int]] = field(default_factory=list)
    pod_s: float = 0.0
    slow_s: float = 0.0

    def flaps(self) -> int:
        """Up, down, up within FLAP_S."""
        found = 0
        for first, second, third in zip(self.steps, self.steps[1:], self.steps[2:], strict=False):
            turns = first[1] > 0 > second[1] and third[1] > 0
            found += turns and third[0] - first[0] <= FLAP_S
        return found


def run(policy: Policy, load: Workload) -> Outcome:
    """Two days of *load* under *policy*."""
    spec = needed_replicas(load, 0.0)
    fleet, autoscaler, metric = new_fleet(spec), Autoscaler(policy.behavior), policy.metric()
    history: dict[int, deque[float]] = {}
    tally, value = _Tally(), float(spec)
    for step in range(int(LENGTH_S / SYNC_S)):
        now_s = step * SYNC_S
        if now_s % _RULES_S == 0:
            value = metric(_sample(now_s, load, fleet, spec, history))
        decided = autoscaler.decide(now_s, metric=value, spec=spec, status=len(fleet.pods))
        if decided != spec:
            tally.steps.append((now_s, decided - spec))
            spec = decided
        fleet.scale(now_s, spec)
        fleet.step(now_s, SYNC_S, objects=load.objects(now_s), per_s=load.per_s(now_s))
        _remember(fleet, history)
        tally.pod_s += len(fleet.pods) * SYNC_S
        tally.slow_s += SYNC_S * any(pod.wait_s > SLOW_S for pod in fleet.pods.values())
    return _outcome(tally, fleet, load)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def needed_replicas(load: Workload, now_s: float) -> int:
    """What an oracle would run: enough for the next five minutes' mean, at once, and without moving anything."""
    per_s = _mean(load.per_s(now_s + ahead) for ahead in range(0, 300, int(SYNC_S)))
    workers = per_s / (CAPACITY_PER_S * BUSY)
    return max(MINIMUM, min(MAXIMUM, math.ceil(max(load.objects(now_s) / OBJECTS_PER_REPLICA, workers))))


@cache
def oracle_hours(load: Workload) -> float:
    """Replica hours of the oracle."""
    return sum(needed_replicas(load, step * SYNC_S) for step in range(int(LENGTH_S / SYNC_S))) * SYNC_S / 3600


def _sample(
    now_s: float, load: Workload, fleet: Fleet, spec: int, history: Mapping[int, deque[float]]
) -> Sample:
    working = [number for number, pod in fleet.pods.items() if pod.ready_at_s <= now_s and number in history]
    busy = tuple(_mean(history[number]) / WORKERS for number in working)
    wait_s = max((pod.wait_s for pod in fleet.pods.values()), default=0.0)
    return Sample(now_s, load.objects(now_s), busy, wait_s, spec, fleet.is_converged)


def _remember(fleet: Fleet, history: dict[int, deque[float]]) -> None:
    for gone in history.keys() - fleet.pods.keys():
        del history[gone]
    for number, pod in fleet.pods.items():
        if number in fleet.placed or pod.keys:
            history.setdefault(number, deque(maxlen=_MEAN_STEPS)).append(pod.busy)


def _outcome(tally: _Tally, fleet: Fleet, load: Workload) -> Outcome:
    days = LENGTH_S / 86_400
    objects = _mean(load.objects(hour * 3600) for hour in range(48))
    hours = tally.pod_s / 3600
    return Outcome(
        steps=len(tally.steps) / days,
        flaps=tally.flaps() / days,
        moves=fleet.moved / objects / days,
        replica_hours=hours / days,
        over_oracle=hours / oracle_hours(load),
        slow_percent=100 * tally.slow_s / LENGTH_S,
    )
