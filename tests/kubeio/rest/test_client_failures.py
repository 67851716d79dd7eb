"""Answers of failure, and no answers: as typed errors; credentials after a 401."""

from __future__ import annotations

import email.utils
import json
import time
from typing import Any

import pytest

from kubeio import errors
from kubeio.http.endpoint import Credential
from kubeio.models import HasMeta
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from tests.kubeio.http.wire_server import (
    CHUNKED_HEAD,
    Conversation,
    WireServer,
    answering,
    chunked,
    chunked_answer,
    failure_status,
    sending,
)

# -- failures --------------------------------------------------------------------------------------------

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")


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
