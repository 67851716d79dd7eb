"""Stored form of an object: the parts to drop, and the conditions for compressing the rest (`StoredForm`). Pure.

`kubeio.watches.compression` compresses. Choices and measurements: docs/adr/0010.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kubeio.decoding import members

_TOKEN: Final = b'"managedFields"'
_COLON, _COMMA, _CLOSE = b":,}"


@dataclass(frozen=True, slots=True)
class StoredForm:
    """Processing of an object's bytes on their way into a store.

    *strips*: managedFields are dropped. *transform* then gets the JSON and gives the JSON to keep. It cannot remove the
    annotations *keeps*.
    The rest is kept compressed once it amounts to *compress_from_objects* (0: never) or *compress_from_bytes*,
    provided that samples shrink to *worth_it* of their size or less.
    """

    strips: bool = False
    transform: Callable[[bytes], bytes] | None = None
    keeps: frozenset[str] = frozenset()
    compress_from_objects: int = 0
    compress_from_bytes: int = 0
    worth_it: float = 1.0


PLAIN: Final = StoredForm()
"""The bytes that came."""
RAW: Final = StoredForm(strips=True)
COMPRESSED: Final = StoredForm(strips=True, compress_from_objects=1_000, compress_from_bytes=4 * 1024 * 1024)
AUTO: Final = StoredForm(
    strips=True, compress_from_objects=10_000, compress_from_bytes=16 * 1024 * 1024, worth_it=0.5
)
"""Compressed where memory is worth more than the time of a read: many objects, at least half of it saved."""


class _Managed(msgspec.Struct, gc=False):
    managed_fields: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="managedFields")


class _HasManaged(msgspec.Struct, gc=False):
    metadata: _Managed


_managed_decoder = msgspec.json.Decoder(_HasManaged)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_annotations_decoder = msgspec.json.Decoder(dict[str, str])
_encode = msgspec.json.Encoder().encode


def without_managed_fields(raw: bytes) -> bytes:
    """*raw* without its own `metadata.managedFields`; others further down stay. Every other byte stays as it is.

    Cost: a search for the name where it does not occur, else about 2 us.
    """
    begin = raw.find(_TOKEN)
    if begin < 0:
        return raw
    value = _managed_fields(raw)
    if not value:
        return raw
    begin_of_value = begin + len(_TOKEN) + 1
    end = begin_of_value + len(value)
    is_plain = (
        raw.find(_TOKEN, begin + 1) < 0  # the only one of this name is the one that was decoded
        and raw[begin_of_value - 1] == _COLON
        and raw.startswith(value, begin_of_value)
    )
    if is_plain and raw[end] == _COMMA:
        return raw[:begin] + raw[end + 1 :]
    if is_plain and raw[end] == _CLOSE and raw[begin - 1] == _COMMA:
        return raw[: begin - 1] + raw[end:]
    try:
        return _rebuilt(raw)
    except RecursionError:
        return raw  # no model can be decoded from it either


def _managed_fields(raw: bytes) -> bytes:
    """The value of `metadata.managedFields`; empty if there is none."""
    try:
        return bytes(_managed_decoder.decode(raw).metadata.managed_fields)
    except RecursionError:
        metadata = next(members(raw, b"metadata"), b"")
        return next(members(metadata, b"managedFields"), b"")


def with_annotations(raw: bytes, annotations: Mapping[str, str]) -> bytes:
    """*raw* with *annotations* beside its own; every other byte of its values stays as it is."""
    fields = _fields_decoder.decode(raw)
    metadata = _fields_decoder.decode(fields["metadata"])
    own = _annotations_decoder.decode(metadata.get("annotations", b"{}"))
    metadata["annotations"] = msgspec.Raw(_encode({**own, **annotations}))
    fields["metadata"] = msgspec.Raw(_encode(metadata))
    return _encode(fields)


def _rebuilt(raw: bytes) -> bytes:
    """The same, whatever the white space and however often the name occurs."""
    fields = _fields_decoder.decode(raw)
    metadata = _fields_decoder.decode(fields["metadata"])
    del metadata["managedFields"]
    fields["metadata"] = msgspec.Raw(_encode(metadata))
    return _encode(fields)
