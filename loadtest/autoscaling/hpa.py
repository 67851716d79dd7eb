"""HorizontalPodAutoscaler's decision for one External metric of the type AverageValue. Pure; time is passed in.

Source: kubernetes 1.36.3, pkg/controller/podautoscaler: `GetExternalPerPodMetricReplicas` (replica_calculator.go),
`stabilizeRecommendationWithBehaviors`, `convertDesiredReplicasWithBehaviorRate` and the two
`calculateScale*LimitWith*` (horizontal.go). autoscaling/v2 calls the fields alike.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

SYNC_S: Final = 15.0
"""`--horizontal-pod-autoscaler-sync-period` by default."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """At most *value* pods, or *value* percent of the replicas, within *period_s*."""

    type: Literal["Pods", "Percent"]
    value: int
    period_s: int


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """One direction of `spec.behavior`. `selectPolicy` is Max: the largest step of the policies is allowed."""

    window_s: int
    """`stabilizationWindowSeconds`."""
    policies: tuple[ScalingPolicy, ...]
    tolerance: float = 0.1


DEFAULT_UP: Final = ScalingRules(0, (ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15)))
DEFAULT_DOWN: Final = ScalingRules(300, (ScalingPolicy("Percent", 100, 15),))


@dataclass(frozen=True, slots=True)
class Behavior:
    """`spec.behavior`, with `minReplicas` and `maxReplicas`."""

    minimum: int
    maximum: int
    up: ScalingRules = DEFAULT_UP
    down: ScalingRules = DEFAULT_DOWN


class Autoscaler:
    """What the controller remembers of one HorizontalPodAutoscaler: recommendations and steps."""

    def __init__(self, behavior: Behavior) -> None:
        self._behavior = behavior
        self._recommendations: deque[tuple[float, int]] = deque()
        self._steps: deque[tuple[float, int]] = deque()

    def decide(self, now_s: float, *, metric: float, spec: int, status: int) -> int:
        """`spec.replicas` from now on, given the scale subresource's *spec* and *status* and the value of *metric*.

        *status* counts pods that are on their way out, as a StatefulSet's `status.replicas` does.
        """
        limits = self._behavior
        if not limits.minimum <= spec <= limits.maximum:
            return self._record(now_s, spec, min(max(spec, limits.minimum), limits.maximum))
        if not self._recommendations:
            self._recommendations.append((now_s, spec))
        stable = self._stabilised(now_s, spec, self._recommended(metric, status))
        return self._record(now_s, spec, self._limited(now_s, spec, stable))

    def _recommended(self, metric: float, status: int) -> int:
        ratio = metric / status
        rules = self._behavior
        is_within = 1 - rules.down.tolerance <= ratio <= 1 + rules.up.tolerance
        return status if is_within else math.ceil(metric)

    def _stabilised(self, now_s: float, spec: int, recommended: int) -> int:
        up_s, down_s = self._behavior.up.window_s, self._behavior.down.window_s
        kept = self._recommendations
        while kept and kept[0][0] <= now_s - max(up_s, down_s):
            kept.popleft()
        least = min((count for at_s, count in kept if at_s > now_s - up_s), default=recommended)
        most = max((count for at_s, count in kept if at_s > now_s - down_s), default=recommended)
        kept.append((now_s, recommended))
        raised = max(spec, min(least, recommended))
        return min(raised, max(most, recommended))

    def _limited(self, now_s: float, spec: int, stable: int) -> int:
        if stable > spec:
            steps = (self._allowed(now_s, spec, policy, 1) for policy in self._behavior.up.policies)
            return min(stable, max(spec, *steps), self._behavior.maximum)
        if stable < spec:
            steps = (self._allowed(now_s, spec, policy, -1) for policy in self._behavior.down.policies)
            return max(stable, min(spec, *steps), self._behavior.minimum)
        return spec

    def _allowed(self, now_s: float, spec: int, policy: ScalingPolicy, sign: int) -> int:
        started = spec - sum(step for at_s, step in self._steps if at_s > now_s - policy.period_s)
        if policy.type == "Pods":
            return started + sign * policy.value
        size = started * (1 + sign * policy.value / 100)
        return math.ceil(size) if sign > 0 else int(size)

    def _record(self, now_s: float, spec: int, decided: int) -> int:
        if decided != spec:
            self._steps.append((now_s, decided - spec))
        longest_s = max(self._periods())
        while self._steps and self._steps[0][0] <= now_s - longest_s:
            self._steps.popleft()
        return decided

    def _periods(self) -> Iterable[int]:
        yield from (policy.period_s for policy in self._behavior.up.policies)
        yield from (policy.period_s for policy in self._behavior.down.policies)
