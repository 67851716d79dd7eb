"""What the relay does to which request, seen by the server behind it: identity, selection, labels, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from kubeio.access.credentials import FixedCredentials
from kubeio.errors import Unreachable
from kubeio.http.endpoint import Credential
from proxy.director import Selection
from proxy.refusals import Refusal
from tests.kubeio.http.wire_server import WireServer, answering
from tests.proxy.relays import LABELS, TERMS, RawClient, Relayed, ScriptedDirector, raw_client, relayed

PODS = "/api/v1/namespaces/a/pods"
POD = b'{"metadata":{"name":"x"}}'
CONFIG_MAPS = "/api/v1/namespaces/a/configmaps"
SELECTED = quote(TERMS, safe="")


@asynccontextmanager
async def asking(
    server: WireServer, folder: Path, director: ScriptedDirector | None = None, **more: object
) -> AsyncIterator[tuple[RawClient, Relayed]]:
    """A client of a relay that selects pods."""
    director = director or ScriptedDirector({"pods": Selection(TERMS, not_older_than="42")})
    cluster = server.cluster(**more)  # type: ignore[arg-type] # what the test gives
    async with (
        relayed(cluster, folder, director, locks=["lock"]) as through,
        raw_client(through.port) as client,
    ):
        yield client, through


def status_of(body: bytes) -> tuple[int, str]:
    status = msgspec.json.decode(body)
    assert status["kind"] == "Status"
    return status["code"], status["reason"]


@pytest.mark.parametrize("token", ["", "other"])
async def test_a_client_without_the_token_reaches_nothing(
    server: WireServer, tmp_path: Path, token: str
) -> None:
    async with asking(server, tmp_path) as (client, _):
        client.send("GET", PODS, token=token)
        status, _, body = await client.answer()
        assert (status, status_of(body)) == (401, (401, "Unauthorized"))
    assert server.requests == []


async def test_of_a_client_without_the_token_no_body_is_read(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as (client, _):
        client.send("POST", PODS, b"", "Content-Length: 1000000", "Expect: 100-continue", token="other")
        assert (await client.answer())[0] == 401
        assert await client.is_closed()


async def test_a_request_goes_on_as_ours(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path, url=f"{server.url}/prefix") as (client, _):
        assert (
            await client.ask("GET", f"{CONFIG_MAPS}?limit=%31", b"", "Accept: a/b", "Accept-Encoding: gzip")
        )[0] == 200
    (request,) = server.requests
    assert request.target == f"/prefix{CONFIG_MAPS}?limit=%31"
    assert request.repeated == (
        ("host", f"127.0.0.1:{server.port}"),
        ("authorization", "Bearer secret"),
        ("accept", "a/b"),
        ("accept-encoding", "gzip"),
    )


async def test_a_collection_is_limited_to_the_shard_s_objects(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as (client, _):
        for target in (PODS, f"{PODS}?watch=true&labelSelector=a", f"{PODS}?resourceVersion=0", f"{PODS}/x"):
            await client.ask("GET", target, b"", "Accept-Encoding: gzip")
    assert [request.target for request in server.requests] == [
        f"{PODS}?labelSelector={SELECTED}",
        f"{PODS}?watch=true&labelSelector=a%2C{SELECTED}",
        f"{PODS}?labelSelector={SELECTED}&resourceVersion=42&resourceVersionMatch=NotOlderThan",
        f"{PODS}/x",
    ]
    assert ["accept-encoding" in request.headers for request in server.requests] == [
        False,
        False,
        False,
        True,
    ]


async def test_deletecollection_is_limited_and_asked_for(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as (client, through):
        await client.ask("DELETE", PODS)
    assert server.requests[0].target == f"{PODS}?labelSelector={SELECTED}"
    assert [write.info.verb for write in through.director.asked] == ["deletecollection"]


async def test_a_watch_in_the_path_of_a_selected_kind_is_gone(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as (client, _):
        status, _, body = await client.ask("GET", "/api/v1/watch/namespaces/a/pods/x")
        assert (status, status_of(body)) == (410, (410, "Expired"))
        assert (await client.ask("GET", "/api/v1/watch/namespaces/a/configmaps"))[0] == 200
    assert [request.path for request in server.requests] == ["/api/v1/watch/namespaces/a/configmaps"]


@pytest.mark.parametrize(
    ("method", "target"), [("POST", PODS), ("PUT", f"{PODS}/x"), ("PUT", f"{PODS}/x/status")]
)
async def test_an_object_gets_the_labels(
    server: WireServer, tmp_path: Path, method: str, target: str
) -> None:
    body = b'{"kind":"Pod","metadata":{"name":"x","ownerReferences":[{"uid":"u","controller":true}]}}'
    async with asking(server, tmp_path) as (client, through):
        assert (await client.ask(method, target, body, "Content-Type: application/json"))[0] == 200
    sent = msgspec.json.decode(server.requests[0].body)
    assert sent["metadata"]["labels"] == LABELS
    (write,) = through.director.asked
    assert write.body is not None
    assert (write.body.kind, write.body.name, write.body.controller_uid) == ("Pod", "x", "u")
    assert through.director.begun == [write]
    assert through.director.ended == [(write, 200)]


async def test_apply_gets_the_labels(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as (client, _):
        await client.ask("PATCH", f"{PODS}/x", POD, "Content-Type: application/apply-patch+yaml")
    assert msgspec.json.decode(server.requests[0].body)["metadata"]["labels"] == LABELS


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge-patch", b'{"a": 1}'),
        ("strategic-merge-patch", b'{"metadata": {"annotations": {}}}'),
        ("json-patch", b'[{"op":"remove","path":"/a"}]'),
    ],
)
async def test_a_patch_of_anything_but_labels_passes_as_it_is(
    server: WireServer, tmp_path: Path, kind: str, patch: bytes
) -> None:
    async with asking(server, tmp_path) as (client, through):
        await client.ask("PATCH", f"{PODS}/x", patch, f"Content-Type: application/{kind}+json")
    assert server.requests[0].body == patch
    assert [write.body for write in through.director.ended[0][:1]] == [None]


async def test_a_patch_that_would_remove_the_labels_is_invalid(server: WireServer, tmp_path: Path) -> None:
    patch, kind = b'{"metadata":{"labels":null}}', "Content-Type: application/merge-patch+json"
    async with asking(server, tmp_path) as (client, through):
        status, _, body = await client.ask("PATCH", f"{PODS}/x", patch, kind)
    assert (status, status_of(body)) == (422, (422, "Invalid"))
    assert (server.requests, through.director.begun) == ([], [])


async def test_a_write_of_another_kind_passes_unread_and_is_asked_for(
    server: WireServer, tmp_path: Path
) -> None:
    async with asking(server, tmp_path) as (client, through):
        await client.ask("POST", CONFIG_MAPS, b"\x00anything", "Content-Type: application/cbor")
    assert server.requests[0].body == b"\x00anything"
    assert [write.info.resource for write in through.director.begun] == ["configmaps"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (POD, ["Content-Type: application/cbor"], 415),
        (b"metadata:\n  name: x\n", ["Content-Type: application/yaml"], 415),
        (POD, ["Content-Type: application/json", "Content-Encoding: gzip"], 415),
        (b"[]", ["Content-Type: application/json"], 400),
    ],
)
async def test_a_body_that_takes_no_label_is_refused_before_the_director_is_asked(
    server: WireServer, tmp_path: Path, body: bytes, headers: list[str], status: int
) -> None:
    async with asking(server, tmp_path) as (client, through):
        assert (await client.ask("POST", PODS, body, *headers))[0] == status
    assert (server.requests, through.director.asked) == ([], [])


async def test_a_refused_write_is_answered_and_not_sent(server: WireServer, tmp_path: Path) -> None:
    director = ScriptedDirector(verdict=lambda _: Refusal(429, "paused", retry_after_s=1))
    async with asking(server, tmp_path, director) as (client, _):
        status, headers, body = await client.ask("DELETE", f"{PODS}/x")
        assert (status, headers["retry-after"], status_of(body)) == (429, "1", (429, "TooManyRequests"))
        assert msgspec.json.decode(body)["message"] == "paused"
        assert (await client.ask("GET", f"{PODS}/x"))[0] == 200
    assert [request.method for request in server.requests] == ["GET"]
    assert (director.begun, director.ended) == ([], [])


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward", "proxy/path"])
async def test_connections_to_something_else_are_not_asked_for(
    server: WireServer, tmp_path: Path, subresource: str
) -> None:
    async with asking(server, tmp_path) as (client, through):
        assert (await client.ask("POST", f"{PODS}/x/{subresource}", b"bytes"))[0] == 200
    assert server.requests[0].body == b"bytes"
    assert through.director.asked == []


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/api/v1/%zz", 400),
        ("GET", "https://other/api/v1/pods", 400),
        ("OPTIONS", PODS, 405),
        ("POST", "/api/v1/watch/pods", 405),
        ("POST", "/healthz", 405),
    ],
)
async def test_what_is_no_request_of_a_controller_is_not_passed_on(
    server: WireServer, tmp_path: Path, method: str, target: str, status: int
) -> None:
    async with asking(server, tmp_path) as (client, _):
        assert (await client.ask(method, target))[0] == status
    assert server.requests == []


async def test_locks_are_answered_here_and_asked_of_nobody(server: WireServer, tmp_path: Path) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases"
    async with asking(server, tmp_path) as (client, through):
        assert (await client.ask("GET", f"{leases}/lock"))[0] == 404
        assert (await client.ask("POST", leases, b'{"metadata":{"name":"lock"}}'))[0] == 201
        client.send("HEAD", f"{leases}/lock")
        assert (await client.head())[0] == 200
        assert (await client.ask("PUT", f"{leases}/lock", b'{"metadata":{"name":"lock"}, "spec":1}'))[
            0
        ] == 200
        assert (await client.ask("GET", f"{leases}/other"))[0] == 200
    assert [request.path for request in server.requests] == [f"{leases}/other"]
    assert through.director.asked == []


class RotatingCredentials(FixedCredentials):
    """A token that is replaced when the server refuses it."""

    def __init__(self) -> None:
        self.rejected: list[Credential] = []
        super().__init__(Credential("Bearer first"))

    def reject(self, credential: Credential) -> None:
        self.rejected.append(credential)
        self._credential = Credential("Bearer second")


async def test_a_credential_that_the_server_refuses_is_replaced(server: WireServer, tmp_path: Path) -> None:
    server.script = answering({}, status=401)
    credentials = RotatingCredentials()
    async with asking(server, tmp_path, credentials=credentials) as (client, _):
        assert (await client.ask("GET", PODS))[0] == 401
        await client.ask("GET", PODS)
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer first",
        "Bearer second",
    ]
    assert credentials.rejected[0] == Credential("Bearer first")


class MissingCredentials(FixedCredentials):
    """A source that has nothing."""

    def current(self) -> Credential | None:
        return None

    async def renewed(self) -> Credential:
        raise Unreachable("plugin", "it is not there", maybe_done=False)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_without_credentials_or_server_the_answer_is_unavailable(
    server: WireServer, tmp_path: Path, method: str
) -> None:
    async with asking(server, tmp_path, credentials=MissingCredentials(Credential())) as (client, _):
        status, _, body = await client.ask(method, f"{PODS}/x")
        assert (status, status_of(body)) == (503, (503, "ServiceUnavailable"))
    async with asking(server, tmp_path, url="http://127.0.0.1:1") as (client, through):
        assert (await client.ask(method, f"{PODS}/x"))[0] == 503
        assert through.director.begun == []


class FaultyDirector(ScriptedDirector):
    """Fails in *method*."""

    def __init__(self, method: str) -> None:
        super().__init__({"pods": Selection(TERMS)})
        setattr(self, method, self.fail)

    def fail(self, *arguments: object) -> None:
        raise KeyError("fault")


@pytest.mark.parametrize(
    ("method", "verb", "target"),
    [("selection", "GET", PODS), ("reads_body", "POST", PODS)]
    + [(method, "DELETE", f"{PODS}/x") for method in ("admit", "begin", "end")],
)
async def test_a_fault_of_the_director_ends_the_relay(
    server: WireServer, tmp_path: Path, method: str, verb: str, target: str
) -> None:
    async def ask() -> None:
        async with asking(server, tmp_path, FaultyDirector(method)) as (client, _):
            client.send(verb, target)
            await asyncio.sleep(5)

    with pytest.raises(ExceptionGroup) as raised:
        await ask()
    assert raised.group_contains(KeyError, match="fault")
