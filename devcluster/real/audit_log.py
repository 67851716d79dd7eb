"""Rebuilds the writes that reached a kube-apiserver from its audit log. Pure: lines in, `Write`s out.

The log holds answers, in the order in which they were sent. Their
resourceVersions give the order of the decisions; the labels of an object before a write are those after the last one.
A write whose answer was lost counts as carried out if `lost_answers` can show that it was.
Memory: 1.4 KB a write (2.7 with whole requests).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from sys import intern
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from devcluster.plane import Write, asks_for_labels_only
from devcluster.real.lost_answers import Effect, Metadata, Request, carried_out, labels_just_before

VERBS = ("create", "update", "patch", "delete", "deletecollection")
DEFAULT_GROUPS = ("example.com", "ringleader.dev")
_LEASES = "leases.coordination.k8s.io"
_NOT_KEPT: Final = msgspec.Raw(b"{}")


def audit_policy(groups: Sequence[str] = DEFAULT_GROUPS) -> dict[str, object]:
    """Writes of Leases, ConfigMaps, Secrets and everything in *groups*, with their answers; nothing else.

    The empty group is that of pods. Events are never logged.
    """
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            {"level": "None", "users": ["system:apiserver"]},
            {"level": "None", "resources": [{"group": "", "resources": ["events"]}]},
            {
                "level": "RequestResponse",
                "verbs": list(VERBS),
                "resources": [
                    {"group": "", "resources": ["configmaps", "secrets"]},
                    {"group": "coordination.k8s.io", "resources": ["leases"]},
                    *({"group": group} for group in groups),
                ],
            },
            {"level": "None"},
        ],
    }


class Restore(msgspec.Struct, frozen=True):
    """A restore of etcd, *after* so many attempts: what was written beyond revision *to* is gone."""

    to: int
    after: int


class _User(msgspec.Struct, gc=False):
    username: str = ""
    extra: dict[str, list[str]] = {}

    @property
    def pod(self) -> str:
        """The pod that a token mounted by a kubelet names."""
        return next(iter(self.extra.get("authentication.kubernetes.io/pod-name", ())), "")


class _Reference(msgspec.Struct, gc=False, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    subresource: str = ""

    @property
    def group_resource(self) -> str:
        return f"{self.resource}.{self.api_group}" if self.api_group else self.resource


class _Status(msgspec.Struct, gc=False):
    code: int = 0
    message: str = ""


class _Details(msgspec.Struct, gc=False):
    uid: str = ""


class _Item(msgspec.Struct, gc=False):
    metadata: Metadata


class _Answer(msgspec.Struct, gc=False):
    kind: str = ""
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    details: _Details | None = None
    spec: Any = None
    items: tuple[_Item, ...] = ()


class _Operation(msgspec.Struct, gc=False, omit_defaults=True):
    op: str
    path: str
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Event(msgspec.Struct, gc=False, rename="camel"):
    stage: str
    verb: str
    stage_timestamp: datetime
    user: _User
    request_uri: str = msgspec.field(default="", name="requestURI")
    impersonated_user: _User | None = None
    object_ref: _Reference = msgspec.field(default_factory=_Reference)
    response_status: _Status = msgspec.field(default_factory=_Status)
    request_object: msgspec.Raw = msgspec.Raw(b"null")
    response_object: msgspec.Raw = msgspec.Raw(b"null")


class Attempt(msgspec.Struct, gc=False):
    """One write as logged, not yet in order. *t* is CLOCK_BOOTTIME."""

    t: float
    user: str
    verb: str
    reference: _Reference
    code: int
    message: str
    answer: _Answer
    uid: str = ""
    body: bytes = b"null"
    pod: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        name = self.reference.name or (self.metadata.name if self.is_accepted else "")
        return self.reference.group_resource, self.reference.namespace, name

    @property
    def metadata(self) -> Metadata:
        return self.answer.metadata

    @property
    def spec(self) -> object:
        return self.answer.spec

    @property
    def request(self) -> Request:
        """The request; decoded on access, because few are read."""
        return Request(self.verb, msgspec.json.decode(self.body))

    @property
    def is_unanswered(self) -> bool:
        return self.code >= 500 or self.code == 0

    @property
    def is_accepted(self) -> bool:
        return 200 <= self.code < 300

    @property
    def version(self) -> int | None:
        """The resourceVersion that it gave the object; None if it was refused or left none."""
        if not self.is_accepted or self.verb == "deletecollection" or self.answer.kind == "Status":
            return None
        return self.answer.metadata.version


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_operations = msgspec.json.Decoder(list[_Operation]).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_attempts(lines: Iterable[bytes], *, boot_offset_s: float) -> list[Attempt]:
    """The attempts to write in *lines*; *boot_offset_s* is CLOCK_BOOTTIME minus wall time."""
    return [
        attempt
        for line in lines
        if line.strip()
        for attempt in _attempts(_decode_event(line), boot_offset_s=boot_offset_s)
    ]


def _attempts(event: _Event, *, boot_offset_s: float) -> list[Attempt]:
    if event.verb not in VERBS or event.stage != "ResponseComplete" or _is_dry_run(event.request_uri):
        return []
    user = event.impersonated_user or event.user
    answer = _Answer() if bytes(event.response_object) == b"null" else _decode_answer(event.response_object)
    _keep_little(event.object_ref, answer)
    attempt = Attempt(
        t=event.stage_timestamp.timestamp() + boot_offset_s,
        user=intern(user.username),
        verb=intern(event.verb),
        reference=event.object_ref,
        code=event.response_status.code,
        message=event.response_status.message if event.response_status.code >= 400 else "",
        answer=answer,
        uid=answer.metadata.uid or (answer.details.uid if answer.details else ""),
        body=_asked(event),
        pod=intern(user.pod),
    )
    return _one_per_item(attempt) if event.verb == "deletecollection" and answer.items else [attempt]


def _keep_little(reference: _Reference, answer: _Answer) -> None:
    """A run writes an object many times: equal strings are kept once; spec and annotations are kept of Leases only."""
    metadata = answer.metadata
    for texts in (reference, metadata):
        for name in {"resource", "namespace", "name", "api_group", "uid"}.intersection(
            texts.__struct_fields__
        ):
            setattr(texts, name, intern(getattr(texts, name)))
    metadata.labels = {intern(name): intern(value) for name, value in metadata.labels.items()}
    if reference.group_resource != _LEASES:
        answer.spec, metadata.annotations = None, {}


def _asked(event: _Event) -> bytes:
    """The request's body, a Lease's as it was; any other without the values of what is not metadata."""
    body = bytes(event.request_object)
    if event.object_ref.group_resource == _LEASES:
        return body
    try:
        return _metadata_only(body)
    except msgspec.MsgspecError:  # refused by the server too
        return body


def _metadata_only(body: bytes) -> bytes:
    if body.startswith(b"["):
        operations = _decode_operations(body)
        for operation in operations:
            if operation.path and not operation.path.startswith("/metadata"):
                operation.value = _NOT_KEPT
        return msgspec.json.encode(operations)
    fields = _decode_fields(body)
    return msgspec.json.encode({name: fields[name] if name == "metadata" else _NOT_KEPT for name in fields})


def _is_dry_run(request_uri: str) -> bool:
    return "dryRun" in parse_qs(urlsplit(request_uri).query)


def _one_per_item(attempt: Attempt) -> list[Attempt]:
    """A deletecollection answers with the list of what it deleted."""
    return [
        msgspec.structs.replace(
            attempt,
            uid=item.metadata.uid,
            reference=msgspec.structs.replace(
                attempt.reference, namespace=item.metadata.namespace, name=item.metadata.name
            ),
            answer=_Answer(metadata=item.metadata),
        )
        for item in attempt.answer.items
    ]


def writes_in_order(attempts: Sequence[Attempt], *, restores: Sequence[Restore] = ()) -> list[Write]:
    """*attempts* in the order in which the server decided them, each with the labels before and after.

    After each of *restores* of etcd, oldest first, the labels before are those that the snapshot had.
    """
    writes: list[Write] = []
    keyed: list[tuple[int, Attempt]] = []
    begins = [0, *(restore.after for restore in restores), len(attempts)]
    for restore, (begin, end) in zip((None, *restores), pairwise(begins), strict=True):
        history = _History.until(keyed, restore.to) if restore else _History()
        fresh = _in_order(list(attempts[begin:end]))
        latest = _latest_possible_times([attempt for _, attempt in fresh])
        for index, effect in carried_out([attempt for _, attempt in fresh]).items():
            fresh[index] = fresh[index][0], _carried_out(fresh[index][1], effect)
        for (_, attempt), t in zip(fresh, latest, strict=True):
            writes.append(history.write(attempt, seq=len(writes) + 1, t=t))
        keyed += fresh
    return writes


def _carried_out(attempt: Attempt, effect: Effect) -> Attempt:
    """*attempt* as it would have been answered."""
    metadata, spec = effect
    return msgspec.structs.replace(
        attempt,
        code=200,
        message=f"carried out, although the answer was {attempt.code}: {attempt.message}",
        answer=_Answer(kind="Found", metadata=metadata, spec=spec),
        uid=metadata.uid,
    )


def _in_order(attempts: list[Attempt]) -> list[tuple[int, Attempt]]:
    """*attempts* in order, each with the server's version at which it was decided.

    By resourceVersion; what has none (refusals, deletions) comes after what was answered before it, and a deletion
    after every write to the same object.
    """
    attempts.sort(key=lambda attempt: attempt.t)
    last_of_object: dict[str, int] = {}
    for attempt in attempts:
        if attempt.version is not None and attempt.uid:
            last_of_object[attempt.uid] = max(attempt.version, last_of_object.get(attempt.uid, 0))
    newest = 0
    keyed: list[tuple[int, bool, Attempt]] = []
    for attempt in attempts:
        if attempt.version is not None:
            newest = max(newest, attempt.version)
            keyed.append((attempt.version, False, attempt))
        elif attempt.is_accepted:
            keyed.append((max(newest, last_of_object.get(attempt.uid, 0)), True, attempt))
        else:
            keyed.append((newest, True, attempt))
    keyed.sort(key=lambda entry: entry[:2])  # stable: otherwise as they were answered
    return [(version, attempt) for version, _, attempt in keyed]


def _latest_possible_times(ordered: Sequence[Attempt]) -> list[float]:
    """An answer is logged after the decision: none was decided later than the next one was logged."""
    times: list[float] = []
    bound = float("inf")
    for attempt in reversed(ordered):
        bound = min(bound, attempt.t)
        times.append(bound)
    return times[::-1]


class _History:
    """The labels of every object, as of the writes replayed so far."""

    def __init__(self) -> None:
        self._labels: dict[str, dict[str, str]] = {}
        self._uids: dict[tuple[str, str, str], str] = {}

    @classmethod
    def until(cls, keyed: Iterable[tuple[int, Attempt]], version: int) -> _History:
        """The labels as they were at *version*."""
        history = cls()
        for decided_at, attempt in keyed:
            if decided_at <= version:
                history.write(attempt, seq=0, t=0.0)
        return history

    def write(self, attempt: Attempt, *, seq: int, t: float) -> Write:
        """The write that *attempt* was; its effect is part of the history from now on."""
        reference, metadata, place = attempt.reference, attempt.metadata, attempt.place
        uid = (attempt.uid if attempt.is_accepted else "") or self._uids.get(place, "")
        before = labels_just_before(attempt, self._labels.get(uid))
        after = self._apply(attempt, place, uid) if attempt.is_accepted else before
        return Write(
            seq=seq,
            t=t,
            user=attempt.user,
            verb=attempt.verb,
            resource=place[0],
            namespace=place[1],
            name=place[2],
            subresource=reference.subresource,
            uid=uid,
            resource_version=metadata.resource_version if attempt.version is not None else "",
            code=attempt.code,
            labels_before=before,
            labels_after=after,
            message=attempt.message,
            object=_lease_of(attempt),
            only_labels=attempt.verb == "patch" and asks_for_labels_only(attempt.body),
            pod=attempt.pod,
            controller=metadata.controller if attempt.verb == "create" and attempt.is_accepted else "",
        )

    def _apply(self, attempt: Attempt, place: tuple[str, str, str], uid: str) -> dict[str, str] | None:
        if _leaves_nothing(attempt):
            self._labels.pop(uid, None)
            self._uids.pop(place, None)
            return None
        self._labels[uid] = attempt.metadata.labels
        self._uids[place] = uid
        return attempt.metadata.labels


def _leaves_nothing(attempt: Attempt) -> bool:
    if attempt.verb in ("delete", "deletecollection"):
        return not attempt.metadata.finalizers  # a Status has none either
    return attempt.metadata.is_gone


def _lease_of(attempt: Attempt) -> dict[str, object] | None:
    if attempt.place[0] != _LEASES or not attempt.is_accepted or attempt.answer.kind in ("", "Status"):
        return None
    return {"annotations": attempt.metadata.annotations, "spec": attempt.spec}
