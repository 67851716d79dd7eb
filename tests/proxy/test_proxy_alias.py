"""The alias: a constant of the ring in all that the controller sees, however the server's answer is cut."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.labels import is_label_value
from kubeio.protocol import RingKeys
from kubeio.shard.lease_acquisition import fresh_name
from proxy.alias import NAME_LENGTH, Alias, AliasedStream
from proxy.director import Selection
from proxy.protobuf import Message, ObjectHead
from proxy.refusals import Refusal
from tests.kubeio.http.wire_server import WireServer, http_answer, once, sending
from tests.proxy.protobuf_writer import field, message, metadata
from tests.proxy.relays import RawClient, ScriptedDirector, raw_client, relayed

KEYS = RingKeys("web")
SHARD = fresh_name("web-0", random.Random(1), length=NAME_LENGTH)
ALIAS = Alias(SHARD, KEYS)
OWN = {KEYS.shard: SHARD, KEYS.visible: SHARD}
SEEN = {KEYS.shard: ALIAS.name, KEYS.visible: ALIAS.name}
PODS = "/api/v1/namespaces/a/pods"


def in_json(labels: dict[str, str], **more: object) -> bytes:
    """An event of a watch."""
    pod = {"kind": "Pod", "metadata": {"labels": dict(sorted(labels.items())), **more}}
    return json.dumps({"type": "ADDED", "object": pod}, separators=(",", ":")).encode() + b"\n"


def in_protobuf(labels: dict[str, str], *, annotations: dict[str, str] | None = None) -> bytes:
    head = ObjectHead(kind="Pod", name="x", labels=dict(sorted(labels.items())))
    more = b"".join(field(12, field(1, key) + field(2, value)) for key, value in (annotations or {}).items())
    return message("v1", "Pod", field(1, metadata(head) + more))


def in_cbor(labels: dict[str, str]) -> bytes:
    """A map of texts shorter than 256 bytes."""
    texts = [text.encode() for pair in sorted(labels.items()) for text in pair]
    return bytes([0xA0 + len(labels)]) + b"".join(bytes([0x78, len(text)]) + text for text in texts)


DRAINED = OWN | {KEYS.drain: fresh_name("web-1", random.Random(2), length=NAME_LENGTH)}
TURNED = {KEYS.turn: "4711", "z": "1"}
ANSWERS = [
    in_json(DRAINED, annotations=TURNED),
    in_json(OWN, annotations={"z": "2026-01-01T00:00:00Z"}),
    in_json(OWN | {KEYS.drain: ""}) * 2,
    in_protobuf(DRAINED | {"app": "Z"}),
    in_protobuf(OWN, annotations=TURNED),
    in_cbor(OWN),
    b"ZZZ" + SHARD.encode() * 2 + SHARD.encode()[:-1],
]


def test_the_alias_is_one_for_all_lives_and_members_of_a_ring() -> None:
    names = [
        fresh_name(member, random.Random(3), length=NAME_LENGTH) for member in ("a", "m" * 54, "m" * 253)
    ]
    assert {len(name) for name in names} == {NAME_LENGTH}
    assert {Alias(name, KEYS).name for name in names} == {ALIAS.name}
    assert len(ALIAS.name) == NAME_LENGTH
    assert is_label_value(ALIAS.name)


def test_the_aliases_of_two_rings_differ() -> None:
    rings = [RingKeys("web"), RingKeys("web", "example.com"), RingKeys("a" * 63), RingKeys("a" * 40 + ".b")]
    names = {Alias(SHARD, keys).name for keys in rings}
    assert len(names) == 4
    assert all(is_label_value(name) and len(name) == NAME_LENGTH for name in names)


def test_a_name_of_another_length_has_no_alias() -> None:
    with pytest.raises(ValueError, match="not 63"):
        Alias("web-0-12345678", KEYS)


@pytest.mark.parametrize("answer", ANSWERS)
@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_an_answer_is_the_same_however_it_is_cut(answer: bytes, cuts: list[int]) -> None:
    stream = AliasedStream(ALIAS)
    bounds = sorted({0, len(answer), *(min(cut, len(answer)) for cut in cuts)})
    seen = b"".join(stream.feed(answer[begin:end]) for begin, end in pairwise(bounds)) + stream.rest()
    assert seen == ALIAS.put_into(answer)
    assert len(seen) == len(answer)
    assert SHARD.encode() not in seen


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_the_same_byte_by_byte(answer: bytes) -> None:
    stream = AliasedStream(ALIAS)
    seen = b"".join(stream.feed(answer[at : at + 1]) for at in range(len(answer))) + stream.rest()
    assert seen == ALIAS.put_into(answer)


@pytest.mark.parametrize("event", ANSWERS[:5])
def test_no_event_waits_for_the_next_one(event: bytes) -> None:
    assert AliasedStream(ALIAS).feed(event) == ALIAS.put_into(event)


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("value", ["", "web-1-12345678", DRAINED[KEYS.drain]])
def test_a_drain_label_is_not_there_in_json(value: str, space: str) -> None:
    event = in_json(OWN | {KEYS.drain: value, "app": "x"}).replace(b'":', b'":' + space.encode())
    assert json.loads(ALIAS.put_into(event))["object"]["metadata"]["labels"] == SEEN | {"app": "x"}


@pytest.mark.parametrize("value", ["", "web-1-12345678", DRAINED[KEYS.drain]])
@pytest.mark.parametrize("keys", [KEYS, RingKeys("r" * 63, "long.example.com")])
def test_a_drain_label_is_not_there_in_protobuf(keys: RingKeys, value: str) -> None:
    alias = Alias(SHARD, keys)
    seen = Message(
        alias.put_into(in_protobuf({keys.shard: SHARD, keys.visible: SHARD, keys.drain: value, "app": "x"}))
    )
    assert seen.head.labels == {keys.shard: alias.name, keys.visible: alias.name, "app": "x"}
    assert seen.head.name == "x"


@pytest.mark.parametrize("turn", ["0", "4711", "18446744073709551615"])
def test_every_turn_is_an_empty_one(turn: str) -> None:
    """A move changes it. Controllers copy annotations, and kopf compares them."""
    for space in ("", " "):
        event = in_json(OWN, annotations={"a": "b", KEYS.turn: turn}).replace(b'":', b'":' + space.encode())
        seen = json.loads(ALIAS.put_into(event))["object"]["metadata"]["annotations"]
        assert seen == {"a": "b", KEYS.turn: ""}
    copied = in_json({}, annotations={"last": json.dumps({KEYS.turn: turn})})
    assert ALIAS.put_into(copied) == copied
    raw = in_protobuf(OWN, annotations={KEYS.turn: turn, "z": "1"})
    entry = field(12, field(1, KEYS.turn) + field(2, turn))
    skipped = field(12, field(1, KEYS.turn) + field(15, turn))
    assert entry in raw
    assert skipped in ALIAS.put_into(raw)


def test_who_owns_the_drain_label_stays_in_managed_fields() -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{KEYS.drain}": {}}}}
    event = in_json(OWN, managedFields=[{"fieldsV1": fields}])
    assert json.loads(ALIAS.put_into(event))["object"]["metadata"]["managedFields"][0]["fieldsV1"] == fields
    raw = field(1, metadata(ObjectHead(labels=OWN)) + field(17, field(7, json.dumps(fields))))
    assert json.dumps(fields).encode() in ALIAS.put_into(raw)


# -- through the relay


@asynccontextmanager
async def asking(
    server: WireServer, folder: Path, director: ScriptedDirector | None = None
) -> AsyncIterator[RawClient]:
    director = director or ScriptedDirector({"pods": Selection("a=b")}, hides=ALIAS, labels=OWN)
    async with relayed(server.cluster(), folder, director) as through, raw_client(through.port) as client:
        yield client


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Kept: yes\r\n\r\n" + framed + b"0\r\n\r\n"


async def read_chunks(client: RawClient) -> bytes:
    body = b""
    while size := int(await client.reader.readline(), 16):
        body += (await client.reader.readexactly(size + 2))[:-2]
    await client.reader.readline()
    return body


@pytest.mark.parametrize("piece", [0, 7])
@pytest.mark.parametrize("size", [1, 10, 4096])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_chunked_answer_has_the_alias(
    server: WireServer, tmp_path: Path, answer: bytes, size: int, piece: int
) -> None:
    server.script = sending(chunked(answer, size), piece=piece)
    async with asking(server, tmp_path) as client:
        for _ in range(2):  # its end is known: the connection goes on
            client.send("GET", PODS)
            status, headers = await client.head()
            assert (status, headers["x-kept"]) == (200, "yes")
            assert await read_chunks(client) == ALIAS.put_into(answer)


@pytest.mark.parametrize("length", ["Content-Length: %d\r\n", ""])
async def test_an_answer_of_known_or_unknown_length_has_the_alias(
    server: WireServer, tmp_path: Path, length: str
) -> None:
    answer = ANSWERS[-1]  # its end may begin a name
    head = "HTTP/1.1 200 OK\r\n" + (length % len(answer) if length else "Connection: close\r\n") + "\r\n"
    server.script = sending(head.encode() + answer) if length else once(head.encode() + answer)
    async with asking(server, tmp_path) as client:
        client.send("GET", PODS)
        await client.head()
        assert await client.reader.readexactly(len(answer)) == ALIAS.put_into(answer)


async def test_a_chunked_answer_that_is_cut_off_has_no_end(server: WireServer, tmp_path: Path) -> None:
    server.script = once(chunked(in_json(OWN), 4096)[: -len(b"0\r\n\r\n")])
    async with asking(server, tmp_path) as client:
        client.send("GET", f"{PODS}?watch=true")
        await client.head()
        seen = await client.reader.read()
    assert ALIAS.put_into(in_json(OWN)) in seen
    assert not seen.endswith(b"0\r\n\r\n")


async def test_the_answer_to_head_and_an_empty_one_end(server: WireServer, tmp_path: Path) -> None:
    server.script = sending(b"HTTP/1.1 204 No Content\r\n\r\n")
    async with asking(server, tmp_path) as client:
        assert (await client.ask("DELETE", f"{PODS}/x"))[0] == 204
    server.script = sending(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    async with asking(server, tmp_path) as client:
        client.send("HEAD", f"{PODS}/x")
        assert (await client.head())[0] == 200
        assert await client.is_closed()


async def test_events_over_a_websocket_have_the_alias(server: WireServer, tmp_path: Path) -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    server.script = sending(switched + in_json(DRAINED), piece=50)
    async with asking(server, tmp_path) as client:
        client.send("GET", f"{PODS}?watch=true", b"", "Connection: Upgrade", "Upgrade: websocket")
        assert (await client.head())[0] == 101
        assert await client.reader.readexactly(len(in_json(DRAINED))) == ALIAS.put_into(in_json(DRAINED))


async def test_other_kinds_pass_as_they_are(server: WireServer, tmp_path: Path) -> None:
    server.script = sending(chunked(in_json(OWN), 10))
    async with asking(server, tmp_path) as client:
        client.send("GET", "/api/v1/configmaps")
        await client.head()
        assert await read_chunks(client) == in_json(OWN)


async def test_a_selector_that_names_the_alias_selects_the_shard(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as client:
        await client.ask(
            "GET", f"{PODS}?labelSelector={KEYS.shard}%3D{ALIAS.name}", b"", "Accept-Encoding: gzip"
        )
    assert server.requests[0].target.endswith(f"{KEYS.shard.replace('/', '%2F')}%3D{SHARD}%2Ca%3Db")
    assert "accept-encoding" not in server.requests[0].headers


async def test_an_alias_in_a_name_is_a_name(server: WireServer, tmp_path: Path) -> None:
    """A controller that names an object after a label finds it in the next life."""
    async with asking(server, tmp_path) as client:
        await client.ask("GET", f"{PODS}/{ALIAS.name}?fieldSelector=a%3D{ALIAS.name}")
    assert server.requests[0].target == f"{PODS}/{ALIAS.name}?fieldSelector=a%3D{ALIAS.name}"


async def test_one_object_is_not_asked_for_compressed(server: WireServer, tmp_path: Path) -> None:
    async with asking(server, tmp_path) as client:
        await client.ask("GET", f"{PODS}/x", b"", "Accept-Encoding: gzip")
    assert "accept-encoding" not in server.requests[0].headers


async def test_the_alias_goes_back_as_the_name_and_stays_in_templates(
    server: WireServer, tmp_path: Path
) -> None:
    template = {"metadata": {"labels": SEEN}}
    body: dict[str, Any] = {"metadata": {"name": "x", "labels": SEEN}, "spec": {"template": template}}
    async with asking(server, tmp_path) as client:
        for method, target in (("POST", PODS), ("PUT", f"{PODS}/x"), ("PUT", f"{PODS}/x/status")):
            await client.ask(method, target, json.dumps(body).encode(), "Content-Type: application/json")
            sent = json.loads(server.requests[-1].body)
            assert sent["metadata"]["labels"] == OWN
            assert sent["spec"]["template"] == template


@pytest.mark.parametrize("piece", [0, 1, 7])
async def test_a_write_that_the_server_finds_invalid_may_get_another_answer(
    server: WireServer, tmp_path: Path, piece: int
) -> None:
    def translate(answer: bytes) -> Refusal | None:
        return Refusal(409, "another shard's") if b"policy" in answer else None

    director = ScriptedDirector({"pods": Selection("a=b")}, hides=ALIAS, labels=OWN, translation=translate)
    for text, status, found in (("a policy", 422, 409), ("too long", 422, 422), ("a policy", 403, 403)):
        server.script = sending(http_answer({"message": text}, status=status), piece=piece)
        async with asking(server, tmp_path, director) as client:
            answered, _, body = await client.ask("DELETE", f"{PODS}/x")
            assert (answered, text.encode() in body) == (found, found != 409)
            if found == 409:
                assert (await client.ask("GET", f"{PODS}/x"))[0] == 422, "a read is none"
    assert [status for _, status in director.ended] == [422, 422, 403]
