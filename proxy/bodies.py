"""Bodies of writes: what they say of their object, and labels put into them. Pure.

JSON keeps every byte but those of the maps on the way to the labels. A body in another encoding is refused: a client
then sends JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from kubeio.models import OwnerReference
from proxy.patches import PATCHES, Patch
from proxy.protobuf import NO_ANNOTATIONS, Malformed, Message, ObjectHead

JSON: Final = "application/json"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
APPLY: Final = "application/apply-patch+yaml"


class UnsupportedEncoding(ValueError):
    """A body in an encoding that takes no label; the text says what to send."""


class Body(Protocol):
    """An object, or a change of one, in a body."""

    @property
    def head(self) -> ObjectHead | None:
        """What an object says of itself; None: the body is a change."""

    def with_labels(
        self, labels: Mapping[str, str], annotations: Mapping[str, str | None] = NO_ANNOTATIONS
    ) -> bytes:
        """The body with *labels* and *annotations* beside, or instead of, those that it has; None: without it.

        Raises: RemovesLabels, Malformed.
        """


def read_body(content: bytes, content_type: str) -> Body:
    """The object or the change in *content*. Raises: UnsupportedEncoding; Malformed if it is neither."""
    encoding = _encoding(content_type)
    return Patch(content, encoding) if encoding in PATCHES else read_object(content, content_type)


def read_object(content: bytes, content_type: str) -> JsonBody | Message:
    """The object in *content*. Raises: UnsupportedEncoding; Malformed if it is no object."""
    encoding = _encoding(content_type)
    if encoding == PROTOBUF:
        return Message(content)
    if encoding in (JSON, ""):
        return JsonBody(content)
    if encoding == APPLY:
        if not content.lstrip().startswith(b"{"):
            raise UnsupportedEncoding("apply takes JSON here, which is YAML too")
        return JsonBody(content)
    raise UnsupportedEncoding(f"{encoding} is not supported here; send {JSON} or {PROTOBUF}")


def _encoding(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


class JsonBody:
    """An object as JSON. Raises Malformed when it is made."""

    def __init__(self, content: bytes) -> None:
        try:
            self._fields = _raw_fields(content)
            self._metadata = _maybe_fields(self._fields.get("metadata"))
            self._labels = _texts(self._metadata.get("labels", b"null")) or {}
            self.head = ObjectHead(
                kind=_text(self._fields.get("kind")),
                name=_text(self._metadata.get("name")),
                generate_name=_text(self._metadata.get("generateName")),
                controller=_controller(self._metadata.get("ownerReferences")),
                labels=self._labels,
            )
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise Malformed(f"the body is no JSON object: {error}") from None

    def with_labels(
        self, labels: Mapping[str, str], annotations: Mapping[str, str | None] = NO_ANNOTATIONS
    ) -> bytes:
        """The body with *labels* and *annotations* beside, or instead of, those that it has; None: without it."""
        metadata = self._metadata | {"labels": _raw(self._labels | dict(labels))}
        if annotations:
            try:
                own = _maybe_fields(metadata.get("annotations"))
            except msgspec.MsgspecError as error:
                raise Malformed(f"the body's annotations are no map: {error}") from None
            kept = {name: text for name, text in own.items() if name not in annotations}
            more = {name: _raw(text) for name, text in annotations.items() if text is not None}
            metadata["annotations"] = _raw(kept | more)
        return msgspec.json.encode(self._fields | {"metadata": msgspec.Raw(msgspec.json.encode(metadata))})


class _Reference(msgspec.Struct, gc=False, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str = ""
    controller: bool | None = None


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


_raw_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raw_or_null: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_texts: Final = msgspec.json.Decoder(dict[str, str] | None).decode
_text_or_null: Final = msgspec.json.Decoder(str | None).decode
_references: Final = msgspec.json.Decoder(list[_Reference] | None).decode


def _maybe_fields(raw: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    return {} if raw is None else _raw_or_null(raw) or {}


def _text(raw: msgspec.Raw | None) -> str:
    return "" if raw is None else _text_or_null(raw) or ""


def _controller(raw: msgspec.Raw | None) -> OwnerReference | None:
    references = [] if raw is None else _references(raw) or []
    found = next((each for each in references if each.controller), None)
    if found is None:
        return None
    return OwnerReference(
        found.api_version or "", found.kind or "", found.name or "", found.uid, controller=True
    )
