"""Labels in bodies of JSON and protobuf: what the body says stays, and the label is there. Pure."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.models import OwnerReference
from proxy.bodies import APPLY, JSON, PROTOBUF, UnsupportedEncoding, read_object
from proxy.protobuf import Malformed, ObjectHead
from tests.proxy.protobuf_writer import field, pod_message
from tests.proxy.relays import LABELS, SHARD

OTHER_TYPES = ["application/cbor", "application/yaml", "application/apply-patch+cbor", "text/plain"]
NO_OBJECTS = [b"", b"[]", b"{", b'{"metadata":[]}', b'{"metadata":{"labels":{"a":1}}}', b"[" * 100_000]
ENCODINGS = [JSON, PROTOBUF]
TEXTS = st.text(max_size=12)
LABEL_MAPS = st.dictionaries(TEXTS, TEXTS, max_size=4)
HEADS = st.builds(ObjectHead, kind=TEXTS, name=TEXTS, generate_name=TEXTS, labels=LABEL_MAPS)
OWNERS = st.lists(st.tuples(TEXTS, st.booleans()), max_size=3)


def encoded(encoding: str, head: ObjectHead, owners: list[tuple[str, bool]], more: bytes = b"") -> bytes:
    if encoding == PROTOBUF:
        return pod_message(head, owners, more=more)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o"}
    references = [owner | {"uid": uid, "controller": controller} for uid, controller in owners]
    metadata: dict[str, object] = {
        "name": head.name,
        "generateName": head.generate_name,
        "ownerReferences": references,
    }
    metadata["labels"] = head.labels
    return msgspec.json.encode(
        {"kind": head.kind, "apiVersion": "v1", "metadata": metadata, "spec": more.hex()}
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(HEADS, OWNERS, LABEL_MAPS, st.binary(max_size=300))
def test_a_body_keeps_what_it_says_and_gets_the_labels(
    encoding: str, head: ObjectHead, owners: list[tuple[str, bool]], labels: dict[str, str], more: bytes
) -> None:
    controller = next((uid for uid, is_controller in owners if is_controller and uid), "")
    if any(is_controller and not uid for uid, is_controller in owners):
        owners, controller = [], ""
    content = encoded(encoding, head, owners, more)
    body = read_object(content, encoding)
    found = OwnerReference("apps/v1", "ReplicaSet", "o", controller, controller=True) if controller else None
    assert body.head == msgspec.structs.replace(head, controller=found)
    changed = read_object(body.with_labels(labels), encoding)
    assert changed.head == msgspec.structs.replace(body.head, labels=head.labels | labels)
    if encoding == PROTOBUF:
        assert more in changed.with_labels({})
    else:
        assert msgspec.json.decode(body.with_labels(labels))["spec"] == more.hex()


def test_json_keeps_the_bytes_of_all_other_fields() -> None:
    content = b'{"spec": {"a" : 1.0,\n"b":[ ]},"metadata":{"annotations":{"x":"\\u0041"},"labels":null},"status":{}}'
    changed = read_object(content, JSON).with_labels({"l": "v"})
    assert b'{"a" : 1.0,\n"b":[ ]}' in changed
    assert b'{"x":"\\u0041"}' in changed
    assert msgspec.json.decode(changed)["metadata"]["labels"] == {"l": "v"}


def test_annotations_are_put_in_or_left_out() -> None:
    own = {"turn": "", "a": "b"}
    body = read_object(msgspec.json.encode({"metadata": {"annotations": own}}), JSON)
    for turn, found in (("7", {"a": "b", "turn": "7"}), (None, {"a": "b"})):
        changed = msgspec.json.decode(body.with_labels(LABELS, {"turn": turn}))["metadata"]
        assert changed == {"annotations": found, "labels": LABELS}
    raw = pod_message(ObjectHead(kind="Pod", name="x"))
    entry = field(12, field(1, "turn") + field(2, "7"))
    assert entry in read_object(raw, PROTOBUF).with_labels(LABELS, {"turn": "7"})
    assert b"turn" not in read_object(raw, PROTOBUF).with_labels(LABELS, {"turn": None})
    with pytest.raises(Malformed, match="annotations"):
        read_object(b'{"metadata":{"annotations":[]}}', JSON).with_labels(LABELS, {"turn": "7"})


@pytest.mark.parametrize(
    "metadata", [None, {}, {"labels": None}, {"labels": {}}, {"labels": {SHARD: "other"}}]
)
def test_an_object_without_labels_or_with_another_shard_s_gets_ours(metadata: dict[str, Any] | None) -> None:
    content = msgspec.json.encode({"metadata": metadata} if metadata is not None else {})
    assert read_object(read_object(content, JSON).with_labels(LABELS), JSON).head.labels == LABELS


def test_of_two_metadata_in_json_the_one_that_is_read_is_the_one_that_is_sent() -> None:
    body = read_object(b'{"metadata":{"name":"a"},"metadata":{"name":"b"}}', JSON)
    assert msgspec.json.decode(body.with_labels({}))["metadata"]["name"] == body.head.name == "b"


@pytest.mark.parametrize("content_type", OTHER_TYPES)
def test_an_encoding_that_takes_no_label_is_unsupported(content_type: str) -> None:
    with pytest.raises(UnsupportedEncoding, match=r"send application/json"):
        read_object(b"{}", content_type)


def test_apply_takes_json_only() -> None:
    assert read_object(b' {"metadata":{"name":"a"}}', APPLY).head.name == "a"
    with pytest.raises(UnsupportedEncoding, match="JSON"):
        read_object(b"metadata:\n  name: a\n", APPLY)


def test_a_content_type_is_read_without_its_parameters_and_json_is_the_default() -> None:
    assert read_object(b"{}", "Application/JSON; charset=utf-8").head == ObjectHead()
    assert read_object(b"{}", "").head == ObjectHead()


@pytest.mark.parametrize("content", NO_OBJECTS)
def test_json_that_is_no_object_is_malformed(content: bytes) -> None:
    with pytest.raises(Malformed, match="no JSON object"):
        read_object(content, JSON)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_malformed_and_nothing_else(garbage: bytes) -> None:
    for content in (garbage, b"k8s\0" + garbage, b"k8s\0\x12" + bytes([len(garbage)]) + garbage):
        with suppress(Malformed):
            read_object(content, PROTOBUF).with_labels(LABELS)


@pytest.mark.parametrize(
    "content",
    [
        b"k8s\0\x12\x05\x0a\x01",  # cut off
        b"k8s\0\x12\x00\x12\x00",  # two objects
        b"k8s\0\x1a\x04gzip",  # encoded once more
        b"k8s\0\x12\x02\x08\x01",  # metadata is a number
        b"k8s\0\x13\x14",  # a group
        b"k8s\0\x00",  # no number
        b"k8s\0\x8a\x80\x80\x80\x10\x00",  # a number that a server would cut to 1
        b"k8s\0" + b"\xff" * 11,
    ],
)
def test_a_message_that_a_server_could_read_otherwise_is_malformed(content: bytes) -> None:
    with pytest.raises(Malformed):
        read_object(content, PROTOBUF)
