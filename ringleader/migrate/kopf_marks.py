"""What kopf leaves on objects, and the patch that takes it off. Pure.

kopf (1.45) keeps on an object: a finalizer; annotations with the last handled configuration, the progress of handlers
and a value that it touches; and, if its prefix is not its own, an annotation that marks the prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kubeio.labels import json_pointer
from kubeio.models import Meta
from kubeio.patch import JsonPatch

FINALIZERS = ("kopf.zalando.org/KopfFinalizerMarker", "KopfFinalizerMarker")
"""kopf's own, and that of its first versions; `settings.persistence.finalizer` may be another."""
PREFIX = "kopf.zalando.org"
_MARKER = "kopf-managed"
_LAST_HANDLED = "last-handled-configuration"
_TOUCHED = "touch-dummy"
_REPLICA_SET = "-ofDRS"
"""Behind the names on ReplicaSets of Deployments."""
_PROGRESS = frozenset("started stopped delayed purpose retries success failure message subrefs".split())  # noqa: SIM905
_decode_object = msgspec.json.Decoder(dict[str, object]).decode


@dataclass(frozen=True, slots=True)
class Marks:
    """What kopf has left on one object."""

    finalizers: tuple[str, ...]
    annotations: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.finalizers or self.annotations)


def marks_of(meta: Meta, *, finalizers: Sequence[str] = FINALIZERS, prefixes: Sequence[str] = ()) -> Marks:
    """kopf's marks on *meta*. *prefixes*: further ones that its settings name, all of whose annotations are its own.

    Under a prefix that only bears kopf's marker, just what looks like kopf's goes: the rest may be somebody else's.
    """
    own = (PREFIX, *prefixes)
    marked = {prefix for prefix, name in map(_split, meta.annotations) if name == _MARKER}
    return Marks(
        tuple(name for name in meta.finalizers if name in finalizers),
        tuple(
            key
            for key, value in meta.annotations.items()
            if _is_below(_split(key)[0], own) or (_split(key)[0] in marked and _looks_like_kopf(key, value))
        ),
    )


def patch_of(meta: Meta, marks: Marks, *, ours: Sequence[str]) -> JsonPatch:
    """Takes *marks* off exactly the version that *meta* shows; the finalizers *ours* take the place of kopf's."""
    patch = JsonPatch().test("/metadata/uid", meta.uid)
    patch = patch.test("/metadata/resourceVersion", meta.resource_version)
    if marks.finalizers:
        wanted = swapped(meta.finalizers, marks.finalizers, ours)
        pointer = "/metadata/finalizers"
        patch = patch.replace(pointer, wanted) if wanted else patch.remove(pointer)
    for key in marks.annotations:
        patch = patch.remove(json_pointer("metadata", "annotations", key))
    return patch


def swapped(present: Sequence[str], kopfs: Sequence[str], ours: Sequence[str]) -> list[str]:
    """*present* with *ours* in the place of the first of *kopfs*, each name once."""
    wanted: dict[str, None] = {}
    for name in present:
        for replacement in ours if name in kopfs else (name,):
            wanted[replacement] = None
    return list(wanted)


def _is_below(prefix: str, domains: Sequence[str]) -> bool:
    """Whether *prefix* is one of *domains*, or a subdomain of kopf's own, which it takes for its own too."""
    return prefix in domains or prefix.endswith(f".{PREFIX}")


def _split(key: str) -> tuple[str, str]:
    prefix, slash, name = key.rpartition("/")
    return (prefix, name) if slash else ("", key)


def _looks_like_kopf(key: str, value: str) -> bool:
    name = _split(key)[1].removesuffix(_REPLICA_SET)
    return name in (_MARKER, _LAST_HANDLED, _TOUCHED) or _is_progress(value)


def _is_progress(value: str) -> bool:
    """Whether *value* is the record that kopf keeps of a handler."""
    try:
        record: Mapping[str, object] = _decode_object(value)
    except (msgspec.DecodeError, RecursionError):  # kopf's own records are flat
        return False
    return "started" in record and record.keys() <= _PROGRESS
