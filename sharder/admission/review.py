"""AdmissionReview as bytes: what was asked, and the one answer there is. Pure.

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
from kubeio.labels import FIRST_TURN, json_pointer
from kubeio.models import Meta
from kubeio.patch import JsonPatch
from sharder.errors import SharderError

if TYPE_CHECKING:
    from kubeio.labels import RingKeys

VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"


class BadReview(SharderError):
    """What came is no AdmissionReview of a version that is spoken here."""


class Left(StrEnum):
    """Why an object is left without a label; the unowned watch shows it to the sharder then."""

    NOT_A_CREATE = "not a create"
    GENERATED_NAME = "name not known yet"
    ALREADY_LABELLED = "already labelled"
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


Verdict = Labelled | Left


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. *resource* is `websites.example.com`; *meta* is None if the object's metadata cannot be read."""

    uid: str
    operation: str
    resource: str
    subresource: str
    meta: Meta | None


class _GroupResource(msgspec.Struct, gc=False):
    resource: str
    group: str = ""


class _Request(msgspec.Struct, gc=False, rename="camel"):
    uid: str
    operation: str
    resource: _GroupResource
    sub_resource: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, gc=False, rename="camel"):
    api_version: str
    kind: str
    request: _Request


_review = msgspec.json.Decoder(_Review)
_encode = msgspec.json.Encoder().encode


def read_review(body: bytes) -> Asked:
    """What the API server asks. Raises BadReview."""
    try:
        review = decode_pruned(_review.decode, body)
    except UNREADABLE as error:
        raise BadReview(f"not an AdmissionReview ({error})") from error
    if (review.api_version, review.kind) != (VERSION, KIND):
        raise BadReview(f"{review.api_version} {review.kind} is not spoken here; {VERSION} {KIND} is")
    request = review.request
    kind = request.resource
    name = f"{kind.resource}.{kind.group}" if kind.group else kind.resource
    return Asked(request.uid, request.operation, name, request.sub_resource, _meta(request))


def _meta(request: _Request) -> Meta | None:
    try:
        meta = meta_of(bytes(request.object))
    except UNREADABLE:
        return None
    # a body without a namespace gets the one of the request's path
    return msgspec.structs.replace(meta, namespace=request.namespace)


def write_answer(asked: Asked, verdict: Verdict, *, keys: RingKeys) -> bytes:
    """The review that answers *asked*."""
    response: dict[str, object] = {"uid": asked.uid, "allowed": True}
    if isinstance(verdict, Labelled) and asked.meta is not None:
        patch = label_patch(asked.meta, verdict.to, keys=keys)
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
    return _encode({"apiVersion": VERSION, "kind": KIND, "response": response})


def label_patch(meta: Meta, to: str, *, keys: RingKeys) -> JsonPatch:
    """Gives the object *to* as its owner, and the first turn; a drain label that came with it is removed."""
    if not meta.annotations:
        patch = JsonPatch().add("/metadata/annotations", {keys.turn: FIRST_TURN})
    else:
        patch = JsonPatch().add(json_pointer("metadata", "annotations", keys.turn), FIRST_TURN)
    if not meta.labels:
        return patch.add("/metadata/labels", {keys.shard: to})
    patch = patch.add(json_pointer("metadata", "labels", keys.shard), to)
    if keys.drain in meta.labels:
        patch = patch.remove(json_pointer("metadata", "labels", keys.drain))
    return patch
