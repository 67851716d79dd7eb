"""CREATE, UPDATE, PATCH, DELETE on the store: the compare-and-swap that clients build on.

Synchronous and therefore atomic: between reading an object and storing its successor nothing else runs.
Every write, refused ones too, goes to the log. `endpoints` calls this for clients, `collector` for itself.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from devcluster.embedded import apply, patches
from devcluster.embedded.deletion import DeleteOptions, check_preconditions, finalizers_for
from devcluster.embedded.managed_fields import (
    Entries,
    ManagedFieldsEntry,
    decode_entries,
    encode_entries,
    updated_entries,
    written_part,
)
from devcluster.embedded.objects import (
    Draft,
    decode_body,
    prepare_create,
    prepare_update,
    read_draft,
    stored_draft,
)
from devcluster.embedded.paths import Target
from devcluster.embedded.reads import selection
from devcluster.embedded.registry import Kind
from devcluster.embedded.shapes import decoded_as
from devcluster.embedded.status import (
    Cause,
    Refusal,
    StatusSubject,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from devcluster.embedded.store import Entry, Interner, Versions
from devcluster.embedded.writelog import WriteLog

Doc = dict[str, Any]
NamespaceOf = Callable[[str], Entry | None]
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


class Request(msgspec.Struct, frozen=True):
    """Account and parameters of a write."""

    user: str
    dry_run: bool = False
    field_validation: str = ""
    content_type: str = "application/json"
    field_manager: str = ""
    """The parameter of the request, which server-side apply requires."""
    manager: str = "kube-controller-manager"
    """Name in managedFields."""
    force: bool = False


class Written(msgspec.Struct, frozen=True):
    """What a write left: *entry* (the last state, if *removed*), and fields that were dropped."""

    entry: Entry
    code: int = 200
    removed: bool = False
    dropped: tuple[str, ...] = ()


class Writes:
    """All verbs that change objects."""

    def __init__(
        self,
        *,
        versions: Versions,
        log: WriteLog,
        now: Callable[[], str],
        new_uid: Callable[[], uuid.UUID],
        namespace_of: NamespaceOf,
    ) -> None:
        self._versions: Final = versions
        self._log: Final = log
        self._now: Final = now
        self._new_uid: Final = new_uid
        self._namespace_of: Final = namespace_of
        self._intern: Final = Interner()

    def create(self, target: Target, request: Request, doc: Doc) -> Written:
        """Raises: 403 (namespace ends), 404 (no namespace), 409 (exists), 400, 422."""
        return self._logged(target, request, "create", lambda: self._create(target, request, doc))

    def update(self, target: Target, request: Request, doc: Doc) -> Written:
        """Raises: 404, 409, 400, 422."""
        return self._logged(target, request, "update", lambda: self._update(target, request, doc))

    def patch(self, target: Target, request: Request, body: bytes) -> Written:
        """Raises: 404, 409, 400, 415, 422."""
        patch = self._apply if request.content_type == patches.APPLY_PATCH else self._patch
        return self._logged(target, request, "patch", lambda: patch(target, request, body), body=body)

    def delete(self, target: Target, request: Request, options: DeleteOptions) -> Written:
        """Raises: 404, 409."""
        return self._logged(target, request, "delete", lambda: self._delete(target, request, options))

    def delete_collection(
        self, target: Target, request: Request, query: dict[str, str], options: DeleteOptions
    ) -> list[Written]:
        """Delete all selected objects, one after the other."""
        wanted = selection(target, query)
        gone = []
        for entry in [entry for entry in target.kind.collection.entries() if wanted.matches(entry)]:
            one = msgspec.structs.replace(target, namespace=entry.namespace, name=entry.name)
            with suppress(Refusal):  # deleted meanwhile, or a failed precondition
                gone.append(
                    self._logged(
                        one, request, "deletecollection", partial(self._delete, one, request, options)
                    )
                )
        return gone

    def _logged(
        self, target: Target, request: Request, verb: str, work: Callable[[], Written], *, body: bytes = b""
    ) -> Written:
        kind = target.kind
        before = kind.collection.get((target.namespace, target.name)) if target.name else None
        code, message, after, name = 500, "", before, target.name
        try:
            written = work()
            code, after, name = written.code, None if written.removed else written.entry, written.entry.name
        except Refusal as refusal:
            code, message = refusal.code, refusal.message
            raise
        else:
            return written
        finally:
            if not request.dry_run:
                self._log.add(
                    user=request.user,
                    verb=verb,
                    kind=kind,
                    namespace=target.namespace,
                    name=name,
                    subresource=target.subresource,
                    before=before,
                    after=after,
                    code=code,
                    message=message,
                    body=body,
                )

    def _create(self, target: Target, request: Request, doc: Doc, *, entries: Entries = ()) -> Written:
        kind = target.kind
        self._check_namespace(target, doc)
        draft = read_draft(doc, kind, target.version.name)
        if target.name:
            draft.meta.name = draft.meta.name or target.name
        uid = self._new_uid()
        suffix = "".join(_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in uid.bytes[:5])
        dropped = prepare_create(
            kind,
            target.version,
            draft,
            namespace=target.namespace,
            uid=str(uid),
            suffix=suffix,
            now=self._now(),
        )
        draft.managed = self._intern.managed(encode_entries(entries) or self._updated(target, request, draft))
        _refuse_unknown(request, dropped)
        if kind.collection.get((target.namespace, draft.meta.name)) is not None:
            raise already_exists(kind.subject(draft.meta.name))
        entry = self._store(kind, draft, request)
        return Written(entry, 201, dropped=tuple(dropped))

    def _check_namespace(self, target: Target, doc: Doc) -> None:
        kind = target.kind
        if not kind.namespaced:
            return
        if not target.namespace:
            raise bad_request("the namespace of the object must be given in the path")
        namespace = self._namespace_of(target.namespace)
        if namespace is None:
            raise not_found(StatusSubject("", "namespaces", "Namespace", target.namespace))
        if namespace.deleting:
            name = str((doc.get("metadata") or {}).get("name", ""))
            message = f"namespace {target.namespace} is being terminated"
            raise forbidden(
                kind.subject(name),
                f"unable to create new content in namespace {target.namespace} because it is being terminated",
                causes=[Cause("metadata.namespace", message, "NamespaceTerminating")],
            )

    def _update(self, target: Target, request: Request, doc: Doc) -> Written:
        kind = target.kind
        old = kind.collection.get((target.namespace, target.name))
        new = read_draft(doc, kind, target.version.name)
        if old is None:
            if not kind.create_on_update or target.subresource:
                raise not_found(kind.subject(target.name))
            if new.meta.uid:
                why = f"Precondition failed: UID in precondition: {new.meta.uid}, UID in object meta: "
                raise conflict(kind.subject(target.name), why)
            new.meta.resource_version = ""
            return self._create(target, request, {**new.rest, "metadata": msgspec.to_builtins(new.meta)})
        new.meta.name = new.meta.name or target.name
        return self._succeed(target, request, old, new, is_patch=False)

    def _patch(self, target: Target, request: Request, body: bytes) -> Written:
        kind = target.kind
        old = kind.collection.get((target.namespace, target.name))
        if old is None:
            raise not_found(kind.subject(target.name))
        doc = decoded_as(kind, target.version, old)
        if b"managedFields" in body and old.managed:
            doc["metadata"]["managedFields"] = msgspec.json.decode(old.managed)
        doc = patches.apply_patch(request.content_type, body, doc, strategic=kind.builtin)
        return self._succeed(target, request, old, read_draft(doc, kind, target.version.name), is_patch=True)

    def _apply(self, target: Target, request: Request, body: bytes) -> Written:
        """Server-side apply: as `apply.applied`, creating what is missing."""
        kind = target.kind
        old = kind.collection.get((target.namespace, target.name))
        wanted = _checked_apply(target, request, decode_body(body, "application/yaml"), old)
        live = decoded_as(kind, target.version, old) if old else {}
        doc, entries = apply.applied(
            live,
            _appliable(target, wanted),
            decode_entries(old.managed) if old else (),
            self._entry(target, request, "Apply"),
            force=request.force,
            subject=kind.subject(target.name),
        )
        if old is None:
            return self._create(target, request, wanted, entries=entries)
        new = read_draft(doc, kind, target.version.name)
        return self._succeed(target, request, old, new, is_patch=True, entries=entries)

    def _succeed(
        self,
        target: Target,
        request: Request,
        old: Entry,
        new: Draft,
        *,
        is_patch: bool,
        entries: Entries = (),
    ) -> Written:
        """Store *new* as the successor of *old*, unless nothing changed."""
        kind = target.kind
        before = stored_draft(old)
        if kind.from_stored is not None:
            before.rest = kind.from_stored(before.rest)
        dropped = prepare_update(
            kind, target.version, before, new, subresource=target.subresource, is_patch=is_patch
        )
        new.managed = self._intern.managed(
            encode_entries(entries) or self._updated(target, request, new, before=before)
        )
        _refuse_unknown(request, dropped)
        is_same = new.managed == old.managed and new.meta == before.meta and new.rest == before.rest
        if is_same and old.raw.startswith(kind.stored_prefix):
            return Written(old, dropped=tuple(dropped))
        if old.deleting and not new.meta.finalizers and not _holds_contents(kind, new):
            if not request.dry_run:
                kind.collection.remove(old)
            return Written(old, removed=not request.dry_run, dropped=tuple(dropped))
        return Written(self._store(kind, new, request), dropped=tuple(dropped))

    def _updated(self, target: Target, request: Request, new: Draft, *, before: Draft | None = None) -> bytes:
        """The entries of *new* after a plain write; those that it sent replace those that were stored."""
        entries = before.managed if before else b""
        if before is not None and new.sent is not None and not target.subresource:
            entries = encode_entries(new.sent)
        return updated_entries(
            entries,
            self._entry(target, request, "Update"),
            written_part(before.meta, before.rest) if before else {},
            written_part(new.meta, new.rest),
            is_builtin=target.kind.builtin,
        )

    def _entry(self, target: Target, request: Request, operation: str) -> ManagedFieldsEntry:
        return ManagedFieldsEntry(
            manager=request.manager,
            operation=operation,
            api_version=target.kind.api_version(target.version.name),
            time=self._now(),
            subresource=target.subresource,
        )

    def _delete(self, target: Target, request: Request, options: DeleteOptions) -> Written:
        kind = target.kind
        old = kind.collection.get((target.namespace, target.name))
        if old is None:
            raise not_found(kind.subject(target.name))
        check_preconditions(kind, old, options.preconditions)
        draft = stored_draft(old)
        finalizers = finalizers_for(kind, draft.meta, options)
        if not finalizers and not _holds_contents(kind, draft):
            if not request.dry_run:
                kind.collection.remove(old)
            return Written(old, removed=not request.dry_run)
        if old.deleting and finalizers == (draft.meta.finalizers or []):
            return Written(old)
        meta = draft.meta
        meta.finalizers = finalizers or None
        if meta.deletion_timestamp is None:
            meta.deletion_timestamp = self._now()
            meta.deletion_grace_period_seconds = 0
            meta.generation += 1 if meta.generation else 0
            if kind.resource == "namespaces":
                draft.rest["status"] = {**draft.rest.get("status", {}), "phase": "Terminating"}
        return Written(self._store(kind, draft, request))

    def _store(self, kind: Kind, draft: Draft, request: Request) -> Entry:
        """Give *draft* the next version and keep it; a dry run gives the entry without keeping it."""
        if kind.to_stored is not None:
            draft.rest = kind.to_stored(draft.rest)
        version = self._versions.current + 1 if request.dry_run else self._versions.next()
        meta = draft.meta
        meta.resource_version = "" if request.dry_run else str(version)
        raw, metadata_end = draft.encode(kind.stored_api_version, kind.kind)
        entry = Entry(
            namespace=sys.intern(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            version=version,
            labels=self._intern.labels(meta.labels or {}),
            raw=raw,
            metadata_end=metadata_end,
            managed=draft.managed,
            generation=meta.generation,
            deleting=meta.deletion_timestamp is not None,
            owned=bool(meta.owner_references),
        )
        if not request.dry_run:
            kind.collection.put(entry)
        return entry


def _checked_apply(target: Target, request: Request, wanted: Doc, old: Entry | None) -> Doc:
    """*wanted*, if it can be applied. Raises: 400, 404, 409 (uid), 422."""
    if not request.field_manager:
        subject = StatusSubject("meta.k8s.io", "patchoptions", "PatchOptions", "")
        raise invalid(subject, [Cause("fieldManager", "is required for apply patch", "FieldValueRequired")])
    meta = wanted.setdefault("metadata", {})
    if meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    meta.setdefault("name", target.name)
    subject = target.kind.subject(target.name)
    uid = meta.get("uid")
    if uid and (old is None or old.uid != uid):
        found = f"found existing object with uid {old.uid}" if old else "no existing object was found"
        raise conflict(subject, f"uid mismatch: the provided object specified uid {uid}, and {found}")
    if old is None and (target.subresource or meta.get("resourceVersion")):
        raise not_found(subject)
    return wanted


def _appliable(target: Target, wanted: Doc) -> Doc:
    """*wanted* without the part that the endpoint ignores: the status, or all but that."""
    if target.subresource:
        identity = ("name", "namespace", "uid", "resourceVersion")
        meta = {name: value for name, value in (wanted.get("metadata") or {}).items() if name in identity}
        return {"metadata": meta, **({"status": wanted["status"]} if "status" in wanted else {})}
    return {name: value for name, value in wanted.items() if name != "status" or not target.version.status}


def _refuse_unknown(request: Request, dropped: list[str]) -> None:
    if dropped and request.field_validation == "Strict":
        fields = ", ".join(f'unknown field "{field}"' for field in dropped)
        raise bad_request(f"strict decoding error: {fields}")


def _holds_contents(kind: Kind, draft: Draft) -> bool:
    """Whether a namespace still waits for its contents to go."""
    return kind.resource == "namespaces" and bool((draft.rest.get("spec") or {}).get("finalizers"))
