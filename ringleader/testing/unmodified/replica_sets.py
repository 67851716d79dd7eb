"""Judge of Deployments: pods made and ended by each ReplicaSet against the pods that its versions asked for. Pure.

A ReplicaSet that begins with 3 replicas, is raised to 5 and lowered to 0 has been raised by 5 and lowered by 5. A right
controller makes at most as many pods as it was raised by, and ends at most as many as it was lowered by: it may miss a
number that did not last, and makes no pod twice. At rest the pods that are left are as many as its replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringleader.testing.unmodified.objects import Workload


@dataclass(slots=True)
class ReplicaSetCount:
    """Counts of one ReplicaSet in the versions seen so far."""

    name: str
    deployment: str
    version: int
    wanted: int = 0
    """Its replicas now."""
    raised: int = 0
    lowered: int = 0
    made: int = 0
    ended: int = 0
    is_gone: bool = False

    @property
    def live(self) -> int:
        return self.made - self.ended

    @property
    def missed(self) -> int:
        """Pods that it was raised by and never made: a number that did not last."""
        return self.raised - self.made

    def want(self, replicas: int) -> None:
        change = replicas - self.wanted
        self.raised += max(0, change)
        self.lowered += max(0, -change)
        self.wanted = replicas


@dataclass(slots=True)
class DeploymentCount:
    """One Deployment as it is now."""

    now: Workload
    replica_sets: dict[str, ReplicaSetCount] = field(default_factory=dict)
    """Those that are there, by uid."""
    made_of: dict[int, str] = field(default_factory=dict)
    """The ReplicaSet ever made of each template."""


class DeploymentJudge:
    """Follows Deployments, ReplicaSets and their pods in the order of their versions; *findings* gets what is wrong."""

    def __init__(self, findings: list[str]) -> None:
        self.deployments: dict[str, DeploymentCount] = {}
        self.replica_sets: dict[str, ReplicaSetCount] = {}
        """Every one that ever was, by uid."""
        self._findings = findings

    def put_deployment(self, found: Workload, revision: int) -> None:
        count = self.deployments.get(found.uid)
        if count is None:
            self.deployments[found.uid] = DeploymentCount(found)
            return
        if found.status.collision_count > count.now.status.collision_count:
            self._find(revision, f"Deployment {found.name} met a ReplicaSet that it did not know")
        count.now = found

    def drop_deployment(self, uid: str) -> None:
        self.deployments.pop(uid, None)

    def put_replica_set(self, found: Workload, revision: int) -> None:
        count = self.replica_sets.get(found.uid)
        if count is None:
            owner = found.metadata.controller
            deployment = owner.uid if owner is not None else ""
            count = ReplicaSetCount(found.name, deployment, found.version)
            self.replica_sets[found.uid] = count
            self._note_made(found, count, revision)
        count.want(found.spec.replicas)

    def _note_made(self, found: Workload, count: ReplicaSetCount, revision: int) -> None:
        above = self.deployments.get(count.deployment)
        if above is None:
            self._find(revision, f"ReplicaSet {found.name} has no Deployment")
            return
        first = above.made_of.setdefault(found.version, found.name)
        if first != found.name:
            self._find(
                revision, f"ReplicaSet {found.name} was made of template {found.version} as {first} was"
            )
        above.replica_sets[found.uid] = count

    def drop_replica_set(self, uid: str) -> None:
        count = self.replica_sets.get(uid)
        if count is None:
            return
        count.is_gone = True
        if (above := self.deployments.get(count.deployment)) is not None:
            above.replica_sets.pop(uid, None)

    def make_pod(self, pod: Workload, owner: str, revision: int) -> None:
        """*pod* appeared, which the ReplicaSet *owner* controls."""
        count = self.replica_sets.get(owner)
        if count is None:
            self._find(revision, f"pod {pod.name} has no ReplicaSet")
            return
        count.made += 1
        if count.made > count.raised:
            self._find(
                revision,
                f"pod {pod.name} is the {count.made}. of ReplicaSet {count.name}, raised by {count.raised}",
            )

    def end_pod(self, pod: Workload, owner: str, revision: int) -> None:
        count = self.replica_sets.get(owner)
        if count is None or count.is_gone:
            return
        count.ended += 1
        if count.ended > count.lowered:
            self._find(
                revision,
                f"pod {pod.name} is the {count.ended}. that ReplicaSet {count.name} ended, lowered by {count.lowered}",
            )

    def unsettled(self) -> list[str]:
        """What is not as it must be at rest."""
        return [reason for count in self.deployments.values() for reason in unsettled(count)]

    def missed(self) -> int:
        """Pods that numbers asked for which did not last; what this grows by while one number lasts was lost."""
        return sum(count.missed for count in self.replica_sets.values())

    def _find(self, revision: int, what: str) -> None:
        self._findings.append(f"revision {revision}: {what}")


def unsettled(count: DeploymentCount) -> list[str]:
    """What of one Deployment is not as it must be at rest."""
    now, wanted = count.now, count.now.spec.replicas
    reasons = []
    if now.status.observed_generation < now.metadata.generation:
        reasons.append(f"Deployment {now.name} was not looked at")
    if now.status.available_replicas != wanted or now.status.updated_replicas != wanted:
        reasons.append(
            f"Deployment {now.name} has {now.status.available_replicas} of {wanted} pods available"
        )
    current = [each for each in count.replica_sets.values() if each.version == now.version]
    if len(current) != 1:
        reasons.append(f"Deployment {now.name} has {len(current)} ReplicaSets of template {now.version}")
    for each in count.replica_sets.values():
        due = wanted if each.version == now.version else 0
        if not each.wanted == each.live == due:
            reasons.append(f"ReplicaSet {each.name} has {each.live} pods, wants {each.wanted}, due {due}")
    return reasons
