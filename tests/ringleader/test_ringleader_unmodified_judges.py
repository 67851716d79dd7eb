"""Judges of unmodified controllers: each finds what it is for, and nothing in what a right controller does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from devcluster.plane import Write
from devcluster.real.etcd_watch import Stored
from ringleader.testing.unmodified.foreign import judge_writes
from ringleader.testing.unmodified.objects import Workload
from ringleader.testing.unmodified.rings import WORKLOADS_RING
from ringleader.testing.unmodified.workloads import Workloads

SHARD = WORKLOADS_RING.keys.shard
TRACKED = "batch.kubernetes.io/job-tracking"


class Etcd:
    """Changes in their order, as the API server stores them; a uid is a name."""

    def __init__(self) -> None:
        self.pods: list[str] = []
        self.workloads = Workloads(WORKLOADS_RING, namespace="web", on_pod=self._see)
        self.revisions: Iterator[int] = count(1)

    def _see(self, pod: Workload) -> None:
        self.pods.append(pod.name)

    def put(
        self,
        folder: str,
        name: str,
        *,
        of: tuple[str, str] | None = None,
        meta: dict[str, Any] | None = None,
        **more: Any,
    ) -> int:
        """Store an object that *of*, kind and name, controls. Returns its version."""
        metadata: dict[str, Any] = {"name": name, "uid": name, "namespace": "web", **(meta or {})}
        if of is not None:
            kind, owner = of
            metadata["ownerReferences"] = [{"kind": kind, "name": owner, "uid": owner, "controller": True}]
        namespace = "rings" if folder == "leases" else "web"
        value = msgspec.json.encode({"metadata": metadata, **more})
        return self._apply(f"/registry/{folder}/{namespace}/{name}", value)

    def drop(self, folder: str, name: str) -> None:
        self._apply(f"/registry/{folder}/web/{name}", b"")

    def _apply(self, key: str, value: bytes) -> int:
        revision = next(self.revisions)
        self.workloads.apply(Stored(key, revision, value))
        return revision

    # -- Deployments ----------------------------------------------------------------------------------------

    def deployment(self, replicas: int = 2, *, version: int = 0, **status: Any) -> int:
        template = {"metadata": {"labels": {"version": str(version)}}}
        meta = {"generation": 1, "labels": {SHARD: "a-1"}}
        spec = {"replicas": replicas, "template": template}
        return self.put(
            "deployments", "web", meta=meta, spec=spec, status={"observedGeneration": 1, **status}
        )

    def replica_set(self, name: str, replicas: int, *, version: int = 0) -> int:
        meta = {"labels": {"version": str(version), SHARD: "a-1"}}
        return self.put("replicasets", name, of=("Deployment", "web"), meta=meta, spec={"replicas": replicas})

    def pod(self, name: str, of: str, **meta: Any) -> int:
        return self.put("pods", name, of=("ReplicaSet", of), meta=meta)


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


def test_a_rollout_by_a_right_controller_leaves_no_finding(etcd: Etcd) -> None:
    etcd.deployment()
    etcd.replica_set("old", 2)
    etcd.pod("old-1", "old")
    etcd.pod("old-2", "old")
    etcd.deployment(version=1)
    for step in (1, 2):
        etcd.replica_set("new", step, version=1)
        etcd.pod(f"new-{step}", "new", labels={"version": "1"})
        etcd.replica_set("old", 2 - step)
        etcd.drop("pods", f"old-{step}")
    etcd.deployment(version=1, availableReplicas=2, updatedReplicas=2)
    assert (etcd.workloads.findings, etcd.workloads.unsettled()) == ([], [])
    assert etcd.workloads.deployments.missed() == 0
    assert etcd.pods == ["old-1", "old-2", "new-1", "new-2"]


def test_a_rollout_is_judged_as_a_deployment_is(etcd: Etcd) -> None:
    """Custom resources are below the folder of their group; observedGeneration is a string."""
    template = {"metadata": {"labels": {"version": "0"}}}
    etcd.put(
        "argoproj.io/rollouts",
        "canary",
        meta={"generation": 2},
        spec={"replicas": 1, "template": template},
        status={"observedGeneration": "1"},
    )
    for name in ("first", "second"):
        etcd.put("replicasets", name, of=("Rollout", "canary"), spec={"replicas": 0})
    assert etcd.workloads.findings == ["revision 3: ReplicaSet second was made of template 0 as first was"]
    assert "Deployment canary was not looked at" in etcd.workloads.unsettled()


def test_a_pod_more_than_a_replica_set_was_raised_by_is_found(etcd: Etcd) -> None:
    etcd.deployment()
    etcd.replica_set("set", 1)
    etcd.pod("set-1", "set")
    etcd.pod("set-2", "set")
    assert etcd.workloads.findings == ["revision 4: pod set-2 is the 2. of ReplicaSet set, raised by 1"]


def test_a_pod_that_is_made_again_after_a_scale_down_was_asked_for_again(etcd: Etcd) -> None:
    etcd.deployment()
    etcd.replica_set("set", 2)
    etcd.replica_set("set", 1)  # nothing was made yet: one number did not last
    etcd.pod("set-1", "set")
    etcd.replica_set("set", 2)
    etcd.pod("set-2", "set")
    assert etcd.workloads.findings == []
    assert etcd.workloads.deployments.missed() == 1


def test_a_pod_that_ends_though_nothing_was_lowered_is_found_once(etcd: Etcd) -> None:
    etcd.deployment()
    etcd.replica_set("set", 1)
    etcd.pod("set-1", "set")
    etcd.pod("set-1", "set", deletionTimestamp="2026-11-24T10:00:00Z")
    etcd.drop("pods", "set-1")
    (found,) = etcd.workloads.findings
    assert found == "revision 4: pod set-1 is the 1. that ReplicaSet set ended, lowered by 0"


def test_two_replica_sets_of_one_template_are_found(etcd: Etcd) -> None:
    etcd.deployment()
    etcd.replica_set("first", 2)
    etcd.replica_set("second", 2)
    etcd.deployment(collisionCount=1)
    assert etcd.workloads.findings == [
        "revision 3: ReplicaSet second was made of template 0 as first was",
        "revision 4: Deployment web met a ReplicaSet that it did not know",
    ]


def test_what_is_not_at_rest_is_named(etcd: Etcd) -> None:
    etcd.deployment(3, availableReplicas=1, updatedReplicas=3)
    etcd.replica_set("set", 3)
    etcd.pod("set-1", "set")
    assert etcd.workloads.unsettled() == [
        "Deployment web has 1 of 3 pods available",
        "ReplicaSet set has 1 pods, wants 3, due 3",
    ]


def stateful_set(etcd: Etcd, replicas: int, *, version: int = 0, available: int = 0) -> None:
    spec = {"replicas": replicas, "template": {"metadata": {"labels": {"version": str(version)}}}}
    etcd.put("statefulsets", "db", spec=spec, status={"availableReplicas": available})


def ordinal(etcd: Etcd, number: int, *, version: int = 0) -> None:
    etcd.put("pods", f"db-{number}", of=("StatefulSet", "db"), meta={"labels": {"version": str(version)}})


def test_an_ordinal_has_one_pod_of_each_template_and_one_after_each_scaling(etcd: Etcd) -> None:
    stateful_set(etcd, 2)
    ordinal(etcd, 0)
    ordinal(etcd, 1)
    stateful_set(etcd, 1)
    etcd.drop("pods", "db-1")
    stateful_set(etcd, 2)
    ordinal(etcd, 1)
    stateful_set(etcd, 2, version=1)
    etcd.drop("pods", "db-1")
    ordinal(etcd, 1, version=1)
    assert etcd.workloads.findings == []
    etcd.drop("pods", "db-0")
    ordinal(etcd, 0)
    assert etcd.workloads.findings == ["revision 12: pod db-0 of template 0 was made 2 times"]
    ordinal(etcd, 2)
    assert etcd.workloads.findings[1:] == ["revision 13: pod db-2 was made beyond 2 replicas"]


def job(etcd: Etcd, *, failures: int = 0, **status: Any) -> None:
    template = {"metadata": {"labels": {"failures": str(failures)}}}
    etcd.put("jobs", "task", spec={"completions": 2, "template": template}, status=status)


def worker(etcd: Etcd, name: str, phase: str = "", *, tracked: bool = True) -> None:
    meta = {"finalizers": [TRACKED] if tracked else []}
    etcd.put("pods", name, of=("Job", "task"), meta=meta, status={"phase": phase})


def test_a_job_with_a_pod_that_failed_is_counted_exactly(etcd: Etcd) -> None:
    job(etcd, failures=1)
    for name, phase in (("a", "Failed"), ("b", "Succeeded"), ("c", "Succeeded")):
        worker(etcd, name)
        worker(etcd, name, phase)
        worker(etcd, name, phase, tracked=False)
    complete = [{"type": "Complete", "status": "True"}]
    job(etcd, failures=1, succeeded=2, failed=1, conditions=complete)
    assert (etcd.workloads.findings, etcd.workloads.unsettled()) == ([], [])
    job(etcd, failures=1, succeeded=3, failed=1, conditions=complete)
    assert etcd.workloads.findings == [
        "revision 12: Job task counts 3 completed and 1 failed pods of 2 and 1"
    ]


def test_a_pod_too_many_and_a_pod_that_is_tracked_no_longer_are_found(etcd: Etcd) -> None:
    job(etcd)
    for name in "abc":
        worker(etcd, name)
    worker(etcd, "a", tracked=False)
    assert etcd.workloads.findings == [
        "revision 4: pod c is the 3. of Job task, which needs 2",
        "revision 5: pod a is not tracked any more before it ended",
    ]


# -- whose the writes were -------------------------------------------------------------------------------------------


def lease(etcd: Etcd, shard: str, member: str) -> None:
    keys = WORKLOADS_RING.keys
    meta = {"labels": {keys.ring_label: keys.ring}, "annotations": {keys.member: member}}
    etcd.put("leases", shard, meta=meta)


def write(version: int, user: str, verb: str = "update", **more: Any) -> Write:
    fields: dict[str, Any] = {"name": "set", "uid": "set", **more}
    return Write(
        0, 0.0, user, verb, "replicasets.apps", "web", resource_version=str(version), code=200, **fields
    )


def foreign(etcd: Etcd, *writes: Write) -> list[str]:
    return judge_writes(writes, etcd.workloads, {"a", "b"}).foreign


def test_the_label_just_before_a_write_names_its_writer(etcd: Etcd) -> None:
    lease(etcd, "a-1", "a")
    lease(etcd, "b-1", "b")
    etcd.deployment()
    etcd.replica_set("set", 1)
    version = etcd.put("replicasets", "set", of=("Deployment", "web"), meta={"labels": {SHARD: "b-1"}})
    assert foreign(etcd, write(version, "a"), write(version + 1, "b"), write(version + 1, "person")) == []
    late, early = foreign(etcd, write(version + 1, "a"), write(version, "b"))
    assert f"update by a accepted as version {version + 1} while it bore the name b-1" in late
    assert f"update by b accepted as version {version} while it bore the name a-1" in early


def test_what_is_deleted_for_good_bore_its_last_label(etcd: Etcd) -> None:
    lease(etcd, "a-1", "a")
    etcd.deployment()
    etcd.replica_set("set", 1)
    etcd.drop("replicasets", "set")
    gone = write(0, "a", "delete", labels_before=None)
    gone = msgspec.structs.replace(gone, resource_version="")
    assert foreign(etcd, gone) == []
    assert len(foreign(etcd, msgspec.structs.replace(gone, user="b"))) == 1


def test_what_was_carried_out_without_an_answer_bore_what_the_audit_log_says(etcd: Etcd) -> None:
    """It has no version of its own, and its object may have moved since."""
    lease(etcd, "a-1", "a")
    lease(etcd, "b-1", "b")
    etcd.deployment()
    etcd.replica_set("set", 1)
    etcd.put("replicasets", "set", of=("Deployment", "web"), meta={"labels": {SHARD: "b-1"}})
    for user, label, found in (("a", "a-1", 0), ("a", "b-1", 1)):
        unanswered = write(0, user, "patch", labels_before={SHARD: label})
        assert len(foreign(etcd, msgspec.structs.replace(unanswered, resource_version=""))) == found
    created = msgspec.structs.replace(write(0, "a", "create", controller="web"), resource_version="")
    assert foreign(etcd, created) == []


def test_what_is_created_bears_the_name_that_its_controller_bore(etcd: Etcd) -> None:
    lease(etcd, "a-1", "a")
    lease(etcd, "b-1", "b")
    etcd.deployment()
    version = etcd.replica_set("set", 1)
    own, other = {SHARD: "a-1"}, {SHARD: "b-1"}
    assert foreign(etcd, write(version, "a", "create", controller="web", labels_after=own)) == []
    assert len(foreign(etcd, write(version, "b", "create", controller="web", labels_after=other))) == 1
    assert len(foreign(etcd, write(version, "b", "create", controller="web", labels_after=own))) == 1
