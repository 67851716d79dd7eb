"""History of a plane's workloads, in the order in which etcd carried the changes out, and what is wrong with it. Pure.

Owns which label each version of an object bore. The judges of each kind count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from devcluster.real.etcd_watch import Stored
from ringleader.testing.unmodified.jobs import JobJudge
from ringleader.testing.unmodified.objects import Workload, decode_workload
from ringleader.testing.unmodified.replica_sets import DeploymentJudge
from ringleader.testing.unmodified.rings import LEASE_NAMESPACE, ProxiedRing
from ringleader.testing.unmodified.stateful_sets import StatefulSetJudge

_SHARD: Final = "shard."
_DOMAIN: Final = "ringleader.dev/"
_KINDS: Final = {
    "pods": "pods",
    "replicasets": "replicasets.apps",
    "deployments": "deployments.apps",
    "statefulsets": "statefulsets.apps",
    "jobs": "jobs.batch",
    "controllerrevisions": "controllerrevisions.apps",
    "rollouts": "rollouts.argoproj.io",
    "analysisruns": "analysisruns.argoproj.io",
}
"""The kinds that are followed, by the folder of their keys."""


@dataclass(slots=True)
class Labels:
    """The shard labels of one object: from which version on it bore which."""

    versions: list[int] = field(default_factory=list)
    values: list[dict[str, str]] = field(default_factory=list)

    def put(self, version: int, labels: dict[str, str]) -> None:
        ours = {name: value for name, value in labels.items() if name.startswith(_SHARD)}
        if not self.values or self.values[-1] != ours:
            self.versions.append(version)
            self.values.append(ours)

    def before(self, version: int) -> dict[str, str]:
        """Those of the last version before *version*."""
        index = bisect_left(self.versions, version) - 1
        return self.values[index] if index >= 0 else {}


class Workloads:
    """Every workload of *namespace*. *on_pod* is called with each new version of a pod."""

    def __init__(self, ring: ProxiedRing, *, namespace: str, on_pod: Callable[[Workload], None]) -> None:
        self.ring: Final = ring
        self.revision = 0
        """Everything up to here was seen."""
        self.findings: Final[list[str]] = []
        self.deployments: Final = DeploymentJudge(self.findings)
        self.stateful_sets: Final = StatefulSetJudge(self.findings)
        self.jobs: Final = JobJudge(self.findings)
        self.members: Final[dict[str, str]] = {}
        """The member of every shard that ever had a Lease."""
        self.synced: Final[set[str]] = set()
        """Members of which a shard has full caches."""
        self.labels: Final[dict[str, Labels]] = {}
        """By uid."""
        self.pods_made = 0
        self._namespace: Final = namespace
        self._on_pod: Final = on_pod
        self._now: Final[dict[str, tuple[str, Workload]]] = {}
        """Kind and newest version of what is there, by key."""

    def apply(self, change: Stored) -> str:
        """Take the next change. Returns a line about it; nothing if it is no workload's."""
        self.revision = change.revision
        parts = change.key.split("/")
        if len(parts) not in (5, 6):  # custom resources are below the folder of their group
            return ""
        folder, namespace, _ = parts[-3:]
        if folder == "leases" and namespace == LEASE_NAMESPACE and change.value:
            self._put_lease(decode_workload(change.value))
        elif namespace == self._namespace and folder in _KINDS:
            if not change.value:
                self._drop(change.key, change.revision)
                return f"{change.revision} {change.key} gone"
            found = decode_workload(change.value)
            self._put(change.key, folder, found, change.revision)
            return f"{change.revision} {change.key} {_line(found)}"
        return ""

    def owners(self) -> Counter[str]:
        """Root objects of the ring by the member that their label names; the empty name: none."""
        roots = {root.group_resource for root in self.ring.roots}
        found = [each for kind, each in self._now.values() if _KINDS[kind] in roots]
        shard = self.ring.keys.shard
        return Counter(self.members.get(each.metadata.labels.get(shard, ""), "") for each in found)

    def unsettled(self) -> list[str]:
        """What is not as it must be at rest."""
        judges = (self.deployments, self.stateful_sets, self.jobs)
        return [reason for judge in judges for reason in judge.unsettled()]

    def labels_before(self, uid: str, version: int) -> dict[str, str] | None:
        """Shard labels of the object *uid* just before *version*; None if no such object was seen."""
        found = self.labels.get(uid)
        return None if found is None else found.before(version)

    def _put_lease(self, lease: Workload) -> None:
        keys = self.ring.keys
        named = lease.metadata.annotations.get(keys.member)
        if lease.metadata.labels.get(keys.ring_label) == self.ring.name and named:
            self.members[lease.name] = named
            if lease.metadata.annotations.get(keys.synced):
                self.synced.add(named)

    def _put(self, key: str, folder: str, found: Workload, revision: int) -> None:
        _, before = self._now.get(key, (folder, None))
        self._now[key] = folder, found
        self.labels.setdefault(found.uid, Labels()).put(revision, found.metadata.labels)
        if before is not None and before.uid != found.uid:
            self._gone(folder, before, revision)
            before = None
        match folder:
            case "deployments" | "rollouts":
                self.deployments.put_deployment(found, revision)
            case "replicasets":
                self.deployments.put_replica_set(found, revision)
            case "statefulsets":
                self.stateful_sets.put(found, revision)
            case "jobs":
                self.jobs.put(found, revision)
            case "pods":
                self._put_pod(before, found, revision)

    def _drop(self, key: str, revision: int) -> None:
        folder, before = self._now.pop(key, ("", None))
        if before is not None:
            self._gone(folder, before, revision)

    def _gone(self, folder: str, before: Workload, revision: int) -> None:
        match folder:
            case "deployments" | "rollouts":
                self.deployments.drop_deployment(before.uid)
            case "replicasets":
                self.deployments.drop_replica_set(before.uid)
            case "statefulsets":
                self.stateful_sets.drop(before.uid)
            case "jobs":
                self.jobs.drop(before.uid)
            case "pods":
                if not before.is_ending:
                    self._end_pod(before, revision)

    def _put_pod(self, before: Workload | None, pod: Workload, revision: int) -> None:
        owner = pod.metadata.controller
        if owner is None or (before is not None and before.metadata.controller != owner):
            self.findings.append(f"revision {revision}: pod {pod.name} has lost its controller")
            return
        if before is None:
            self.pods_made += 1
            if owner.kind == "ReplicaSet":
                self.deployments.make_pod(pod, owner.uid, revision)
            elif owner.kind == "StatefulSet":
                self.stateful_sets.make_pod(pod, owner.uid, revision)
        if owner.kind == "Job":
            self.jobs.put_pod(pod, owner.uid, revision, is_new=before is None)
        if pod.is_ending and (before is None or not before.is_ending):
            self._end_pod(pod, revision)
        self._on_pod(pod)

    def _end_pod(self, pod: Workload, revision: int) -> None:
        owner = pod.metadata.controller
        if owner is None:
            return
        if owner.kind == "ReplicaSet":
            self.deployments.end_pod(pod, owner.uid, revision)
        elif owner.kind == "StatefulSet":
            self.stateful_sets.end_pod(pod, owner.uid)
        elif owner.kind == "Job":
            self.jobs.end_pod(pod, owner.uid, revision)


def _line(found: Workload) -> str:
    """What a change left, for people."""
    labels = found.metadata.labels
    ours = [f"{name.partition('.')[0]}={value}" for name, value in labels.items() if _DOMAIN in name]
    what = found.status.phase or f"replicas={found.spec.replicas} version={found.version}"
    return " ".join([what, *ours, *(["ending"] if found.is_ending else [])])
