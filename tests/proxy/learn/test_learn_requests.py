"""What a request says of its controller."""

from __future__ import annotations

import pytest

from proxy.bodies import PROTOBUF
from proxy.learn.seen import LockName, LockSeen, Seen
from proxy.protobuf import ObjectHead
from tests.proxy.learn.requests import DEPLOYMENTS, LEASES, PODS, ask, call
from tests.proxy.protobuf_writer import pod_message


def test_lists_and_watches_are_noted_with_namespace_and_selector() -> None:
    seen = Seen()
    ask(seen, "GET", f"{PODS}?labelSelector=app%3Dshop")
    ask(seen, "GET", "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3D")
    ask(seen, "GET", "/apis/apps/v1/watch/deployments")
    ask(seen, "GET", "/api/v1/nodes", status=403)
    pods = seen.kind("pods")
    assert pods.namespaces == {"web", ""}
    assert pods.selectors == {"app=shop", "spec.nodeName="}
    assert not pods.reads_all
    assert seen.kind("deployments.apps").reads_all
    assert seen.kind("deployments.apps").has_old_watch
    assert not seen.kind("nodes").is_read


def test_writes_that_succeeded_are_counted_by_verb_and_subresource() -> None:
    seen = Seen()
    ask(seen, "PUT", f"{DEPLOYMENTS}/shop/status", {})
    ask(seen, "PATCH", f"{DEPLOYMENTS}/shop", {}, content_type="application/merge-patch+json")
    ask(seen, "DELETE", f"{DEPLOYMENTS}/shop")
    ask(seen, "PUT", f"{DEPLOYMENTS}/shop", {}, status=409)
    kind = seen.kind("deployments.apps")
    assert kind.writes == {"update status": 1, "patch": 1, "delete": 1}
    assert kind.names == {"web/shop": 2}


@pytest.mark.parametrize(
    ("target", "body", "method"),
    [
        (f"{LEASES}/me", {"metadata": {"name": "me"}}, "PUT"),
        (LEASES, {"metadata": {"name": "me"}}, "POST"),
        (
            "/api/v1/namespaces/web/endpoints/me",
            {"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}},
            "PUT",
        ),
    ],
)
def test_a_lock_is_written_again_and_again(target: str, body: object, method: str) -> None:
    seen = Seen()
    ask(seen, method, target, body)
    assert seen.lock_names() == []
    ask(seen, method, target, body)
    assert seen.lock_names() == ["me"]
    assert not any(kind.writes for kind in seen.kinds.values())


def test_writes_before_the_first_of_a_lock_are_not_those_of_a_leader() -> None:
    seen = Seen()
    for _ in range(2):
        ask(seen, "POST", PODS, {"metadata": {"name": "x"}}, status=201)
        ask(seen, "PUT", f"{LEASES}/me", {"metadata": {"name": "me"}})
    assert (seen.kind("pods").before_lock, seen.kind("pods").writes.total()) == (1, 2)


def test_a_config_map_that_says_of_no_leader_is_no_lock() -> None:
    seen = Seen()
    for _ in range(3):
        ask(seen, "PUT", "/api/v1/namespaces/web/configmaps/settings", {"metadata": {"name": "settings"}})
    assert seen.lock_names() == []
    assert seen.kind("configmaps").names == {"web/settings": 3}


def test_a_lease_that_is_read_and_never_written_is_awaited() -> None:
    seen = Seen()
    for _ in range(3):
        ask(seen, "GET", f"{LEASES}/me")
    ask(seen, "PUT", f"{LEASES}/me", {}, status=409)
    lock = LockName("leases.coordination.k8s.io", "web", "me")
    assert seen.locks == {lock: LockSeen(reads=3)}
    assert seen.awaited_locks() == [lock]


def test_a_create_says_whose_child_it_makes_in_json_and_in_protobuf() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": True}
    json = call("POST", PODS, {"metadata": {"generateName": "x-", "ownerReferences": [owner]}})
    protobuf = call(
        "POST", PODS, pod_message(ObjectHead(generate_name="x-"), [("u", True)]), content_type=PROTOBUF
    )
    assert json is not None
    assert protobuf is not None
    for each in (json, protobuf):
        assert each.head is not None
        assert each.head.controller is not None
        found = each.head.controller
        assert (found.api_version, found.kind, found.name, found.uid) == ("apps/v1", "ReplicaSet", "o", "u")


def test_events_and_questions_are_no_objects() -> None:
    seen = Seen()
    ask(seen, "POST", "/apis/events.k8s.io/v1/namespaces/web/events", {"metadata": {"name": "e"}})
    assert seen.kinds == {}
    assert call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {}) is None
    assert call("GET", "/version") is None


def test_an_encoding_that_takes_no_label_is_noted() -> None:
    seen = Seen()
    ask(seen, "PATCH", f"{PODS}/x", b"metadata: {}", content_type="application/apply-patch+yaml")
    ask(seen, "POST", PODS, b"\xd9", content_type="application/cbor")
    assert seen.kind("pods").formats == {"application/apply-patch+yaml", "application/cbor"}
