"""AdmissionReview as bytes: the request, and the one answer there is. Pure.

The answer allows, always. An API server that cannot apply the patch of an answer refuses the object whatever the
failure policy says, so a patch holds only what fits the very object that was sent.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.decoding import UNREADABLE, decode_pruned, meta_of
from kubeio.labels import json_pointer
from kubeio.models import GroupResource, Meta
from kubeio.patch import JsonPatch
from kubeio.protocol import FIRST_TURN
from sharder.errors import SharderError

if TYPE_CHECKING:
    from kubeio.protocol import RingKeys

VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"


class BadReview(SharderError):
    """Request body that is no AdmissionReview of a supported version."""


class Skipped(StrEnum):
    """Reason to leave an object without a label; the unowned watch shows it to the sharder then."""

    NOT_A_CREATE = "not a create"
    GENERATED_NAME = "name not known yet"
    ALREADY_LABELLED = "already labelled"
    MAY_BRING_KEYS = "came with keys of the ring, or managedFields do not tell"
    NOT_SELECTED = "namespace not selected"
    NOT_OURS = "not distributed"
    WAITS = "may not be assigned now"
    NO_EVIDENCE = "owner not shown to be held"
    LATE = "no decision in time"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Labelled:
    """The object is created with *to* as its owner."""

    to: str


Verdict = Labelled | Skipped


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """One request. *resource* is `websites.example.com`; *meta* is None if the object's metadata cannot be read.

    *managed*: its managedFields; None if they are missing, too many, or may be dropped for the object's size.
    """

    uid: str
    operation: str
    resource: str
    subresource: str
    meta: Meta | None
    managed: bytes | None = None

    def may_bring(self, keys: RingKeys) -> bool:
        """Whether the guard could take keys of the ring on this object for its creator's (docs/adr/0035).

        The API server lists in managedFields what a request brings, before it calls webhooks.
        """
        managed = self.managed
        ours = (keys.shard, keys.drain, keys.turn)
        return managed is None or any(f'"f:{key}"'.encode() in managed for key in ours)


class _Request(msgspec.Struct, gc=False, rename="camel"):
    uid: str
    operation: str
    resource: GroupResource
    sub_resource: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Managed(msgspec.Struct, gc=False):
    managed_fields: list[msgspec.Raw] = msgspec.field(default_factory=list, name="managedFields")


class _HasManaged(msgspec.Struct, gc=False):
    metadata: _Managed


class _Review(msgspec.Struct, gc=False, rename="camel"):
    api_version: str
    kind: str
    request: _Request


MAX_MANAGED: Final = 100
"""Entries of managedFields that the guard reads; an object that is new has one."""
MAX_TRACKED_BYTES: Final = 1 << 20
"""The API server drops managedFields of an object that etcd finds too large with them (by default above 1.5 MiB)."""

_managed_fields = msgspec.json.Decoder(_HasManaged).decode
_review = msgspec.json.Decoder(_Review)
_encode = msgspec.json.Encoder().encode


def read_review(body: bytes) -> AdmissionRequest:
    """Parse the API server's request. Raises BadReview."""
    try:
        review = decode_pruned(_review.decode, body)
    except UNREADABLE as error:
        raise BadReview(f"not an AdmissionReview ({error})") from error
    if (review.api_version, review.kind) != (VERSION, KIND):
        raise BadReview(f"{review.api_version} {review.kind} is not spoken here; {VERSION} {KIND} is")
    request = review.request
    name = str(request.resource)
    subresource = request.sub_resource
    return AdmissionRequest(
        request.uid, request.operation, name, subresource, _meta(request), _managed(request)
    )


def _meta(request: _Request) -> Meta | None:
    try:
        meta = meta_of(bytes(request.object))
    except UNREADABLE:
        return None
    # a body without a namespace gets the one of the request's path
    return msgspec.structs.replace(meta, namespace=request.namespace)


def _managed(request: _Request) -> bytes | None:
    raw = bytes(request.object)
    try:
        entries = decode_pruned(_managed_fields, raw).metadata.managed_fields
    except UNREADABLE:
        return None
    is_complete = 0 < len(entries) <= MAX_MANAGED and len(raw) <= MAX_TRACKED_BYTES
    return b",".join(map(bytes, entries)) if is_complete else None


def write_answer(asked: AdmissionRequest, verdict: Verdict, *, keys: RingKeys) -> bytes:
    """The review that answers *asked*."""
    response: dict[str, object] = {"uid": asked.uid, "allowed": True}
    if isinstance(verdict, Labelled) and asked.meta is not None:
        patch = label_patch(asked.meta, verdict.to, keys=keys)
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
    return _encode({"apiVersion": VERSION, "kind": KIND, "response": response})


def label_patch(meta: Meta, to: str, *, keys: RingKeys) -> JsonPatch:
    """Gives the object *to* as its owner, and the first turn."""
    if not meta.annotations:
        patch = JsonPatch().add("/metadata/annotations", {keys.turn: FIRST_TURN})
    else:
        patch = JsonPatch().add(json_pointer("metadata", "annotations", keys.turn), FIRST_TURN)
    if not meta.labels:
        return patch.add("/metadata/labels", {keys.shard: to})
    return patch.add(json_pointer("metadata", "labels", keys.shard), to)
