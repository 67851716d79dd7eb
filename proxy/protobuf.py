"""Kubernetes' protobuf, as far as a label needs it: metadata is read by a walk over fields, and written by appending.

No schema of a kind is needed. Every object has its metadata in field 1, and a field that comes twice is merged: a
second `metadata` that holds one label adds it, or replaces its value. Pure. Numbers: generated.proto of
k8s.io/apimachinery.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from kubeio.models import OwnerReference

PREFIX: Final = b"k8s\0"
_TYPE_META, _RAW, _CONTENT_ENCODING = 1, 2, 3
_METADATA: Final = 1
_NAME, _GENERATE_NAME, _LABELS, _ANNOTATIONS, _OWNER_REFERENCES = 1, 2, 11, 12, 13
_OWNER_KIND, _OWNER_NAME, _OWNER_UID, _OWNER_API_VERSION, _OWNER_CONTROLLER = 1, 3, 4, 5, 6
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BITS: Final = 64
_MAX_NUMBER: Final = 2**29 - 1


NO_ANNOTATIONS: Final[Mapping[str, str | None]] = MappingProxyType({})


class Malformed(ValueError):
    """Bytes that are no message, or no object."""


class ObjectHead(msgspec.Struct, frozen=True):
    """What the metadata of an object says of it, and its kind. *controller*: the reference with `controller: true`."""

    kind: str = ""
    name: str = ""
    generate_name: str = ""
    controller: OwnerReference | None = None
    labels: dict[str, str] = {}

    @property
    def controller_uid(self) -> str:
        """Empty without a controller."""
        return self.controller.uid if self.controller is not None else ""


class Message:
    """An object in its envelope. Raises Malformed when it is made."""

    def __init__(self, content: bytes) -> None:
        if not content.startswith(PREFIX):
            raise Malformed("the protobuf prefix is missing")
        self._content = content
        self._raw: tuple[int, int, int] | None = None
        kind = ""
        for start, number, value in _fields(content, len(PREFIX), len(content)):
            if number == _TYPE_META:
                kind = _text(_last(content, value, 2))
            elif number == _RAW:
                if self._raw is not None:
                    raise Malformed("the envelope holds two objects")
                self._raw = (start, *_span(value))
            elif number == _CONTENT_ENCODING and _text(content[slice(*_span(value))]):
                raise Malformed("the object is encoded once more")
        self.head = self._read_head(kind)

    def with_labels(
        self, labels: Mapping[str, str], annotations: Mapping[str, str | None] = NO_ANNOTATIONS
    ) -> bytes:
        """The same object with *labels* and *annotations* beside, or instead of, those that it has."""
        start, begin, end = self._raw or (len(self._content), 0, 0)
        more = b"".join(
            _field(_LABELS, _field(1, key.encode()) + _field(2, value.encode()))
            for key, value in labels.items()
        ) + b"".join(
            _field(_ANNOTATIONS, _field(1, key.encode()) + _field(2, value.encode()))
            for key, value in annotations.items()
            if value is not None
        )
        metadata = _field(_METADATA, more)
        size = varint(end - begin + len(metadata))
        view = memoryview(self._content)
        raw_key = varint(_RAW << 3 | _BYTES)
        return b"".join((view[:start], raw_key, size, view[begin:end], metadata, view[max(end, start) :]))

    def _read_head(self, kind: str) -> ObjectHead:
        name = generate_name = b""
        controller: OwnerReference | None = None
        labels: dict[str, str] = {}
        content = self._content
        _, begin, end = self._raw or (0, 0, 0)
        for _, number, value in _fields(content, begin, end):
            if number != _METADATA:
                continue
            for _, part, inner in _fields(content, *_span(value)):
                if part == _NAME:
                    name = content[slice(*_span(inner))]
                elif part == _GENERATE_NAME:
                    generate_name = content[slice(*_span(inner))]
                elif part == _LABELS:
                    labels[_text(_last(content, inner, 1))] = _text(_last(content, inner, 2))
                elif part == _OWNER_REFERENCES and controller is None:
                    controller = _controller(content, inner)
        return ObjectHead(kind, _text(name), _text(generate_name), controller, labels)


_Value = tuple[int, int] | int


def _fields(content: bytes, at: int, end: int) -> Iterator[tuple[int, int, _Value]]:
    """Each field between *at* and *end*: where it starts, its number, and its value (a span of bytes, or a number)."""
    while at < end:
        start = at
        key, at = _read_varint(content, at, end)
        number, wire = key >> 3, key & 7
        value: _Value
        if not 0 < number <= _MAX_NUMBER:
            raise Malformed(f"a field of number {number}")
        if wire == _BYTES:
            size, at = _read_varint(content, at, end)
            value, at = (at, at + size), at + size
        elif wire == _VARINT:
            value, at = _read_varint(content, at, end)
        elif wire in (_FIXED64, _FIXED32):
            value, at = 0, at + (8 if wire == _FIXED64 else 4)
        else:
            raise Malformed(f"a field of wire type {wire}")
        if at > end:
            raise Malformed("a field that is cut off")
        yield start, number, value


def _read_varint(content: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= _MAX_VARINT_BITS:
            break
    raise Malformed("a number that is cut off or too long")


def _span(value: _Value) -> tuple[int, int]:
    if isinstance(value, int):
        raise Malformed("a number where bytes are expected")
    return value


def _last(content: bytes, message: _Value, number: int) -> bytes:
    """The last field *number* of *message*, which is the one that counts; empty if there is none."""
    found = b""
    for _, each, value in _fields(content, *_span(message)):
        if each == number:
            found = content[slice(*_span(value))]
    return found


def _controller(content: bytes, reference: _Value) -> OwnerReference | None:
    """*reference*, decoded; None if it is no controller."""
    parts = {number: value for _, number, value in _fields(content, *_span(reference))}  # the last one counts
    is_controller = parts.get(_OWNER_CONTROLLER, 0)
    if not isinstance(is_controller, int):
        raise Malformed("bytes where a number is expected")
    if not is_controller:
        return None
    api_version, kind, name, uid = (
        _text(content[slice(*_span(parts[number]))]) if number in parts else ""
        for number in (_OWNER_API_VERSION, _OWNER_KIND, _OWNER_NAME, _OWNER_UID)
    )
    return OwnerReference(api_version, kind, name, uid, controller=True)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Malformed("a text that is not UTF-8") from None


def varint(number: int) -> bytes:
    """*number* as protobuf writes numbers and lengths."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | _BYTES) + varint(len(content)) + content
