"""JSON that others wrote, read as objects: metadata always, however deep the rest is nested. Pure.

An API server takes JSON that is nested 10,000 deep; Python's decoders give up at the recursion limit, by default 1,000,
with a RecursionError. That limit stays as it is, because user code that recurses for ever would end the process
(docs/adr/0021). Such JSON is taken apart here without recursion. Owns what makes an object unreadable (`Unfit`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from kubeio.models import HasMeta, Meta, Object, ObjectKey

T = TypeVar("T")

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""Exceptions of the decoders for JSON that is torn, or of other types than expected."""
KEPT_LEVELS: Final = 64
"""Depth below which no type of ours names a field."""

_tokens = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]|"', re.DOTALL).finditer
_QUOTE, _OPENING = b'"', b"[{"
_decode_object = msgspec.json.Decoder(HasMeta).decode
_decode_meta = msgspec.json.Decoder(Meta).decode


class Unfit(msgspec.Struct, frozen=True):
    """An object whose metadata cannot be read: counts as absent. *key* and *resource_version* as far as they can."""

    key: ObjectKey
    resource_version: str
    problem: str


def object_from(raw: bytes) -> Object:
    """The object whose JSON is *raw*. Raises what is in UNREADABLE."""
    return Object(meta_of(raw), raw)


def meta_of(raw: bytes) -> Meta:
    """Its metadata only. Raises what is in UNREADABLE."""
    try:
        return _decode_object(raw).metadata
    except RecursionError:
        return _decode_meta(pruned(next(members(raw, b"metadata"), b"")))


def decode_pruned(decode: Callable[[bytes], T], raw: bytes) -> T:
    """Decode *raw* with *decode*. JSON nested too deep for it is decoded without the content below `KEPT_LEVELS`."""
    try:
        return decode(raw)
    except RecursionError:
        return decode(pruned(raw))


def unfit(raw: bytes, error: Exception) -> Unfit:
    """The `Unfit` of an object *raw* whose metadata failed to decode with *error*; unreadable fields are empty."""
    said: dict[str, str] = {}
    for name in ("namespace", "name", "resourceVersion"):
        try:
            said[name] = _FIELDS[name](raw)
        except (*UNREADABLE, RecursionError):
            said[name] = ""
    return Unfit(ObjectKey(said["namespace"], said["name"]), said["resourceVersion"], str(error))


def pruned(raw: bytes, levels: int = KEPT_LEVELS) -> bytes:
    """*raw* with every array and object that lies *levels* deep emptied."""
    kept: list[bytes] = []
    begin = depth = 0
    for token in _tokens(raw):
        if (sign := token.group()) in _OPENING:
            depth += 1
            if depth == levels + 1:
                kept.append(raw[begin : token.end()])
        elif not sign.startswith(_QUOTE):
            if depth == levels + 1:
                begin = token.start()
            depth -= 1
        elif len(sign) == 1:  # a string without end
            break
    return b"".join((*kept, raw[begin:])) if depth <= levels else b""


def members(raw: bytes, name: bytes, *, depth: int = 1) -> Iterator[bytes]:
    """The arrays and objects that begin *depth* deep inside *raw*'s own field *name*, as they stand.

    *depth* 1: the value of the field. *depth* 2: the elements of the array that is its value.
    """
    wanted, field = _QUOTE + name + _QUOTE, b""
    at = begin = 0
    for token in _tokens(raw):
        if (sign := token.group()) in _OPENING:
            if at == depth:
                begin = token.start()
            at += 1
        elif not sign.startswith(_QUOTE):
            at -= 1
            if at == depth and field == wanted:
                yield raw[begin : token.end()]
        elif at == 1:
            field = sign


def _field(name: str) -> Callable[[bytes], str]:
    """Reads one field of an object's metadata, blind to all others."""
    meta = msgspec.defstruct("_Meta", [("value", str, msgspec.field(default="", name=name))])
    decode = msgspec.json.Decoder(msgspec.defstruct("_Object", [("metadata", meta)])).decode
    return lambda raw: str(decode(raw).metadata.value)  # type: ignore[attr-defined] # a Struct made here


_FIELDS: Final = {name: _field(name) for name in ("namespace", "name", "resourceVersion")}
