"""The resources that exist without a CustomResourceDefinition: just those that controllers, kubectl and tests
need. Pure.

Their schemas are ours, small, and in the same form as those of custom resources; whoever asks for another
built-in resource gets a 404 like for any unknown one.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from devcluster.embedded import definitions
from devcluster.embedded.registry import Column, Kind, Registry, Version
from devcluster.embedded.schema import Schema
from devcluster.embedded.status import Cause, bad_request
from devcluster.embedded.store import Collection, Versions

Doc = dict[str, Any]

_STRING: Final[Doc] = {"type": "string", "nullable": True}
_INTEGER: Final[Doc] = {"type": "integer", "nullable": True}
_BOOLEAN: Final[Doc] = {"type": "boolean", "nullable": True}
_MICRO_TIME: Final[Doc] = {
    "type": "string",
    "nullable": True,
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$",
}
_FREE: Final[Doc] = {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
_STRINGS: Final[Doc] = {"type": "object", "nullable": True, "additionalProperties": {"type": "string"}}


def _object(**properties: Doc) -> Doc:
    return {"type": "object", "nullable": True, "properties": properties}


def _list(items: Doc) -> Doc:
    return {"type": "array", "nullable": True, "items": items}


_LEASE = _object(
    spec=_object(
        holderIdentity=_STRING,
        leaseDurationSeconds=_INTEGER,
        acquireTime=_MICRO_TIME,
        renewTime=_MICRO_TIME,
        leaseTransitions=_INTEGER,
        strategy=_STRING,
        preferredHolder=_STRING,
    )
)
_NAMESPACE = _object(
    spec=_object(finalizers=_list({"type": "string"})),
    status=_object(phase=_STRING, conditions=_list(_FREE)),
)
_CONFIG_MAP = _object(data=_STRINGS, binaryData=_STRINGS, immutable=_BOOLEAN)
_SECRET = _object(data=_STRINGS, stringData=_STRINGS, immutable=_BOOLEAN, type=_STRING)
_SERVICE_ACCOUNT = _object(
    secrets=_list(_FREE), imagePullSecrets=_list(_FREE), automountServiceAccountToken=_BOOLEAN
)
_CORE_EVENT = _object(
    involvedObject=_FREE,
    reason=_STRING,
    message=_STRING,
    source=_FREE,
    firstTimestamp=_STRING,
    lastTimestamp=_STRING,
    count=_INTEGER,
    type=_STRING,
    eventTime=_MICRO_TIME,
    series=_FREE,
    action=_STRING,
    related=_FREE,
    reportingComponent=_STRING,
    reportingInstance=_STRING,
)
_NEW_EVENT = _object(
    eventTime=_MICRO_TIME,
    series=_FREE,
    reportingController=_STRING,
    reportingInstance=_STRING,
    action=_STRING,
    reason=_STRING,
    regarding=_FREE,
    related=_FREE,
    note=_STRING,
    type=_STRING,
    deprecatedSource=_FREE,
    deprecatedFirstTimestamp=_STRING,
    deprecatedLastTimestamp=_STRING,
    deprecatedCount=_INTEGER,
)
_CRD = _object(spec=_FREE, status=_FREE)

_CORE_TO_NEW_EVENT: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_NEW_TO_CORE_EVENT: Final = {new: core for core, new in _CORE_TO_NEW_EVENT.items()}
_EVENT_FIELDS: Final = frozenset(
    [f"involvedObject.{field}" for field in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")]
    + ["involvedObject.resourceVersion", "reason", "reportingComponent", "source", "type"]
)
_NEW_EVENT_FIELDS: Final = frozenset(
    [f"regarding.{field}" for field in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")]
    + ["regarding.resourceVersion", "reason", "reportingController", "type"]
)


def event_from_core(doc: Doc) -> Doc:
    """A stored (core) event as events.k8s.io shows it."""
    return {_CORE_TO_NEW_EVENT.get(key, key): value for key, value in doc.items()}


def event_to_core(doc: Doc) -> Doc:
    """The other way round, for storage."""
    return {_NEW_TO_CORE_EVENT.get(key, key): value for key, value in doc.items()}


def check_lease(name: str, doc: Doc) -> list[Cause]:
    spec = doc.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    causes = []
    if duration is not None and duration <= 0:
        causes.append(Cause("spec.leaseDurationSeconds", f"{duration}: must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(Cause("spec.leaseTransitions", f"{transitions}: must be greater than or equal to 0"))
    return causes


def check_secret(name: str, doc: Doc) -> list[Cause]:
    """Raises: 400, because the real server fails to decode such a Secret."""
    if not all(_is_base64(value) for value in (doc.get("data") or {}).values()):
        raise bad_request('Secret in version "v1" cannot be handled as a Secret: illegal base64 data')
    return []


def check_immutable(old: Doc, new: Doc) -> list[Cause]:
    """ConfigMaps and Secrets that say so keep their data."""
    if not old.get("immutable"):
        return []
    why = "field is immutable when `immutable` is set"
    return [
        Cause(field, why, "FieldValueForbidden")
        for field in ("immutable", "data", "binaryData")
        if (old.get(field) or None) != (new.get(field) or None)
    ]


def check_secret_update(old: Doc, new: Doc) -> list[Cause]:
    causes = check_immutable(old, new)
    if new.get("type", "Opaque") != old.get("type"):
        causes.append(Cause("type", f'"{new.get("type")}": field is immutable'))
    return causes


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def complete_secret(doc: Doc) -> Doc:
    """`stringData` goes into `data`; the type has a default."""
    plain = doc.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        doc["data"] = {**(doc.get("data") or {}), **encoded}
    doc["type"] = doc.get("type") or "Opaque"
    return doc


def namespace_to_stored(doc: Doc) -> Doc:
    """Every namespace carries the finalizer of its contents and a phase."""
    spec = doc.get("spec") or {}
    spec.setdefault("finalizers", ["kubernetes"])
    doc["spec"] = spec
    status = doc.get("status") or {}
    status.setdefault("phase", "Active")
    doc["status"] = status
    return doc


_AGE = Column("Age", "string", "age")


def _columns(*columns: Column) -> tuple[Column, ...]:
    return (Column("Name", "string", "name", format="name"), *columns)


def add_builtins(registry: Registry, versions: Versions, *, history_limit: int) -> None:
    """Fill *registry* with the built-in kinds, each with an empty collection."""

    def collection() -> Collection:
        return Collection(versions, history_limit=history_limit)

    def schema(source: Doc) -> Schema:
        return Schema({**source, "nullable": False}, where="schema")

    events = collection()
    for kind in (
        Kind(
            group="",
            plural="namespaces",
            kind="Namespace",
            short_names=("ns",),
            namespaced=False,
            versions=[
                Version(
                    "v1", schema(_NAMESPACE), _columns(Column("Status", "string", "phase"), _AGE), status=True
                )
            ],
            storage_version="v1",
            collection=collection(),
            builtin=True,
            generation=False,
            unconditional_update=True,
            fields=frozenset({"status.phase"}),
            to_stored=namespace_to_stored,
        ),
        Kind(
            group="",
            plural="configmaps",
            check_update=check_immutable,
            kind="ConfigMap",
            short_names=("cm",),
            versions=[Version("v1", schema(_CONFIG_MAP), _columns(Column("Data", "integer", "data"), _AGE))],
            storage_version="v1",
            collection=collection(),
            builtin=True,
            generation=False,
            unconditional_update=True,
        ),
        Kind(
            group="",
            plural="secrets",
            kind="Secret",
            versions=[
                Version(
                    "v1",
                    schema(_SECRET),
                    _columns(Column("Type", "string", "type"), Column("Data", "integer", "data"), _AGE),
                )
            ],
            storage_version="v1",
            collection=collection(),
            builtin=True,
            generation=False,
            unconditional_update=True,
            fields=frozenset({"type"}),
            complete=complete_secret,
            check=check_secret,
            check_update=check_secret_update,
        ),
        Kind(
            group="",
            plural="serviceaccounts",
            kind="ServiceAccount",
            short_names=("sa",),
            versions=[Version("v1", schema(_SERVICE_ACCOUNT), _columns(_AGE))],
            storage_version="v1",
            collection=collection(),
            builtin=True,
            generation=False,
            unconditional_update=True,
        ),
        Kind(
            group="",
            plural="events",
            kind="Event",
            short_names=("ev",),
            versions=[Version("v1", schema(_CORE_EVENT), _EVENT_COLUMNS)],
            storage_version="v1",
            collection=events,
            builtin=True,
            generation=False,
            unconditional_update=True,
            create_on_update=True,
            fields=_EVENT_FIELDS,
        ),
        Kind(
            group="events.k8s.io",
            plural="events",
            kind="Event",
            short_names=("ev",),
            versions=[Version("v1", schema(_NEW_EVENT), _EVENT_COLUMNS)],
            storage_version="v1",
            collection=events,
            builtin=True,
            generation=False,
            unconditional_update=True,
            create_on_update=True,
            fields=_NEW_EVENT_FIELDS,
            from_stored=event_from_core,
            to_stored=event_to_core,
            stored_group="",
        ),
        Kind(
            group="coordination.k8s.io",
            plural="leases",
            kind="Lease",
            versions=[Version("v1", schema(_LEASE), _columns(Column("Holder", "string", "holder"), _AGE))],
            storage_version="v1",
            collection=collection(),
            builtin=True,
            generation=False,
            create_on_update=True,
            check=check_lease,
        ),
        Kind(
            group="apiextensions.k8s.io",
            plural="customresourcedefinitions",
            kind="CustomResourceDefinition",
            short_names=("crd", "crds"),
            namespaced=False,
            versions=[
                Version("v1", schema(_CRD), _columns(Column("Created At", "date", "created")), status=True)
            ],
            storage_version="v1",
            collection=collection(),
            builtin=True,
            check=definitions.check,
            to_stored=definitions.complete,
        ),
    ):
        registry.add(kind)


_EVENT_COLUMNS: Final = (
    Column("Last Seen", "string", "last_seen"),
    Column("Type", "string", "type"),
    Column("Reason", "string", "reason"),
    Column("Object", "string", "object"),
    Column("Subobject", "string", "subobject", 1),
    Column("Source", "string", "source", 1),
    Column("Message", "string", "message"),
    Column("First Seen", "string", "first_seen", 1),
    Column("Count", "string", "count", 1),
    Column("Name", "string", "name", 1, "name"),
)
