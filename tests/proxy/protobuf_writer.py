"""Protobuf of Kubernetes' objects for tests: written by hand, independent of what reads it."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.protobuf import ObjectHead


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number % 128 + 128])
        number //= 128
    return out + bytes([number])


def field(number: int, content: bytes | str | int) -> bytes:
    if isinstance(content, int):
        return varint(number * 8) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number * 8 + 2) + varint(len(data)) + data


def metadata(head: ObjectHead, owners: Iterable[tuple[str, bool]] = ()) -> bytes:
    labels = b"".join(field(11, field(1, key) + field(2, value)) for key, value in head.labels.items())
    references = b"".join(
        field(
            13,
            field(5, "apps/v1")
            + field(1, "ReplicaSet")
            + field(3, "o")
            + field(4, uid)
            + field(6, int(controls)),
        )
        for uid, controls in owners
    )
    return field(1, head.name) + field(2, head.generate_name) + labels + references


def message(api_version: str, kind: str, content: bytes) -> bytes:
    """*content* in its envelope."""
    type_meta = field(1, field(1, api_version) + field(2, kind))
    return b"k8s\0" + type_meta + field(2, content) + field(3, "") + field(4, "")


def pod_message(head: ObjectHead, owners: Iterable[tuple[str, bool]] = (), *, more: bytes = b"") -> bytes:
    """A pod whose spec holds *more*."""
    return message("v1", head.kind, field(1, metadata(head, owners)) + field(2, field(99, more)))
