"""Contract: core objects sent as protobuf, as Go clients do, arrive as the same objects sent as JSON."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.api import Answer, Api

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes | str | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def entry(number: int, key: str, value: str | bytes) -> bytes:
    return field(number, field(1, key) + field(2, value))


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    named = field(1, api_version) + field(2, kind)
    return b"k8s\x00" + field(1, named) + field(2, raw) + field(3, "") + field(4, "")


async def send(api: Api, path: str, body: bytes, *, method: str = "POST") -> Answer:
    return await api.request(
        method, path, body, content_type=PROTOBUF, accept=f"{PROTOBUF};q=0.1,application/json"
    )


@pytest_asyncio.fixture(loop_scope="session")
async def parent(api: Api, configmaps: str) -> dict[str, Any]:
    """A living owner: the garbage collector removes children of others."""
    created = await api.post(configmaps, {"metadata": {"name": "parent"}})
    uid = created.check(201).meta["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": uid, "controller": True}


@pytest.fixture
def metadata(parent: dict[str, Any]) -> bytes:
    labels = entry(11, "x", "1") + entry(11, "empty", "")
    owner = (
        field(1, "ConfigMap") + field(3, "parent") + field(4, parent["uid"]) + field(5, "v1") + field(6, 1)
    )
    return field(1, field(1, "a") + field(8, b"") + labels + entry(12, "n", "note") + field(13, owner))


def check_metadata(meta: Any, parent: dict[str, Any]) -> None:
    assert meta["labels"] == {"x": "1", "empty": ""}
    assert meta["annotations"] == {"n": "note"}
    assert meta["ownerReferences"] == [parent]


async def test_configmap_arrives_whole(
    api: Api, configmaps: str, metadata: bytes, parent: dict[str, Any]
) -> None:
    raw = metadata + entry(2, "k", "vé") + entry(3, "b", b"\x00\xff")
    (await send(api, configmaps, envelope("v1", "ConfigMap", raw))).check(201)
    found = (await api.get(f"{configmaps}/a")).check(200)
    check_metadata(found.meta, parent)
    assert found.body["data"] == {"k": "vé"}
    assert base64.b64decode(found.body["binaryData"]["b"]) == b"\x00\xff"


async def test_secret_arrives_whole_and_is_opaque_by_default(
    api: Api, secrets_: str, metadata: bytes, parent: dict[str, Any]
) -> None:
    raw = metadata + entry(2, "k", b"secret") + field(3, "") + entry(4, "plain", "text")
    (await send(api, secrets_, envelope("v1", "Secret", raw))).check(201)
    found = (await api.get(f"{secrets_}/a")).check(200)
    check_metadata(found.meta, parent)
    assert found.body["type"] == "Opaque"
    assert {k: base64.b64decode(v) for k, v in found.body["data"].items()} == {
        "k": b"secret",
        "plain": b"text",
    }


async def test_lease_arrives_with_its_micro_times(
    api: Api, leases: str, metadata: bytes, parent: dict[str, Any]
) -> None:
    renewed = field(1, 1_767_225_600) + field(2, 123_456_000)
    spec = field(1, "s1") + field(2, 15) + field(4, renewed) + field(5, 3)
    body = envelope("coordination.k8s.io/v1", "Lease", metadata + field(2, spec))
    (await send(api, leases, body)).check(201)
    found = (await api.get(f"{leases}/a")).check(200)
    check_metadata(found.meta, parent)
    assert found.body["spec"] == {
        "holderIdentity": "s1",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.123456Z",
        "leaseTransitions": 3,
    }


async def test_delete_options_keep_their_preconditions(api: Api, configmaps: str, metadata: bytes) -> None:
    (await send(api, configmaps, envelope("v1", "ConfigMap", metadata))).check(201)
    options = envelope("v1", "DeleteOptions", field(2, field(1, "another-uid")))
    (await send(api, f"{configmaps}/a", options, method="DELETE")).check(409)
    (await api.get(f"{configmaps}/a")).check(200)


@pytest.mark.parametrize("body", [b"k8s\x00\xff\xff", b"nonsense", b"k8s\x00" + field(2, b"x" * 9)[:-3]])
async def test_malformed_protobuf_is_400_or_415(api: Api, configmaps: str, body: bytes) -> None:
    refused = await send(api, configmaps, body)
    assert refused.status in (400, 415), refused.text
    assert refused.body["kind"] == "Status"
