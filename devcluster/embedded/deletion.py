"""How an object is to be deleted: options, preconditions, and the finalizers that hold it meanwhile. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from devcluster.embedded import protobuf
from devcluster.embedded.objects import (
    Metadata,
)
from devcluster.embedded.registry import Kind
from devcluster.embedded.status import (
    Cause,
    StatusSubject,
    bad_request,
    conflict,
    invalid,
)
from devcluster.embedded.store import Entry

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
CRD_CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"


class Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
    """What of meta.v1 DeleteOptions is served."""

    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    grace_period_seconds: int | None = None
    dry_run: list[str] | None = None


def parse_delete_options(body: bytes, query: dict[str, str]) -> DeleteOptions:
    """Options of the body and the query. Raises: 400."""
    try:
        if protobuf.is_protobuf(body):
            options = msgspec.convert(protobuf.decode_protobuf(body), DeleteOptions)
        else:
            options = msgspec.json.decode(body, type=DeleteOptions) if body.strip() else DeleteOptions()
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding DeleteOptions: {error}") from error
    if policy := query.get("propagationPolicy"):
        options.propagation_policy = policy
    if options.orphan_dependents is not None and not options.propagation_policy:
        options.propagation_policy = "Orphan" if options.orphan_dependents else "Background"
    if options.propagation_policy not in (None, "", "Orphan", "Background", "Foreground"):
        served = '"Background", "Foreground", "Orphan"'
        message = f'"{options.propagation_policy}": supported values: {served}'
        subject = StatusSubject("meta.k8s.io", "deleteoptions", "DeleteOptions", "")
        raise invalid(subject, [Cause("propagationPolicy", message, "FieldValueNotSupported")])
    return options


def finalizers_for(kind: Kind, meta: Metadata, options: DeleteOptions) -> list[str]:
    """The finalizers that *meta* carries once its deletion is under way."""
    finalizers = list(meta.finalizers or [])
    added = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(options.propagation_policy or "")
    if added and added not in finalizers:
        finalizers.append(added)
    if (
        kind.plural == "customresourcedefinitions"
        and not meta.deletion_timestamp
        and CRD_CLEANUP not in finalizers
    ):
        finalizers.append(CRD_CLEANUP)
    return finalizers


def check_preconditions(kind: Kind, entry: Entry, wanted: Preconditions | None) -> None:
    """Raises: 409 when *entry* is not the version or the object that is meant."""
    if wanted is None:
        return
    subject = kind.subject(entry.name)
    if wanted.uid and wanted.uid != entry.uid:
        raise conflict(
            subject,
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({entry.uid}). "
            "The object might have been deleted and then recreated",
        )
    if wanted.resource_version and wanted.resource_version != str(entry.version):
        raise conflict(
            subject,
            f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the "
            f"ResourceVersion in record ({entry.version}). The object might have been modified",
        )
