"""Verbs, paths, headers, typed failures, and what happens at 401."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qsl

import pytest
from prometheus_client import CollectorRegistry

from kubeio import errors
from kubeio.labels import json_pointer
from kubeio.models import HasMeta, Lease, Meta
from kubeio.patch import ApplyPatch, JsonPatch, MergePatch
from kubeio.resource import LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.rest.metrics import ClientMetrics
from tests.kubeio.http.wire_server import (
    Conversation,
    Request,
    WireServer,
    answering,
    failure_status,
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
