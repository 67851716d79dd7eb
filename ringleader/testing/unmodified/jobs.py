"""Judge of Jobs: each makes as many pods as it completes and loses, none is counted twice or not at all. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ringleader.testing.unmodified.objects import FAILURES, Workload

TRACKED: Final = "batch.kubernetes.io/job-tracking"
"""Finalizer of a pod that its Job has not counted yet."""


@dataclass(slots=True)
class JobCount:
    now: Workload
    pods: dict[str, Workload] = field(default_factory=dict)
    """Every pod ever made, by uid."""
    made: int = 0

    @property
    def failures(self) -> int:
        """How many of its pods are to fail."""
        return int(self.now.spec.template.metadata.labels.get(FAILURES, "0"))

    def ended(self, phase: str) -> int:
        return sum(pod.status.phase == phase for pod in self.pods.values())


class JobJudge:
    """Follows Jobs and their pods in the order of their versions; *findings* gets what is wrong."""

    def __init__(self, findings: list[str]) -> None:
        self.jobs: dict[str, JobCount] = {}
        self._findings = findings

    def put(self, found: Workload, revision: int) -> None:
        count = self.jobs.setdefault(found.uid, JobCount(found))
        count.now = found
        status = found.status
        succeeded, failed = count.ended("Succeeded"), count.ended("Failed")
        if status.succeeded > succeeded or status.failed > failed:
            self._find(
                revision,
                f"Job {found.name} counts {status.succeeded} completed and {status.failed} failed pods"
                f" of {succeeded} and {failed}",
            )

    def drop(self, uid: str) -> None:
        self.jobs.pop(uid, None)

    def put_pod(self, pod: Workload, owner: str, revision: int, *, is_new: bool) -> None:
        count = self.jobs.get(owner)
        if count is None:
            self._find(revision, f"pod {pod.name} has no Job")
            return
        before = count.pods.get(pod.uid)
        count.pods[pod.uid] = pod
        if is_new:
            count.made += 1
            most = count.now.spec.completions + count.ended("Failed")
            if count.made > most:
                self._find(
                    revision,
                    f"pod {pod.name} is the {count.made}. of Job {count.now.name}, which needs {most}",
                )
        elif before is not None and TRACKED in before.metadata.finalizers:
            is_over = before.status.phase in ("Succeeded", "Failed")
            if TRACKED not in pod.metadata.finalizers and not is_over:
                self._find(revision, f"pod {pod.name} is not tracked any more before it ended")

    def end_pod(self, pod: Workload, owner: str, revision: int) -> None:
        if owner in self.jobs:
            self._find(revision, f"pod {pod.name} of a Job was deleted")

    def unsettled(self) -> list[str]:
        """What is not as it must be at rest."""
        return [reason for count in self.jobs.values() for reason in _unsettled(count)]

    def _find(self, revision: int, what: str) -> None:
        self._findings.append(f"revision {revision}: {what}")


def _unsettled(count: JobCount) -> list[str]:
    now, status = count.now, count.now.status
    due = (now.spec.completions, count.failures, now.spec.completions + count.failures)
    found = (status.succeeded, status.failed, count.made)
    reasons = []
    if not status.has("Complete") or found != due:
        reasons.append(f"Job {now.name} has completed, failed and made {found}, due {due}")
    if any(status.uncounted_terminated_pods.values()):
        reasons.append(f"Job {now.name} has pods that it did not count")
    if any(TRACKED in pod.metadata.finalizers for pod in count.pods.values()):
        reasons.append(f"Job {now.name} has pods that it still tracks")
    return reasons
