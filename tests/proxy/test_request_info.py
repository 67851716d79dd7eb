"""RequestInfo: what a request asks for, by the rules of kube-apiserver. Pure."""

from __future__ import annotations

import pytest

from kubeio.rest.request_info import BadTarget, RequestInfo, first_values, request_info


@pytest.mark.parametrize(
    ("method", "target", "verb", "where"),
    [
        ("GET", "/api/v1/pods", "list", ("", "pods", "", "", "")),
        ("HEAD", "/api/v1/pods", "list", ("", "pods", "", "", "")),
        ("GET", "/apis/apps/v1/namespaces/a/deployments/b", "get", ("apps", "deployments", "", "a", "b")),
        ("PUT", "/apis/apps/v1/namespaces/a/jobs/b/status", "update", ("apps", "jobs", "status", "a", "b")),
        ("PUT", "/api/v1/namespaces/x/status", "update", ("", "namespaces", "status", "x", "x")),
        ("PUT", "/api/v1/namespaces/x/finalize", "update", ("", "namespaces", "finalize", "x", "x")),
        ("GET", "/api/v1/namespaces/x/pods", "list", ("", "pods", "", "x", "")),
        ("GET", "/api/v1/namespaces/x", "get", ("", "namespaces", "", "x", "x")),
        ("DELETE", "/api/v1/namespaces/x/pods", "deletecollection", ("", "pods", "", "x", "")),
        ("POST", "/api/v1/namespaces/x/pods/y/eviction", "create", ("", "pods", "eviction", "x", "y")),
        ("GET", "/api/v1/%70ods", "list", ("", "pods", "", "", "")),
        ("GET", "/api/v1/pods%2Fx", "get", ("", "pods", "", "", "x")),
        ("GET", "/api/v1/pods%252Fx", "list", ("", "pods%2Fx", "", "", "")),
        ("GET", "//api/v1/pods//", "list", ("", "pods", "", "", "")),
    ],
)  # fmt: skip
def test_a_request_for_a_resource(method: str, target: str, verb: str, where: tuple[str, ...]) -> None:
    info = request_info(method, target)
    assert (info.verb, info.group, info.resource, info.subresource, info.namespace, info.name) == (
        verb,
        *where,
    )


@pytest.mark.parametrize("target", ["/", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/apis"])
def test_a_request_for_a_path_names_no_resource(target: str) -> None:
    assert request_info("GET", target) == RequestInfo("get", target)


@pytest.mark.parametrize(
    ("query", "verb"),
    [
        ("watch=", "watch"),
        ("watch", "watch"),
        ("watch=1", "watch"),
        ("watch=anything", "watch"),
        ("watch=0", "list"),
        ("watch=FALSE", "list"),
        ("watch=false&watch=true", "list"),
        ("watch=true&watch=false", "watch"),
        ("a=b;watch=true", "list"),
        ("watch=%zz&watch=true", "watch"),
        ("w%61tch=true", "watch"),
        ("Watch=true", "list"),
    ],
)
def test_the_first_value_of_watch_decides(query: str, verb: str) -> None:
    assert request_info("GET", f"/api/v1/pods?{query}").verb == verb


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ("metadata.name%3Dx", "x"),
        ("metadata.name%3D%3Dx", "x"),
        ("metadata.name!%3Dx", ""),
        ("spec.nodeName%3Dn,metadata.name%3Dx", "x"),
        ("metadata.name%3Da%5C,b", "a,b"),
        ("metadata.name%3D..", ""),
        ("metadata.name%3Da%2Fb", ""),
        ("metadata.name", ""),
    ],
)
def test_a_field_selector_may_name_an_object(selector: str, name: str) -> None:
    assert request_info("GET", f"/api/v1/pods?fieldSelector={selector}").name == name


def test_a_verb_in_the_path_is_an_old_watch() -> None:
    info = request_info("GET", "/apis/apps/v1/watch/namespaces/a/deployments/b")
    assert info.is_old_watch
    assert (info.verb, info.group_resource, info.namespace, info.name) == (
        "watch",
        "deployments.apps",
        "a",
        "b",
    )


@pytest.mark.parametrize("target", ["/api/v1/%zz", "/a\x01", "https://server/api/v1/pods", "*", ""])
def test_a_target_that_no_server_reads_is_refused(target: str) -> None:
    with pytest.raises(BadTarget, match="is no path"):
        request_info("GET", target)


def test_a_piece_with_a_semicolon_or_a_bad_escape_is_no_parameter() -> None:
    assert first_values("a=1;b=2&c=%zz&d=x+y&&e&d=z") == {"d": "x y", "e": ""}
