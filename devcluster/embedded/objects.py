"""What happens to an object between the wire and the store: reading it, the rules of metadata, status and
generation, schema, and the bytes that are stored. Pure: no store, no HTTP; the time and fresh uids come in.

`writes` calls this for every create, replace and patch.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import yaml

from devcluster.embedded import protobuf
from devcluster.embedded.managed_fields import Entries, sent_entries
from devcluster.embedded.registry import Kind, Version
from devcluster.embedded.selectors import is_label_key, is_label_value
from devcluster.embedded.status import Cause, StatusSubject, bad_request, conflict, invalid, unsupported_media
from devcluster.embedded.store import Entry

Doc = dict[str, Any]
_SUBDOMAIN = re.compile(r"\A[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_LABEL = re.compile(r"\A[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_ANNOTATIONS_MAX_BYTES: Final = 256 * 1024


class OwnerReference(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """An owner, as stored."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """ObjectMeta as stored: what is not named here is dropped, as the real server drops it."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None


class Draft:
    """An object before it is stored: metadata decoded, the rest as a dict without apiVersion, kind and metadata.

    *managed* has its managedFields as they are stored; *sent* those that the client sent, None without any.
    """

    __slots__ = ("managed", "meta", "rest", "sent")

    def __init__(
        self, meta: Metadata, rest: Doc, *, managed: bytes = b"", sent: Entries | None = None
    ) -> None:
        self.meta = meta
        self.rest = rest
        self.managed = managed
        self.sent = sent

    def encode(self, api_version: str, kind: str) -> tuple[bytes, int]:
        """The object without managedFields, and where its metadata end."""
        metadata = msgspec.json.encode(self.meta)
        head = b'{"apiVersion":"%b","kind":"%b","metadata":%b' % (
            api_version.encode(),
            kind.encode(),
            metadata,
        )
        rest = msgspec.json.encode(self.rest)
        return b"%b%b%b" % (head, b"," if self.rest else b"", rest[1:]), len(head) - 1


def decode_body(body: bytes, content_type: str) -> Doc:
    """The object in a request's body. Raises: 400 malformed, 415 not JSON."""
    if content_type == protobuf.CONTENT_TYPE:
        return protobuf.decode_protobuf(body)
    if content_type not in ("", "application/json", "application/yaml"):
        raise unsupported_media(f"the body must be application/json or application/yaml, not {content_type}")
    doc = decode_text(body, is_yaml=content_type == "application/yaml")
    if not isinstance(doc, dict):
        raise bad_request("the object provided is unrecognized: not an object")
    return doc


def decode_text(body: bytes, *, is_yaml: bool) -> Any:
    """JSON, or YAML as JSON would have it (times stay strings). Raises: 400."""
    try:
        return yaml.load(body, _JsonLoader) if is_yaml else msgspec.json.decode(body)  # noqa: S506 - a safe one
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


class _JsonLoader(yaml.SafeLoader):
    """Knows no timestamps."""


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_draft(doc: Doc, kind: Kind, version: str) -> Draft:
    """*doc* taken apart. Raises: 400 when it is of another kind or its metadata has wrong types."""
    expected = kind.api_version(version)
    api_version, named = doc.pop("apiVersion", None), doc.pop("kind", None)
    if not kind.builtin and not named:
        raise bad_request("Object 'Kind' is missing")
    if (api_version or expected) != expected:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )
    if (named or kind.kind) != kind.kind:
        if not kind.builtin:
            subject = StatusSubject(kind.group, kind.plural, str(named), "")
            raise invalid(subject, [Cause("kind", f'"{named}": must be {kind.kind}')])
        raise bad_request(f"{named} in version {version!r} cannot be handled as a {kind.kind}")
    meta = doc.pop("metadata", None) or {}
    try:
        sent = sent_entries(meta.pop("managedFields", None) or []) if isinstance(meta, dict) else None
        return Draft(_metadata(meta), doc, sent=sent)
    except msgspec.ValidationError as error:
        raise bad_request(f"{kind.kind} in version is invalid: metadata: {error}") from error


def stored_draft(entry: Entry) -> Draft:
    """A stored version taken apart, in the form in which it is stored."""
    doc = entry.decoded()
    del doc["apiVersion"], doc["kind"]
    return Draft(msgspec.convert(doc.pop("metadata"), Metadata), doc, managed=entry.managed)


def _metadata(meta: Any) -> Metadata:
    read = msgspec.convert(meta, Metadata)
    read.labels = read.labels or None
    read.annotations = read.annotations or None
    read.owner_references = read.owner_references or None
    read.finalizers = read.finalizers or None
    return read


def prepare_create(
    kind: Kind, version: Version, draft: Draft, *, namespace: str, uid: str, suffix: str, now: str
) -> list[str]:
    """Turn *draft* into a new object in *namespace*, in place; the fields that the schema dropped.

    Raises: 400 and 422 for what no object may be.
    """
    meta = draft.meta
    if meta.resource_version not in ("", "0"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    if not meta.name and meta.generate_name:
        meta.name = meta.generate_name[:58] + suffix
    _place(kind, meta, namespace)
    meta.uid = uid
    meta.resource_version = ""
    meta.creation_timestamp = now
    meta.deletion_timestamp = None
    meta.deletion_grace_period_seconds = None
    meta.generation = 1 if kind.generation else 0
    if version.status:
        draft.rest.pop("status", None)
    dropped = _conform(version, draft)
    _validate(kind, version, draft, None)
    if kind.complete is not None:
        draft.rest = kind.complete(draft.rest)
    return dropped


def prepare_update(
    kind: Kind, version: Version, old: Draft, new: Draft, *, subresource: str, is_patch: bool
) -> list[str]:
    """Turn *new* into the successor of *old*, in place; the fields that the schema dropped.

    *old* must not be changed afterwards: parts of it go into *new*.
    Raises: 400, 409 (resourceVersion, uid) and 422.
    """
    meta, before = new.meta, old.meta
    if meta.name != before.name:
        raise bad_request(
            f"the name of the object ({meta.name}) does not match the name on the URL ({before.name})"
        )
    _check_version(kind, before, meta, is_patch=is_patch)
    if subresource == "status":
        status = new.rest.get("status")
        new.rest = {**old.rest, "status": status} if status is not None else {**old.rest}
        if status is None:
            new.rest.pop("status", None)
        meta = new.meta = msgspec.structs.replace(before)
    elif version.status:
        new.rest.pop("status", None)
        if "status" in old.rest:
            new.rest["status"] = old.rest["status"]
    _place(kind, meta, before.namespace)
    meta.uid = before.uid
    meta.resource_version = before.resource_version
    meta.generate_name = before.generate_name
    meta.creation_timestamp = before.creation_timestamp
    meta.deletion_timestamp = before.deletion_timestamp
    meta.deletion_grace_period_seconds = before.deletion_grace_period_seconds
    meta.generation = before.generation
    dropped: list[str] = []
    if new.rest != old.rest:
        dropped = _conform(version, new)
        if kind.generation and _spec_differs(version, old.rest, new.rest):
            meta.generation += 1
        _validate(kind, version, new, old)
        if kind.complete is not None:
            new.rest = kind.complete(new.rest)
    elif meta != before:
        _validate_metadata(kind, meta, before)
    return dropped


def _place(kind: Kind, meta: Metadata, namespace: str) -> None:
    if meta.namespace and meta.namespace != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta.namespace = namespace
    if kind.resource == "namespaces":
        meta.labels = {**(meta.labels or {}), "kubernetes.io/metadata.name": meta.name}


def _check_version(kind: Kind, before: Metadata, meta: Metadata, *, is_patch: bool) -> None:
    subject = kind.subject(before.name)
    if meta.uid and meta.uid != before.uid:
        if is_patch:
            raise invalid(subject, [Cause("metadata.uid", f'"{meta.uid}": field is immutable')])
        raise conflict(
            subject,
            f"Precondition failed: UID in precondition: {meta.uid}, UID in object meta: {before.uid}",
        )
    if meta.resource_version in ("", "0"):
        if not is_patch and not kind.unconditional_update:
            raise invalid(
                subject, [Cause("metadata.resourceVersion", "0x0: must be specified for an update")]
            )
    elif not meta.resource_version.isdigit():
        raise invalid(subject, [Cause("metadata.resourceVersion", f'"{meta.resource_version}"')])
    elif meta.resource_version != before.resource_version:
        raise conflict(subject)


def _spec_differs(version: Version, old: Doc, new: Doc) -> bool:
    """Whether anything but metadata (and status, where that is a subresource) changed."""
    if not version.status:
        return old != new
    return {k: v for k, v in old.items() if k != "status"} != {k: v for k, v in new.items() if k != "status"}


def _conform(version: Version, draft: Draft) -> list[str]:
    if version.schema is None:
        return []
    dropped = version.schema.prune(draft.rest)
    version.schema.default(draft.rest)
    return dropped


def _validate(kind: Kind, version: Version, draft: Draft, old: Draft | None) -> None:
    _validate_metadata(kind, draft.meta, old.meta if old else None)
    causes = version.schema.errors(draft.rest) if version.schema else []
    if causes and kind.builtin:
        raise bad_request(
            f'{kind.kind} in version "{version.name}" cannot be handled as a {kind.kind}: '
            f"{causes[0].field}: {causes[0].message}"
        )
    if not causes and kind.check is not None:
        causes = kind.check(draft.meta.name, draft.rest)
    if not causes and old is not None and kind.check_update is not None:
        causes = kind.check_update(old.rest, draft.rest)
    if causes:
        raise invalid(kind.subject(draft.meta.name), causes)


def _validate_metadata(kind: Kind, meta: Metadata, before: Metadata | None) -> None:
    causes: list[Cause] = []
    if before is None:
        causes += _name_causes(kind, meta)
    if meta.labels and (before is None or meta.labels != before.labels):
        causes += _label_causes(meta.labels)
    if meta.annotations and (before is None or meta.annotations != before.annotations):
        causes += _annotation_causes(meta.annotations)
    if meta.owner_references and (before is None or meta.owner_references != before.owner_references):
        causes += _owner_causes(meta.owner_references)
    if meta.finalizers and (before is None or meta.finalizers != before.finalizers):
        causes += _finalizer_causes(meta.finalizers)
        if meta.deletion_timestamp and (
            added := set(meta.finalizers) - set((before and before.finalizers) or [])
        ):
            message = "no new finalizers can be added if the object is being deleted, found new finalizers "
            message += ", ".join(sorted(added))
            causes.append(Cause("metadata.finalizers", message, "FieldValueForbidden"))
    if causes:
        raise invalid(kind.subject(meta.name), causes)


def _name_causes(kind: Kind, meta: Metadata) -> list[Cause]:
    if not meta.name:
        return [Cause("metadata.name", "name or generateName is required", "FieldValueRequired")]
    valid: object
    if kind.plural == "namespaces" and not kind.group:
        valid, rule = (
            len(meta.name) <= 63 and _LABEL.match(meta.name),
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'",
        )
    elif kind.group == "rbac.authorization.k8s.io":
        valid, rule = (
            meta.name not in (".", "..") and not set("/%") & set(meta.name),
            "may not contain '/' or '%'",
        )
    else:
        valid, rule = (
            len(meta.name) <= 253 and _SUBDOMAIN.match(meta.name),
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'",
        )
    return [] if valid else [Cause("metadata.name", f'"{meta.name}": {rule}')]


def _label_causes(labels: dict[str, str]) -> list[Cause]:
    causes = []
    for key, value in labels.items():
        if not is_label_key(key):
            causes.append(Cause("metadata.labels", f'"{key}": name part must be a qualified name'))
        if not is_label_value(value):
            causes.append(Cause("metadata.labels", f'"{value}": a valid label must be at most 63 characters'))
    return causes


def _annotation_causes(annotations: dict[str, str]) -> list[Cause]:
    causes = [
        Cause("metadata.annotations", f'"{key}": name part must be a qualified name')
        for key in annotations
        if not is_label_key(key.lower())
    ]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_MAX_BYTES:
        causes.append(
            Cause(
                "metadata.annotations",
                f"must have at most {_ANNOTATIONS_MAX_BYTES} bytes",
                "FieldValueTooLong",
            )
        )
    return causes


def _owner_causes(owners: list[OwnerReference]) -> list[Cause]:
    causes = []
    for owner in owners:
        causes += [
            Cause(f"metadata.ownerReferences.{field}", f"{field} must not be empty")
            for field, value in (
                ("apiVersion", owner.api_version),
                ("kind", owner.kind),
                ("name", owner.name),
                ("uid", owner.uid),
            )
            if not value
        ]
    if sum(1 for owner in owners if owner.controller) > 1:
        causes.append(Cause("metadata.ownerReferences", "Only one reference can have Controller set to true"))
    return causes


def _finalizer_causes(finalizers: list[str]) -> list[Cause]:
    return [
        Cause("metadata.finalizers", f'"{name}": name part must be a qualified name')
        for name in finalizers
        if not is_label_key(name)
    ]
