"""Writes rebuilt from made-up audit logs: their order, and the labels before and after each."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.plane import Write
from devcluster.real.audit_log import Restore, audit_policy, read_attempts, writes_in_order
from devcluster.real.lost_answers import Request

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def line(
    t: float,
    verb: str,
    name: str = "a",
    *,
    code: int = 200,
    uid: str = "u1",
    version: int | None = None,
    labels: dict[str, str] | None = None,
    user: str = "shard-a",
    **more: Any,
) -> dict[str, Any]:
    """One line of an audit log; with a *version* the answer is the object, else a Status."""
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": uid, "labels": labels or {}}
    answer: dict[str, Any] = {"kind": "Status", "metadata": {}, "details": {"uid": uid}}
    if version is not None:
        answer = {"kind": "Website", "metadata": metadata | {"resourceVersion": str(version)}}
    reference = {
        "resource": "websites",
        "apiGroup": "example.com",
        "apiVersion": "v1",
        "namespace": "default",
        "name": name,
    }
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "requestURI": "/apis/example.com/v1/namespaces/default/websites",
        "verb": verb,
        "user": {"username": user, "groups": ["system:authenticated"]},
        "objectRef": reference,
        "responseStatus": {"metadata": {}, "code": code},
        "responseObject": answer,
        "stageTimestamp": (EPOCH + timedelta(seconds=t)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    } | more


def writes(*events: dict[str, Any], boot_offset_s: float = 0.0) -> list[Write]:
    lines = [json.dumps(event).encode() for event in events]
    return writes_in_order(read_attempts(lines, boot_offset_s=boot_offset_s))


def created(version: int = 10, **labels: str) -> dict[str, Any]:
    """The creation of the object."""
    return line(1, "create", code=201, version=version, labels=labels)


def steps(found: list[Write]) -> list[tuple[str, dict[str, str] | None, dict[str, str] | None]]:
    return [(write.verb, write.labels_before, write.labels_after) for write in found]


def test_answers_that_were_logged_out_of_order_are_put_in_the_order_of_their_versions() -> None:
    found = writes(
        created(s="1"),
        line(2.2, "patch", version=12, labels={"s": "3"}),
        line(2.3, "patch", version=11, labels={"s": "2"}),
    )
    assert steps(found) == [
        ("create", None, {"s": "1"}),
        ("patch", {"s": "1"}, {"s": "2"}),
        ("patch", {"s": "2"}, {"s": "3"}),
    ]
    assert [write.seq for write in found] == [1, 2, 3]


def test_no_write_is_later_than_one_that_was_decided_after_it() -> None:
    found = writes(line(2.2, "patch", version=12), line(2.3, "patch", version=11))
    start = EPOCH.timestamp()
    assert [round(write.t - start, 3) for write in found] == [2.2, 2.2]


def test_times_are_moved_to_the_boot_clock() -> None:
    (found,) = writes(line(5.0, "create", code=201, version=1), boot_offset_s=-EPOCH.timestamp() + 100)
    assert round(found.t, 6) == 105.0


def test_refused_write_keeps_the_labels_of_its_moment_and_its_reason() -> None:
    status = {"metadata": {}, "code": 422, "message": "the server rejected our request", "reason": "Invalid"}
    refused = line(
        2, "patch", code=422, responseStatus=status, responseObject={"kind": "Status", "metadata": {}}
    )
    found = writes(created(s="1"), refused, line(3, "patch", version=11, labels={"s": "2"}))
    assert steps(found)[1] == ("patch", {"s": "1"}, {"s": "1"})
    assert (found[1].uid, found[1].code, found[1].message) == ("u1", 422, "the server rejected our request")
    assert found[1].resource_version == ""


def test_deletion_comes_after_every_write_to_the_object_and_leaves_nothing() -> None:
    found = writes(
        created(s="1"),
        line(2.0, "delete"),
        line(2.1, "patch", version=11, labels={"s": "2"}),
        line(3, "create", code=201, version=13, uid="u2", labels={"s": "3"}),
    )
    assert steps(found) == [
        ("create", None, {"s": "1"}),
        ("patch", {"s": "1"}, {"s": "2"}),
        ("delete", {"s": "2"}, None),
        ("create", None, {"s": "3"}),
    ]


def test_deletion_held_by_a_finalizer_leaves_the_object_until_the_finalizer_goes() -> None:
    held = line(2, "delete", version=11, labels={"s": "1"})
    held["responseObject"]["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:02Z", "finalizers": ["x/y"]}
    freed = line(3, "patch", version=11, labels={"s": "1"})
    freed["responseObject"]["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:02Z"}
    found = writes(created(s="1"), held, freed)
    assert steps(found)[1:] == [("delete", {"s": "1"}, {"s": "1"}), ("patch", {"s": "1"}, None)]


def test_dry_runs_reads_and_unfinished_stages_are_no_writes() -> None:
    dry = line(1, "patch", version=3) | {"requestURI": "/apis/example.com/v1/websites/a?dryRun=All"}
    assert writes(dry, line(2, "get", version=3), line(3, "patch", version=4, stage="Panic")) == []


def test_impersonated_account_is_the_one_that_counts() -> None:
    (found,) = writes(line(1, "create", code=201, version=1, impersonatedUser={"username": "shard-b"}))
    assert found.user == "shard-b"


def test_pod_of_a_mounted_token_is_known() -> None:
    extra = {"authentication.kubernetes.io/pod-name": ["websites-0"]}
    account = {"username": "system:serviceaccount:sites:websites", "extra": extra}
    by_pod, by_hand = writes(
        line(1, "create", code=201, version=1) | {"user": account},
        line(2, "update", version=2),
    )
    assert (by_pod.pod, by_hand.pod) == ("websites-0", "")


def test_generated_name_is_taken_from_the_answer() -> None:
    made = line(1, "create", "made-x7x7x", code=201, version=1)
    del made["objectRef"]["name"]
    (found,) = writes(made)
    assert found.name == "made-x7x7x"


def test_deletecollection_is_one_write_per_object() -> None:
    items = [
        {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "9"}}
        for name in ("a", "b")
    ]
    collection = line(
        3, "deletecollection", "", responseObject={"kind": "WebsiteList", "metadata": {}, "items": items}
    )
    found = writes(
        line(1, "create", "a", code=201, uid="a", version=8, labels={"s": "1"}),
        line(2, "create", "b", code=201, uid="b", version=9, labels={"s": "2"}),
        collection,
    )
    assert steps(found)[2:] == [
        ("deletecollection", {"s": "1"}, None),
        ("deletecollection", {"s": "2"}, None),
    ]
    assert [write.name for write in found[2:]] == ["a", "b"]


def test_lease_keeps_its_spec_and_annotations() -> None:
    event = line(1, "update", version=5)
    event["objectRef"] |= {"resource": "leases", "apiGroup": "coordination.k8s.io"}
    event["responseObject"] |= {"spec": {"holderIdentity": "x"}}
    event["responseObject"]["metadata"]["annotations"] = {"ringleader.dev/member": "m"}
    (found,) = writes(event)
    assert found.resource == "leases.coordination.k8s.io"
    assert found.object == {"spec": {"holderIdentity": "x"}, "annotations": {"ringleader.dev/member": "m"}}


@given(st.permutations(range(2, 12)), st.lists(st.floats(0, 0.5), min_size=10, max_size=10))
def test_labels_before_are_those_of_the_version_before_however_late_answers_were_logged(
    order: list[int], delays: list[float]
) -> None:
    events = [line(0, "create", code=201, version=1, labels={"v": "1"})]
    events += [
        line(1 + version / 1000 + delay, "patch", version=version, labels={"v": str(version)})
        for version, delay in zip(order, delays, strict=True)
    ]
    found = writes(*events)
    assert [write.labels_after for write in found] == [{"v": str(v)} for v in range(1, 12)]
    assert [write.labels_before for write in found[1:]] == [{"v": str(v)} for v in range(1, 11)]


SHARD = "shard.ringleader.dev/websites"
A_TEST = {"op": "test", "path": "/metadata/labels/shard.ringleader.dev~1websites"}


def assigned(t: float, to: str, *, code: int = 504) -> dict[str, Any]:
    """A sharder's assignment that was answered with an error."""
    body = {"metadata": {"resourceVersion": "11", "labels": {SHARD: to, "drain": None}}}
    return line(t, "patch", code=code, user="sharder", requestObject=body)


def published(t: float, version: int, by: str, **more: Any) -> dict[str, Any]:
    """A shard's fenced write of the status, which shows the labels that it met."""
    body = [A_TEST | {"value": by}, {"op": "add", "path": "/status", "value": {}}]
    return line(t, "patch", version=version, labels={SHARD: by}, user=by, requestObject=body, **more)


def test_write_that_was_carried_out_without_an_answer_is_found_by_the_next_one() -> None:
    found = writes(created(11, **{SHARD: "a"}), assigned(2.0, "b"), published(3.0, 15, "b"))
    assert steps(found) == [
        ("create", None, {SHARD: "a"}),
        ("patch", {SHARD: "a"}, {SHARD: "b"}),
        ("patch", {SHARD: "b"}, {SHARD: "b"}),
    ]
    assert (found[1].code, found[1].user) == (200, "sharder")
    assert found[1].t == pytest.approx(EPOCH.timestamp() + 2.0)
    assert "504" in found[1].message


def test_write_that_was_not_carried_out_stays_refused() -> None:
    found = writes(created(11, **{SHARD: "a"}), assigned(2.0, "b"), published(3.0, 15, "a"))
    assert steps(found)[1:] == [("patch", {SHARD: "a"}, {SHARD: "a"})] * 2
    assert found[1].code == 504


@pytest.mark.parametrize(("met", "code"), [("11", 504), ("14", 200)])
def test_next_write_that_changes_the_labels_tells_by_the_version_that_it_was_let_through_at(
    met: str, code: int
) -> None:
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": met}
    change = {"op": "replace", "path": A_TEST["path"], "value": "c"}
    passed_on = line(3.0, "patch", version=15, labels={SHARD: "c"}, requestObject=[test, change])
    found = writes(created(11, **{SHARD: "a"}), assigned(2.0, "b"), passed_on)
    assert found[1].code == code
    assert found[2].labels_before == ({SHARD: "b"} if code == 200 else {SHARD: "a"})


def test_labels_that_nothing_in_the_log_explains_were_there_before_the_write_that_shows_them() -> None:
    found = writes(created(11, **{SHARD: "a"}), published(3.0, 15, "b"))
    assert found[1].labels_before == {SHARD: "b"}


def test_accepted_write_to_anothers_object_is_not_explained_away() -> None:
    unfenced = line(3.0, "patch", version=15, labels={SHARD: "a"}, user="b", requestObject={"status": {}})
    found = writes(created(11, **{SHARD: "a"}), assigned(2.0, "b"), unfenced)
    assert (found[1].code, found[2].labels_before) == (504, {SHARD: "a"})


def leased(
    t: float, verb: str, holder: str, *, code: int = 200, version: int | None = None, met: str = ""
) -> Any:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3}
    event = line(t, verb, "life-1", code=code, version=version, uid="l1", labels={"ring": "r"})
    event["objectRef"] = {"resource": "leases", "apiGroup": "coordination.k8s.io", "name": "life-1"}
    if version is not None:
        event["responseObject"] |= {"kind": "Lease", "spec": spec}
    metadata = {"name": "life-1", "uid": "l1", "resourceVersion": met, "labels": {"ring": "r"}}
    return event | {"requestObject": {"kind": "Lease", "metadata": metadata, "spec": spec}}


def test_lease_that_was_created_or_taken_without_an_answer_is_known_as_such() -> None:
    found = writes(
        leased(1.0, "create", "life-1", code=504),
        leased(2.0, "update", "life-1", version=20),
        leased(3.0, "update", "sharder", code=504, met="20"),
        leased(4.0, "update", "sharder", version=25, met="24"),
    )
    assert [write.code for write in found] == [200, 200, 200, 200]
    assert [write.verb for write in found] == ["create", "update", "update", "update"]
    assert found[0].labels_after == {"ring": "r"}
    holders = [write.object["spec"]["holderIdentity"] for write in found if write.object]
    assert holders == ["life-1", "life-1", "sharder", "sharder"]


@pytest.mark.parametrize(
    "body",
    [
        [{"op": "add", "path": "/status", "value": {"page": "x" * 9000}}],
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "remove", "path": "/spec/a"},
        ],
        {"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}, "status": {"page": "x" * 9000}},
        {"spec": {"page": "x" * 9000}},
        [["no", "operation"]],
        "no patch",
        None,
    ],
)
def test_little_of_a_request_is_kept_and_it_answers_as_the_whole_one_does(body: object) -> None:
    logged = json.dumps(line(1, "patch", version=11, requestObject=body)).encode()
    (attempt,) = read_attempts([logged], boot_offset_s=0.0)
    kept, whole = attempt.request, Request("patch", body)
    assert len(attempt.body) < 200
    assert kept.leaves_labels == whole.leaves_labels
    assert kept.leaves_spec == whole.leaves_spec
    assert kept.tested_version == whole.tested_version
    assert kept.labels_after({"c": "d"}) == whole.labels_after({"c": "d"})


def test_policy_logs_writes_of_our_resources_with_their_answers_only() -> None:
    policy = audit_policy(["shop.example.org"])
    assert policy["omitStages"] == ["RequestReceived"]
    rules = policy["rules"]
    assert isinstance(rules, list)
    assert rules[-1] == {"level": "None"}
    assert {"level": "None", "resources": [{"group": "", "resources": ["events"]}]} in rules[:-2]
    assert {"group": "shop.example.org"} in rules[-2]["resources"]
    assert rules[-2]["level"] == "RequestResponse"


def test_after_a_restore_of_etcd_the_labels_before_are_those_of_the_snapshot() -> None:
    lines = [
        created(version=10, s="1"),
        line(2, "patch", version=12, labels={"s": "2"}),
        line(3, "delete", version=None),
        line(4, "patch", version=1011, labels={"s": "3"}),
    ]
    attempts = read_attempts([json.dumps(each).encode() for each in lines], boot_offset_s=0)
    found = writes_in_order(attempts, restores=[Restore(to=11, after=3)])
    assert steps(found) == [
        ("create", None, {"s": "1"}),
        ("patch", {"s": "1"}, {"s": "2"}),
        ("delete", {"s": "2"}, None),
        ("patch", {"s": "1"}, {"s": "3"}),
    ]
    assert [write.seq for write in found] == [1, 2, 3, 4]
