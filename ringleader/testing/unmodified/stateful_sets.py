"""Judge of StatefulSets: an ordinal has one pod of each template, and one more each time it was scaled away. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ringleader.testing.unmodified.objects import Workload


@dataclass(slots=True)
class StatefulSetCount:
    now: Workload
    highest: int
    """Most replicas since it was at rest."""
    live: dict[int, Workload] = field(default_factory=dict)
    """Its pods by ordinal."""
    made: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Pods ever made, by ordinal and template."""
    scaled_away: Counter[int] = field(default_factory=Counter)
    """How often each ordinal was beyond a lowered number of replicas."""


class StatefulSetJudge:
    """Follows StatefulSets and their pods in the order of their versions; *findings* gets what is wrong."""

    def __init__(self, findings: list[str]) -> None:
        self.stateful_sets: dict[str, StatefulSetCount] = {}
        self._findings = findings

    def put(self, found: Workload, revision: int) -> None:
        replicas = found.spec.replicas
        count = self.stateful_sets.get(found.uid)
        if count is None:
            self.stateful_sets[found.uid] = StatefulSetCount(found, highest=replicas)
            return
        if found.status.collision_count > count.now.status.collision_count:
            self._find(revision, f"StatefulSet {found.name} met a revision that it did not know")
        count.scaled_away.update(range(replicas, count.now.spec.replicas))
        count.now, count.highest = found, max(count.highest, replicas)
        if not _unsettled(count):
            count.highest = replicas

    def drop(self, uid: str) -> None:
        self.stateful_sets.pop(uid, None)

    def make_pod(self, pod: Workload, owner: str, revision: int) -> None:
        count = self.stateful_sets.get(owner)
        ordinal = _ordinal(pod)
        if count is None or ordinal is None:
            self._find(revision, f"pod {pod.name} has no StatefulSet")
            return
        count.live[ordinal] = pod
        count.made[ordinal, pod.version] += 1
        times = count.made[ordinal, pod.version]
        if ordinal >= count.highest:
            self._find(revision, f"pod {pod.name} was made beyond {count.highest} replicas")
        if times > 1 + count.scaled_away[ordinal]:
            self._find(revision, f"pod {pod.name} of template {pod.version} was made {times} times")

    def end_pod(self, pod: Workload, owner: str) -> None:
        count = self.stateful_sets.get(owner)
        ordinal = _ordinal(pod)
        if count is not None and ordinal is not None:
            count.live.pop(ordinal, None)

    def made(self) -> int:
        return sum(count.made.total() for count in self.stateful_sets.values())

    def unsettled(self) -> list[str]:
        """What is not as it must be at rest."""
        return [reason for count in self.stateful_sets.values() for reason in _unsettled(count)]

    def _find(self, revision: int, what: str) -> None:
        self._findings.append(f"revision {revision}: {what}")


def _unsettled(count: StatefulSetCount) -> list[str]:
    now, status = count.now, count.now.status
    reasons = []
    if status.observed_generation < now.metadata.generation or status.available_replicas != now.spec.replicas:
        reasons.append(
            f"StatefulSet {now.name} has {status.available_replicas} of {now.spec.replicas} pods available"
        )
    due = dict.fromkeys(range(now.spec.replicas), now.version)
    found = {ordinal: pod.version for ordinal, pod in count.live.items()}
    if found != due:
        reasons.append(f"StatefulSet {now.name} has pods of templates {found}, due {due}")
    return reasons


def _ordinal(pod: Workload) -> int | None:
    text = pod.name.rpartition("-")[2]
    return int(text) if text.isdecimal() else None
