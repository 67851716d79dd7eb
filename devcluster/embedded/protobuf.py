"""Reads the protobuf in which Go clients and `kubectl create` send core objects: bytes in, the object as JSON
would have it out. Pure. Answers are always JSON: those clients accept it.

Only the kinds that this server has, and of them the fields that it keeps. The numbers are the published wire
format of Kubernetes and do not change.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from devcluster.embedded.status import bad_request, unsupported_media

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

Doc = dict[str, Any]
_MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Field(NamedTuple):
    """One field of a message: its name in JSON, what it holds, and whether it repeats or is a map."""

    name: str
    holds: str | Message = "string"
    form: str = "one"


Message = dict[int, Field]

_TIME: Final[Message] = {1: Field("seconds", "int"), 2: Field("nanos", "int")}
_OWNER: Final[Message] = {
    1: Field("kind"),
    3: Field("name"),
    4: Field("uid"),
    5: Field("apiVersion"),
    6: Field("controller", "bool"),
    7: Field("blockOwnerDeletion", "bool"),
}
_META: Final[Message] = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    5: Field("uid"),
    6: Field("resourceVersion"),
    7: Field("generation", "int"),
    8: Field("creationTimestamp", "time"),
    9: Field("deletionTimestamp", "time"),
    10: Field("deletionGracePeriodSeconds", "int"),
    11: Field("labels", form="map"),
    12: Field("annotations", form="map"),
    13: Field("ownerReferences", _OWNER, "many"),
    14: Field("finalizers", form="many"),
}
_METADATA: Final = Field("metadata", _META)
_LEASE_SPEC: Final[Message] = {
    1: Field("holderIdentity"),
    2: Field("leaseDurationSeconds", "int"),
    3: Field("acquireTime", "micro_time"),
    4: Field("renewTime", "micro_time"),
    5: Field("leaseTransitions", "int"),
    6: Field("strategy"),
    7: Field("preferredHolder"),
}
_KINDS: dict[tuple[str, str], Message] = {
    ("v1", "ConfigMap"): {
        1: _METADATA,
        2: Field("data", form="map"),
        3: Field("binaryData", "bytes", "map"),
        4: Field("immutable", "bool"),
    },
    ("v1", "Secret"): {
        1: _METADATA,
        2: Field("data", "bytes", "map"),
        3: Field("type"),
        4: Field("stringData", form="map"),
        5: Field("immutable", "bool"),
    },
    ("v1", "Namespace"): {1: _METADATA, 2: Field("spec", {1: Field("finalizers", form="many")})},
    ("coordination.k8s.io/v1", "Lease"): {1: _METADATA, 2: Field("spec", _LEASE_SPEC)},
}
_ASKED: Final[Message] = {
    1: Field(
        "resourceAttributes",
        {
            number: Field(name)
            for number, name in enumerate(
                ("namespace", "verb", "group", "version", "resource", "subresource", "name"), start=1
            )
        },
    ),
    2: Field("nonResourceAttributes", {1: Field("path"), 2: Field("verb")}),
}
_REVIEWS: Final[dict[tuple[str, str], Message]] = {
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): _ASKED,
    ("authorization.k8s.io/v1", "SubjectAccessReview"): _ASKED
    | {3: Field("user"), 4: Field("groups", form="many"), 6: Field("uid")},
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): {1: Field("namespace")},
    ("authentication.k8s.io/v1", "SelfSubjectReview"): {},
    ("authentication.k8s.io/v1", "TokenReview"): {1: Field("token")},
}
_KINDS |= {kind: {1: _METADATA, 2: Field("spec", spec)} for kind, spec in _REVIEWS.items()}
_DELETE_OPTIONS: Final[Message] = {
    1: Field("gracePeriodSeconds", "int"),
    2: Field("preconditions", {1: Field("uid"), 2: Field("resourceVersion")}),
    3: Field("orphanDependents", "bool"),
    4: Field("propagationPolicy"),
    5: Field("dryRun", form="many"),
}
_ENVELOPE: Final[Message] = {
    1: Field("type", {1: Field("apiVersion"), 2: Field("kind")}),
    2: Field("raw", "raw"),
}


def is_protobuf(body: bytes) -> bool:
    """Whether *body* begins as every protobuf of Kubernetes does."""
    return body.startswith(_MAGIC)


def decode_protobuf(body: bytes) -> Doc:
    """The object in *body*. Raises: 400 when it is malformed, 415 when its kind is not read here."""
    if not is_protobuf(body):
        raise bad_request("the object provided is unrecognized: protobuf without its prefix")
    try:
        envelope = _message(body[len(_MAGIC) :], _ENVELOPE)
        named = envelope.get("type", {})
        api_version, kind = str(named.get("apiVersion", "")), str(named.get("kind", ""))
        message = _DELETE_OPTIONS if kind == "DeleteOptions" else _KINDS.get((api_version, kind))
        if message is None:
            raise unsupported_media(
                f"{kind} of {api_version} as protobuf is not read by the embedded control plane; send JSON"
            )
        return {"apiVersion": api_version, "kind": kind, **_message(envelope.get("raw", b""), message)}
    except (IndexError, ValueError, OverflowError) as error:
        raise bad_request(f"the object provided is unrecognized: malformed protobuf: {error}") from error


def _message(data: bytes, fields: Message) -> Doc:
    """A message as a dict; zero values that were sent are kept, fields without a name are dropped."""
    doc: Doc = {}
    for number, raw in _parts(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.form == "map":
            entry = _message(_as_bytes(raw), {1: Field("key"), 2: Field("value", field.holds)})
            doc.setdefault(field.name, {})[entry.get("key", "")] = entry.get("value", "")
        elif field.form == "many":
            doc.setdefault(field.name, []).append(_value(raw, field.holds))
        elif (value := _value(raw, field.holds)) is not None:
            doc[field.name] = value
    return doc


def _value(raw: int | bytes, holds: str | Message) -> Any:
    if isinstance(holds, dict):
        return _message(_as_bytes(raw), holds)
    match holds:
        case "int":
            number = _as_int(raw)
            return number - (1 << 64) if number >= 1 << 63 else number
        case "bool":
            return bool(_as_int(raw))
        case "bytes":
            return base64.b64encode(_as_bytes(raw)).decode()
        case "raw":
            return _as_bytes(raw)
        case "time" | "micro_time":
            return _instant(_as_bytes(raw), is_micro=holds == "micro_time")
        case _:
            return _as_bytes(raw).decode()


def _instant(data: bytes, *, is_micro: bool) -> str | None:
    """A time as JSON has it; an empty message is no time."""
    if not data:
        return None
    parts = _message(data, _TIME)
    instant = datetime.fromtimestamp(parts.get("seconds", 0), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{instant}.{parts.get('nanos', 0) // 1000:06d}Z" if is_micro else f"{instant}Z"


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers with their raw content: a number, or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            content, at = _varint(data, at)
            yield number, content
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("it ends in the middle of a field")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _as_bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("a number where bytes belong")  # noqa: TRY004 - malformed input, not a wrong call
    return raw


def _as_int(raw: int | bytes) -> int:
    if isinstance(raw, bytes):
        raise ValueError("bytes where a number belongs")  # noqa: TRY004 - malformed input, not a wrong call
    return raw
