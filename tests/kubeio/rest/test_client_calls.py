"""Verbs, paths, headers, typed failures, and what happens at 401."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import Any
from urllib.parse import parse_qsl

import pytest
from prometheus_client import CollectorRegistry

from kubeio import errors
from kubeio.http.endpoint import Credential
from kubeio.labels import json_pointer
from kubeio.models import HasMeta, Lease, Meta
from kubeio.patch import ApplyPatch, JsonPatch, MergePatch
from kubeio.resource import LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.rest.metrics import ClientMetrics
from tests.kubeio.http.wire_server import (
    CHUNKED_HEAD,
    Conversation,
    Request,
    WireServer,
    answering,
    chunked,
    chunked_answer,
    failure_status,
    sending,
    zipped,
)

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")


def query_of(request: Request) -> dict[str, str]:
    return dict(parse_qsl(request.target.partition("?")[2], keep_blank_values=True))


# -- verbs -----------------------------------------------------------------------------------------------


async def test_get_reads_one_object(server: WireServer) -> None:
    server.script = answering({"metadata": {"name": "a", "uid": "u"}})
    async with server.client() as client:
        got = await client.get(WEBSITES, "a", namespace="ns", type=HasMeta)
        await client.get(NAMESPACES, "ns", type=bytes, metadata_only=True)
    assert got.metadata.uid == "u"
    first, second = server.requests
    assert (first.method, first.target) == ("GET", "/apis/example.com/v1/namespaces/ns/websites/a")
    assert second.target == "/api/v1/namespaces/ns"
    assert second.headers["accept"] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


async def test_headers_say_who_asks_and_for_what(server: WireServer) -> None:
    async with Client(server.cluster(), user_agent="ringleader/1 (test)") as client:
        await client.request("GET", "/a", query={"b": "c d&e"})
    request = server.requests[0]
    assert request.target == "/a?b=c+d%26e"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["user-agent"] == "ringleader/1 (test)"
    assert request.headers["accept"] == "application/json"
    assert "expect" not in request.headers


async def test_create_posts_what_msgspec_encodes_or_bytes_as_they_are(server: WireServer) -> None:
    server.script = answering({"metadata": {"name": "a"}}, status=201)
    lease = Lease(metadata=Meta(name="l"))
    async with server.client() as client:
        await client.create(LEASES, lease, namespace="ns", type=HasMeta, field_manager="me")
        await client.create(CONFIGMAPS, b'{"raw":1}', namespace="ns", type=bytes)
    first, second = server.requests
    assert (first.method, first.path) == ("POST", "/apis/coordination.k8s.io/v1/namespaces/ns/leases")
    assert query_of(first) == {"fieldManager": "me"}
    assert json.loads(first.body)["metadata"] == {"name": "l"}
    assert first.headers["content-type"] == "application/json"
    assert (second.target, second.body) == ("/api/v1/namespaces/ns/configmaps", b'{"raw":1}')


async def test_replace_puts_the_object_or_its_subresource(server: WireServer) -> None:
    server.script = answering({"metadata": {"name": "a"}})
    async with server.client() as client:
        await client.replace(WEBSITES, "a", {"x": 1}, namespace="ns", subresource="status", type=HasMeta)
    request = server.requests[0]
    assert (request.method, request.target) == (
        "PUT",
        "/apis/example.com/v1/namespaces/ns/websites/a/status",
    )


async def test_json_patch_keeps_the_order_of_its_operations(server: WireServer) -> None:
    server.script = answering({"metadata": {"name": "a"}})
    pointer = json_pointer("metadata", "labels", "shard.ringleader.dev/r")
    patch = JsonPatch().test(pointer, "a").replace(pointer, "b").add("/spec/x", None).remove("/spec/y")
    async with server.client() as client:
        await client.patch(WEBSITES, "a", patch, namespace="ns", type=HasMeta, metadata_only=True)
    request = server.requests[0]
    assert (request.method, request.target) == ("PATCH", "/apis/example.com/v1/namespaces/ns/websites/a")
    assert request.headers["content-type"] == "application/json-patch+json"
    assert request.headers["accept"].endswith("as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    assert json.loads(request.body) == [
        {"op": "test", "path": "/metadata/labels/shard.ringleader.dev~1r", "value": "a"},
        {"op": "replace", "path": "/metadata/labels/shard.ringleader.dev~1r", "value": "b"},
        {"op": "add", "path": "/spec/x", "value": None},
        {"op": "remove", "path": "/spec/y"},
    ]


def test_json_patch_is_a_value_that_chaining_does_not_change() -> None:
    first = JsonPatch().test("/a", 1)
    second = first.remove("/b")
    assert first.encode() == b'[{"op":"test","path":"/a","value":1}]'
    assert second != first
    assert second == JsonPatch().test("/a", 1).remove("/b")


async def test_merge_patch_and_apply_carry_their_types(server: WireServer) -> None:
    server.script = answering({"metadata": {"name": "a"}})
    async with server.client() as client:
        await client.patch(WEBSITES, "a", MergePatch({"x": None}), namespace="ns", type=bytes)
        await client.patch(
            WEBSITES, "a", ApplyPatch({"x": 1}, force=True), namespace="ns", type=bytes, field_manager="me"
        )
        with pytest.raises(errors.InputError, match="field_manager"):
            await client.patch(WEBSITES, "a", ApplyPatch({"x": 1}), namespace="ns", type=bytes)
    merge, apply = server.requests
    assert (merge.headers["content-type"], merge.body) == ("application/merge-patch+json", b'{"x":null}')
    assert apply.headers["content-type"] == "application/apply-patch+yaml"
    assert query_of(apply) == {"fieldManager": "me", "force": "true"}


async def test_delete_sends_its_preconditions(server: WireServer) -> None:
    server.script = answering({"kind": "Status", "status": "Success"})
    async with server.client() as client:
        await client.delete(
            WEBSITES, "a", namespace="ns", uid="u", resource_version="7", propagation="Background"
        )
        await client.delete(WEBSITES, "a", namespace="ns")
    first, second = (json.loads(request.body) for request in server.requests)
    assert first["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert first["propagationPolicy"] == "Background"
    assert "preconditions" not in second
    assert server.requests[0].method == "DELETE"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "%2e"])
async def test_name_that_would_be_another_path_is_refused_before_anything_is_sent(
    server: WireServer, name: str
) -> None:
    async with server.client() as client:
        with pytest.raises(errors.InputError):
            await client.delete(WEBSITES, name, namespace="ns")
        with pytest.raises(errors.InputError):
            await client.delete(WEBSITES, "a", namespace=name)
    assert server.requests == []


async def test_strange_names_are_quoted(server: WireServer) -> None:
    server.script = answering({"metadata": {}})
    async with server.client() as client:
        await client.get(ApiResource("", "v1", "x", "X", namespaced=False), "system:a b?c#é", type=bytes)
        await client.request("GET", "/a b\r\nX-Evil: 1")
    assert server.requests[0].target == "/api/v1/x/system:a%20b%3Fc%23%C3%A9"
    assert server.requests[1].target == "/a%20b%0D%0AX-Evil:%201"


async def test_base_path_of_the_server_stands_before_every_path(server: WireServer) -> None:
    async with server.client(cluster=server.cluster(url=f"{server.url}/k8s/clusters/c-1/")) as client:
        await client.request("GET", "/api")
    assert server.requests[0].target == "/k8s/clusters/c-1/api"


# -- lists -----------------------------------------------------------------------------------------------


def listed(*names: str, continue_: str = "", version: str = "9", remaining: int | None = None) -> bytes:
    metadata: dict[str, object] = {"resourceVersion": version}
    if continue_:
        metadata["continue"] = continue_
    if remaining is not None:
        metadata["remainingItemCount"] = remaining
    items = [{"metadata": {"name": name, "namespace": "ns"}, "spec": {"n": name}} for name in names]
    return json.dumps({"kind": "List", "metadata": metadata, "items": items}).encode()


async def test_page_gives_metadata_decoded_and_objects_as_they_came(server: WireServer) -> None:
    body = listed("a", "b", continue_="more", remaining=5)
    server.script = answering(zipped(body), headers="Content-Encoding: gzip\r\n")
    async with server.client() as client:
        page = await client.list_page(WEBSITES, label_selector="a in (b)", limit=2)
    assert [obj.meta.name for obj in page.objects] == ["a", "b"]
    assert json.loads(page.objects[1].raw) == {
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"n": "b"},
    }
    assert (page.resource_version, page.continue_, page.remaining) == ("9", "more", 5)
    assert server.requests[0].path == "/apis/example.com/v1/websites"
    assert query_of(server.requests[0]) == {"labelSelector": "a in (b)", "limit": "2"}


async def test_empty_list_is_an_empty_page(server: WireServer) -> None:
    server.script = answering({"metadata": {"resourceVersion": "3"}, "items": None})
    async with server.client() as client:
        page = await client.list_page(WEBSITES, namespace="ns", limit=0, metadata_only=True)
    assert (page.objects, page.resource_version, page.continue_, page.remaining) == ([], "3", "", None)
    assert server.requests[0].target == "/apis/example.com/v1/namespaces/ns/websites"
    assert server.requests[0].headers["accept"].split(";")[1] == "as=PartialObjectMetadataList"


async def test_pages_follow_continue_and_give_the_version_only_once(server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        for body in (listed("a", continue_="c1"), listed("b", continue_="c2"), listed("c")):
            await conversation.request()
            await conversation.answer(body)

    server.script = script
    async with server.client() as client:
        names = [
            obj.meta.name
            async for page in client.pages(
                WEBSITES, resource_version="5", resource_version_match="NotOlderThan", limit=1
            )
            for obj in page.objects
        ]
    assert names == ["a", "b", "c"]
    assert [query_of(request) for request in server.requests] == [
        {"limit": "1", "resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"},
        {"limit": "1", "continue": "c1"},
        {"limit": "1", "continue": "c2"},
    ]


async def test_expired_continue_token_in_mid_list_is_raised(server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.answer(listed("a", continue_="old"))
        await conversation.request()
        await conversation.answer(failure_status(410, "Expired"), status=410)

    server.script = script
    async with server.client() as client:
        pages = client.pages(WEBSITES)
        assert len((await anext(pages)).objects) == 1
        with pytest.raises(errors.Expired):
            await anext(pages)


# -- failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.BadRequest),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Expired),
        (413, "RequestEntityTooLarge", errors.BadRequest),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerFailure),
        (503, "ServiceUnavailable", errors.ServerFailure),
        (504, "Timeout", errors.ServerFailure),
    ],
)
async def test_failure_becomes_its_class_and_says_what_was_attempted(
    server: WireServer, status: int, reason: str, kind: type[errors.ApiError]
) -> None:
    server.script = answering(failure_status(status, reason, "a long story"), status=status)
    async with server.client() as client:
        with pytest.raises(kind) as caught:
            await client.patch(WEBSITES, "a", MergePatch({}), namespace="ns", type=bytes)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (status, reason, "a long story")
    path = "/apis/example.com/v1/namespaces/ns/websites/a"
    assert str(error) == f"PATCH {path} on {server.url}: {status} {reason}: a long story"


async def test_failure_keeps_its_connection(server: WireServer) -> None:
    server.script = answering(failure_status(409, "Conflict"), status=409)
    async with server.client() as client:
        for _ in range(3):
            with pytest.raises(errors.Conflict):
                await client.request("PUT", "/a", body=b"{}")
    assert server.connections == 1


async def test_failure_that_is_no_status_shows_its_beginning(server: WireServer) -> None:
    server.script = answering(b"<html>\n <b>bad   gateway</b>" + b"x" * 5000, status=502)
    async with server.client() as client:
        with pytest.raises(errors.ServerFailure, match="<html> <b>bad gateway</b>") as caught:
            await client.request("GET", "/a")
    assert len(str(caught.value)) < 400


async def test_failure_in_chunks_is_read_whole(server: WireServer) -> None:
    body = json.dumps(failure_status(404, "NotFound", "no such thing")).encode()
    server.script = sending(chunked_answer(body[:10], body[10:], status="404 No"))
    async with server.client() as client:
        with pytest.raises(errors.NotFound, match="no such thing"):
            await client.request("GET", "/a")


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [
        ("7", {}, 7.0),
        ("", {"retryAfterSeconds": 3}, 3.0),
        ("7", {"retryAfterSeconds": 3}, 7.0),
        ("soon", {}, None),
        ("", {}, None),
        ("a date", {}, 30.0),
    ],
)
async def test_retry_after_is_kept_as_seconds(
    server: WireServer, header: str, details: dict[str, Any], expected: float | None
) -> None:
    value = email.utils.formatdate(time.time() + 30, usegmt=True) if header == "a date" else header
    headers = f"Retry-After: {value}\r\n" if value else ""
    server.script = answering(failure_status(429, "TooManyRequests", **details), status=429, headers=headers)
    async with server.client() as client:
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.request("GET", "/a")
    assert caught.value.retry_after_s == (expected and pytest.approx(expected, abs=3 * (header == "a date")))


@pytest.mark.parametrize(
    "body", [b"<html>login</html>", b'{"metadata": 5}', b"", b'{"metadata": {"name": "a"', b"\xff"]
)
async def test_success_that_is_no_object_is_a_failure_of_the_server(server: WireServer, body: bytes) -> None:
    server.script = answering(body)
    async with server.client() as client:
        with pytest.raises(errors.ServerFailure, match=r"GET /apis/.* it (begins with|is JSON of)"):
            await client.get(WEBSITES, "a", namespace="ns", type=HasMeta)
        with pytest.raises(errors.ServerFailure, match=r"it (begins with|is JSON of)"):
            await client.list_page(WEBSITES)


# -- 401 and identity ------------------------------------------------------------------------------------


class Rotating:
    """Credentials that are renewed each time one was refused."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)
        self.refused: list[Credential] = []

    def current(self) -> Credential | None:
        return Credential(f"Bearer {self._tokens[0]}")

    async def renewed(self) -> Credential:
        return Credential(f"Bearer {self._tokens[0]}")

    def reject(self, credential: Credential) -> None:
        self.refused.append(credential)
        if len(self._tokens) > 1:
            self._tokens.pop(0)


async def only_good(conversation: Conversation) -> None:
    """Answer 401 unless the token is `good`; a watch gets one line."""
    while True:
        request = await conversation.request()
        if request.headers["authorization"] != "Bearer good":
            await conversation.answer(failure_status(401, "Unauthorized"), status=401)
        elif "watch" in request.target:
            await conversation.send(CHUNKED_HEAD + chunked(b'{"type":"X"}\n'))
        else:
            await conversation.answer({"ok": True})


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_401_is_repeated_once_with_renewed_credentials(server: WireServer, method: str) -> None:
    server.script = only_good
    credentials = Rotating("stale", "good")
    async with server.client(cluster=server.cluster(credentials=credentials)) as client:
        body = None if method == "GET" else b'{"a":1}'
        assert (await client.request(method, "/a", body=body)).body == b'{"ok": true}'
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer stale",
        "Bearer good",
    ]
    assert server.requests[1].body == (body or b"")
    assert credentials.refused == [Credential("Bearer stale")]


@pytest.mark.parametrize(
    ("credentials", "requests"), [(Rotating("stale", "bad", "good"), 2), (None, 1)], ids=["renewed", "fixed"]
)
async def test_401_is_final_when_there_are_no_better_credentials(
    server: WireServer, credentials: Rotating | None, requests: int
) -> None:
    """As when the renewed ones are refused too."""
    server.script = only_good
    async with server.client(cluster=server.cluster(credentials=credentials)) as client:
        with pytest.raises(errors.Unauthorized):
            await client.request("GET", "/a")
    assert len(server.requests) == requests


async def test_401_on_a_stream_is_repeated_too(server: WireServer) -> None:
    server.script = only_good
    cluster = server.cluster(credentials=Rotating("stale", "good"))
    async with server.client(cluster=cluster) as client, client.stream("/a", query={"watch": "1"}) as lines:
        assert [line async for line in lines] == [b'{"type":"X"}']


async def test_impersonation_headers_are_sent_with_every_request(server: WireServer) -> None:
    headers = (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes%2Fx", "view"),
    )
    async with server.client(cluster=server.cluster(impersonation=headers)) as client:
        await client.request("GET", "/a")
    sent = server.requests[0].repeated
    assert [pair for pair in sent if pair[0].startswith("impersonate-")] == [
        (name.lower(), value) for name, value in headers
    ]


# -- metrics ---------------------------------------------------------------------------------------------


async def test_requests_are_counted_by_code_method_and_host(server: WireServer) -> None:
    async def script(conversation: Conversation) -> None:
        while True:
            request = await conversation.request()
            if request.path == "/gone":
                conversation.close()
                return
            status = 404 if request.path == "/none" else 200
            await conversation.answer(failure_status(404, "NotFound"), status=status)

    server.script = script
    registry = CollectorRegistry()
    async with Client(server.cluster(), metrics=ClientMetrics(registry)) as client:
        await client.request("GET", "/a")
        await client.request("GET", "/a")
        with pytest.raises(errors.NotFound):
            await client.request("PATCH", "/none", body=b"")
        with pytest.raises(errors.Unreachable):
            await client.request("PATCH", "/gone", body=b"")
        async with client.stream("/watch") as lines:
            assert [line async for line in lines]

    def count(code: str, method: str) -> float | None:
        labels = {"code": code, "method": method, "host": f"127.0.0.1:{server.port}"}
        return registry.get_sample_value("rest_client_requests_total", labels)

    assert (count("200", "GET"), count("404", "PATCH"), count("<error>", "PATCH")) == (3, 1, 1)
    durations = {"verb": "GET", "host": f"127.0.0.1:{server.port}"}
    assert registry.get_sample_value("rest_client_request_duration_seconds_count", durations) == 3


async def test_many_calls_at_once_get_their_own_answers(server: WireServer) -> None:
    async with server.client(max_connections=8) as client:
        answers = await asyncio.gather(*(client.request("GET", f"/{number}") for number in range(500)))
    assert [json.loads(answer.body)["path"] for answer in answers] == [f"/{number}" for number in range(500)]
