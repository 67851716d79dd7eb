"""What the API server is told to ask, and of whom. Pure."""

from __future__ import annotations

import base64
from typing import Any, cast

from sharder.admission.settings import ServiceTarget, Target, UrlTarget
from sharder.admission.webhook_configuration import configuration
from sharder.ringspec.spec import LabelSelector, Requirement
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES

SERVICE = ServiceTarget("ringleader-system", "ringleader-webhook")


def written(target: Target = SERVICE, **spec: Any) -> dict[str, Any]:
    made = configuration(
        make_spec(**spec), (WEBSITES, CONFIGMAPS), ring_uid="uid-7", target=target, bundle=b"PEM"
    )
    return cast(dict[str, Any], made)


def hook(**options: Any) -> dict[str, Any]:
    (found,) = written(**options)["webhooks"]
    return cast(dict[str, Any], found)


def test_creates_of_every_resource_of_the_ring_in_any_version_are_asked_about() -> None:
    assert [(r["apiGroups"], r["apiVersions"], r["resources"], r["operations"]) for r in hook()["rules"]] == [
        (["example.com"], ["*"], ["websites"], ["CREATE"]),
        ([""], ["*"], ["configmaps"], ["CREATE"]),
    ]


def test_objects_that_have_an_owner_are_not_asked_about() -> None:
    assert hook()["objectSelector"] == {"matchExpressions": [{"key": KEYS.shard, "operator": "DoesNotExist"}]}


def test_a_webhook_that_does_not_answer_in_a_second_is_passed_by() -> None:
    found = hook()
    assert (found["failurePolicy"], found["timeoutSeconds"]) == ("Ignore", 1)
    assert (found["sideEffects"], found["reinvocationPolicy"]) == ("None", "Never")


def test_namespaces_are_those_of_the_ring() -> None:
    assert hook()["namespaceSelector"] == {}
    selector = LabelSelector(
        {"tier": "web"}, (Requirement("env", "In", ("a", "b")), Requirement("off", "DoesNotExist"))
    )
    assert hook(namespace_selector=selector)["namespaceSelector"] == {
        "matchLabels": {"tier": "web"},
        "matchExpressions": [
            {"key": "env", "operator": "In", "values": ["a", "b"]},
            {"key": "off", "operator": "DoesNotExist"},
        ],
    }


def test_it_is_reached_by_a_service_or_by_an_address() -> None:
    by_service = hook()["clientConfig"]
    assert by_service["service"] == {
        "namespace": "ringleader-system",
        "name": "ringleader-webhook",
        "port": 443,
        "path": "/assign/r",
    }
    assert base64.b64decode(by_service["caBundle"]) == b"PEM"
    by_url = hook(target=UrlTarget("https://10.0.0.1:9443", "10.0.0.1"))["clientConfig"]
    assert by_url["url"] == "https://10.0.0.1:9443/assign/r"


def test_it_goes_with_its_ring() -> None:
    assert written()["metadata"]["ownerReferences"] == [
        {"apiVersion": "ringleader.dev/v1alpha1", "kind": "ControllerRing", "name": "r", "uid": "uid-7"}
    ]
