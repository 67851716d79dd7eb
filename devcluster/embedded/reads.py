"""GET and LIST: one object, or a page of a consistent snapshot. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from devcluster.embedded import table
from devcluster.embedded.paths import Target
from devcluster.embedded.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)
from devcluster.embedded.shapes import Shape, decoded_as, item, partial, whole
from devcluster.embedded.status import (
    Cause,
    Refusal,
    StatusSubject,
    bad_request,
    expired,
    invalid,
    not_found,
    too_large,
)
from devcluster.embedded.store import Entry, Key

_CONTINUE_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
    "the results. Continuing with the provided token results in an inconsistent list - objects that were "
    "created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a kind are meant: namespace, labels, fields."""

    target: Target
    labels: LabelSelector
    fields: FieldSelector

    @property
    def is_everything(self) -> bool:
        return not self.labels and not self.fields

    def matches(self, entry: Entry) -> bool:
        namespace = self.target.namespace
        if namespace and entry.namespace != namespace:
            return False
        if self.labels and not self.labels.matches(entry.labels):
            return False
        return not self.fields or self.fields.matches(lambda path: self._value(entry, path))

    def _value(self, entry: Entry, path: str) -> str:
        if path == "metadata.name":
            return entry.name
        if path == "metadata.namespace":
            return entry.namespace
        value: object = decoded_as(self.target.kind, self.target.version, entry)
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, dict):
            value = value.get("component")
        return "" if value is None else str(value)


def selection(target: Target, query: dict[str, str]) -> Selection:
    """The selectors of a list, watch or deletecollection. Raises: 400."""
    fields = parse_field_selector(query.get("fieldSelector", ""), target.kind.fields)
    if target.name:
        fields = parse_field_selector(f"metadata.name={target.name}", target.kind.fields)
    return Selection(target, parse_label_selector(query.get("labelSelector", "")), fields)


class Continue(msgspec.Struct, frozen=True, array_like=True):
    """Start of the next page, its resourceVersion (-1: the current one), and the objects that remain."""

    version: int
    namespace: str
    name: str
    remaining: int = -1

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def parse_continue(token: str) -> Continue:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=Continue)
    except (binascii.Error, msgspec.DecodeError, UnicodeEncodeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def get(target: Target, shape: Shape) -> bytes:
    """One object. Raises: 404."""
    entry = target.kind.collection.get((target.namespace, target.name))
    if entry is None:
        raise not_found(target.kind.subject(target.name))
    return one(target, entry, shape)


def one(target: Target, entry: Entry, shape: Shape, *, include: str = "Metadata") -> bytes:
    """*entry* in the requested shape."""
    match shape:
        case Shape.OBJECT:
            return whole(target.kind, target.version, entry)
        case Shape.PARTIAL:
            return partial(entry)
        case Shape.TABLE:
            return table.encode(target.kind, target.version, [entry], str(entry.version), include=include)


def list_page(target: Target, query: dict[str, str], shape: Shape) -> bytes:
    """A page of the selected objects.

    Raises: 400 for parameters that do not fit together, 410 for a version that is gone, 504 for a future one.
    """
    collection = target.kind.collection
    wanted = selection(target, query)
    limit, version, after, remaining = _snapshot(target, query)
    try:
        entries = collection.at(version, after=after, namespace=target.namespace)
    except Refusal as error:
        if after is None or error.code != 410:
            raise
        token = Continue(-1, *after).encode()
        raise expired(_CONTINUE_TOO_OLD, continue_=token) from error
    matching = entries if wanted.is_everything else filter(wanted.matches, entries)
    items: list[Entry] = []
    more = False
    for entry in matching:
        if limit and len(items) == limit:
            more = True
            break
        items.append(entry)
    token, left = "", None
    if more:
        if wanted.is_everything:
            left = remaining - limit if remaining >= 0 else 1 + sum(1 for _ in matching)
        token = Continue(version, *items[-1].key, -1 if left is None else left).encode()
    return _encode_list(
        target,
        items,
        shape,
        version=version,
        token=token,
        left=left,
        include=query.get("includeObject", "Metadata"),
    )


def _snapshot(target: Target, query: dict[str, str]) -> tuple[int, int, Key | None, int]:
    """(limit, version, first key, objects left) of a list."""
    current = target.kind.collection.versions.current
    limit = _limit(query.get("limit", ""))
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if token := query.get("continue"):
        if version:
            raise bad_request("specifying resource version is not allowed when using continue")
        if match:
            raise bad_request("resourceVersionMatch is forbidden with continue")
        start = parse_continue(token)
        at = current if start.version < 0 else start.version
        return limit, at, (start.namespace, start.name), start.remaining
    check_version_match(version, match)
    number = parse_version(version)
    if number > current:
        raise too_large(number, current)
    if number and (match == "Exact" or (not match and limit)):
        return limit, number, None, -1
    if number == 0 and version:
        limit = 0
    if not version:
        target.kind.collection.confirm()
    return limit, current, None, -1


def _limit(text: str) -> int:
    if text and not text.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or 0)


def parse_version(text: str) -> int:
    """A resourceVersion parameter as a number; none is 0. Raises: 400."""
    if text and not text.isdigit():
        raise bad_request(f"invalid resource version {text!r}: strconv.ParseUint: invalid syntax")
    return int(text or 0)


def check_version_match(version: str, match: str) -> None:
    """Raises: 422 for a resourceVersionMatch that does not fit."""
    if not match:
        return
    wrong, reason = "", "FieldValueForbidden"
    if match not in ("Exact", "NotOlderThan"):
        wrong = f'"{match}": supported values: "Exact", "NotOlderThan", ""'
        reason = "FieldValueNotSupported"
    elif not version:
        wrong = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match == "Exact" and version == "0":
        wrong = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if wrong:
        subject = StatusSubject("meta.k8s.io", "listoptions", "ListOptions", "")
        raise invalid(subject, [Cause("resourceVersionMatch", wrong, reason)])


def _encode_list(
    target: Target,
    items: list[Entry],
    shape: Shape,
    *,
    version: int,
    token: str,
    left: int | None,
    include: str,
) -> bytes:
    kind = target.kind
    if shape is Shape.TABLE:
        return table.encode(
            kind, target.version, items, str(version), token=token, remaining=left, include=include
        )
    metadata = list_metadata(str(version), token, left)
    if shape is Shape.PARTIAL:
        head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":%s,"items":['
        return head % metadata + b",".join([partial(entry) for entry in items]) + b"]}"
    head = b'{"apiVersion":"%s","kind":"%s","metadata":%s,"items":[' % (
        kind.api_version(target.version.name).encode(),
        kind.list_kind.encode(),
        metadata,
    )
    return head + b",".join([item(kind, target.version, entry) for entry in items]) + b"]}"


def list_metadata(version: str, token: str = "", left: int | None = None) -> bytes:
    """ListMeta."""
    metadata: dict[str, object] = {"resourceVersion": version}
    if token:
        metadata["continue"] = token
    if left is not None:
        metadata["remainingItemCount"] = left
    return msgspec.json.encode(metadata)
