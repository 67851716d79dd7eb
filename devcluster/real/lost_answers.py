"""Finds the writes that the server carried out although it answered with an error. Pure.

A client that goes away in the middle of a request gets a 504 into the audit log, whether or not etcd had the write by
then. The next write to the object is the evidence: its labels, or a test that it passed, have no other explanation
than the unanswered write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

Labels = Mapping[str, str]
_LABELS = "/metadata/labels"
_VERSION = "/metadata/resourceVersion"


class OwnerReference(msgspec.Struct, gc=False):
    uid: str = ""
    controller: bool = False


class Metadata(msgspec.Struct, gc=False, rename="camel"):
    """The part of an object's metadata that the log is read for."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> str:
        """The uid of its controller; empty without one."""
        return next((each.uid for each in self.owner_references if each.controller), "")

    @property
    def version(self) -> int | None:
        return int(self.resource_version) if self.resource_version.isdigit() else None

    @property
    def is_gone(self) -> bool:
        """Nothing holds it any more: the write that answered with this also removed it."""
        return self.deletion_timestamp is not None and not self.finalizers


class Request:
    """The body of one write: its tests, and its effect on labels and spec."""

    def __init__(self, verb: str, body: object) -> None:
        self._is_whole = verb in ("create", "update")
        self._operations = [part for part in body if isinstance(part, dict)] if isinstance(body, list) else []
        self._document: dict[str, Any] = body if isinstance(body, dict) else {}
        self._metadata: dict[str, Any] = self._document.get("metadata") or {}

    @property
    def leaves_labels(self) -> bool:
        """Whether the labels after it are those before it."""
        if self._is_whole or not (self._operations or self._document):
            return False
        changed = (str(part.get("path")) for part in self._operations if part.get("op") != "test")
        return "labels" not in self._metadata and not any(_is_about_labels(path) for path in changed)

    @property
    def leaves_spec(self) -> bool:
        return not self._is_whole and "spec" not in self._document and not self._operations

    @property
    def tested_version(self) -> str:
        """The only resourceVersion that it could be accepted at; empty if any."""
        tests = (str(part.get("value")) for part in self._operations if _is_test(part, _VERSION))
        return next(tests, str(self._metadata.get("resourceVersion") or ""))

    def admits(self, labels: Labels) -> bool:
        """Whether its tests of labels hold for *labels*."""
        tests = ((_label_of(part), part) for part in self._operations if part.get("op") == "test")
        return all(not name or labels.get(name) == part.get("value") for name, part in tests)

    def labels_after(self, before: Labels) -> dict[str, str]:
        """The labels it leaves where it found *before*."""
        given: Mapping[str, Any] = self._metadata.get("labels") or {}
        after: dict[str, Any] = dict(given) if self._is_whole else {**before, **given}
        for part in self._operations:
            name = _label_of(part)
            if name and part.get("op") in ("add", "replace"):
                after[name] = part.get("value")
            elif name and part.get("op") == "remove":
                after.pop(name, None)
        return {name: value for name, value in after.items() if value is not None}

    def annotations_after(self, before: Labels) -> dict[str, str]:
        given: Mapping[str, Any] = self._metadata.get("annotations") or {}
        after: dict[str, Any] = dict(given) if self._is_whole else {**before, **given}
        return {name: value for name, value in after.items() if value is not None}

    def spec_after(self, before: object) -> object:
        """The spec it leaves: its own, laid over *before* if it is a patch."""
        given = self._document.get("spec")
        if self._is_whole or not isinstance(given, dict) or not isinstance(before, dict):
            return before if given is None else given
        return {**before, **given}


def _is_test(part: Mapping[str, Any], path: str) -> bool:
    return part.get("op") == "test" and part.get("path") == path


def _is_about_labels(path: str) -> bool:
    return path in ("", "/metadata", _LABELS) or path.startswith(_LABELS + "/")


def _label_of(part: Mapping[str, Any]) -> str:
    """The label that an operation of a JSON Patch is about."""
    path = str(part.get("path"))
    escaped = path[len(_LABELS) + 1 :] if path.startswith(_LABELS + "/") else ""
    return escaped.replace("~1", "/").replace("~0", "~")


class Logged(Protocol):
    """One write as logged."""

    @property
    def place(self) -> tuple[str, str, str]:
        """Resource, namespace and name."""

    @property
    def verb(self) -> str: ...
    @property
    def is_accepted(self) -> bool: ...
    @property
    def is_unanswered(self) -> bool:
        """The server answered with an error that leaves open whether it was carried out."""

    @property
    def request(self) -> Request: ...
    @property
    def metadata(self) -> Metadata:
        """As answered."""

    @property
    def spec(self) -> object:
        """As answered."""


Effect = tuple[Metadata, object]
"""What an object's metadata and spec were after a write."""


def carried_out(ordered: Sequence[Logged]) -> dict[int, Effect]:
    """What those of the *ordered* writes left behind that were carried out without an answer, by their index."""
    known: dict[tuple[str, str, str], Logged] = {}
    waiting: dict[tuple[str, str, str], list[int]] = {}
    found: dict[int, Effect] = {}
    for index, write in enumerate(ordered):
        if write.is_unanswered:
            waiting.setdefault(write.place, []).append(index)
            continue
        if not write.is_accepted:
            continue
        candidates = waiting.pop(write.place, [])
        if write.verb.startswith("delete"):
            known.pop(write.place, None)
            continue
        before = known.get(write.place)
        for candidate in reversed(candidates):  # the last that explains it: one is enough
            effect = _effect(ordered[candidate], before, write)
            if effect is not None:
                found[candidate] = effect
                break
        known[write.place] = write
    return found


def _effect(candidate: Logged, before: Logged | None, following: Logged) -> Effect | None:
    """What *candidate* left between *before* and *following*; None if it was not carried out, or left no trace."""
    if before is None:
        is_first = candidate.verb == "create" and following.verb != "create"
        return (following.metadata, following.spec) if is_first else None
    if not candidate.request.admits(before.metadata.labels):
        return None
    effect = _left_by(candidate, before)
    return effect if _is_shown(effect, before, following) else None


def _is_shown(effect: Effect, before: Logged, following: Logged) -> bool:
    """Whether *following* met *effect*, and not what *before* had left."""
    request, (metadata, spec) = following.request, effect
    old, left = before.metadata.labels, metadata.labels
    moved, held = left != old, _holder(spec) != _holder(before.spec)
    if moved and request.leaves_labels:
        return following.metadata.labels == left
    if held and request.leaves_spec:
        return _holder(following.spec) == _holder(spec)
    if moved and request.admits(left) != request.admits(old):
        return request.admits(left)
    tested = request.tested_version
    return (moved or held) and bool(tested) and tested != before.metadata.resource_version


def _holder(spec: object) -> object:
    """Who holds a Lease."""
    return spec.get("holderIdentity") if isinstance(spec, dict) else None


def _left_by(candidate: Logged, before: Logged) -> Effect:
    request, old = candidate.request, before.metadata
    metadata = msgspec.structs.replace(
        old,
        resource_version="",
        labels=request.labels_after(old.labels),
        annotations=request.annotations_after(old.annotations),
    )
    return metadata, request.spec_after(before.spec)


def labels_just_before(write: Logged, known: dict[str, str] | None) -> dict[str, str] | None:
    """The labels that *write* met: what it left if it does not change any, else the *known* ones."""
    if known is None or not write.is_accepted or write.verb != "patch" or known == write.metadata.labels:
        return known
    return write.metadata.labels if write.request.leaves_labels else known
