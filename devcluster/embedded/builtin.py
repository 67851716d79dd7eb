"""The resources that exist without a CustomResourceDefinition: those that controllers, kubectl and tests
need. Pure.

Their schemas are ours, small, and in the same form as those of custom resources. Other built-in resources are 404.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from devcluster.embedded import definitions, rbac
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
_ROLE = _object(rules=_list(_FREE), aggregationRule=_FREE)
_ROLE_REF = _object(apiGroup=_STRING, kind=_STRING, name=_STRING)
_BINDING = _object(roleRef=_ROLE_REF, subjects=_list(_FREE)) | {"required": ["roleRef"]}

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
    """Immutable ConfigMaps and Secrets keep their data."""
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


def complete_binding(doc: Doc) -> Doc:
    """References to roles, users and groups name their API group."""
    doc["roleRef"]["apiGroup"] = doc["roleRef"].get("apiGroup") or rbac.GROUP
    for subject in doc.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = subject.get("apiGroup") or rbac.GROUP
    return doc


def check_binding_update(old: Doc, new: Doc) -> list[Cause]:
    if {**new["roleRef"], "apiGroup": rbac.GROUP} == {**old["roleRef"], "apiGroup": rbac.GROUP}:
        return []
    return [Cause("roleRef", "cannot change roleRef")]


_NAME: Final = Column("Name", "string", "name", format="name")
_AGE: Final = Column("Age", "string", "age")


def add_builtins(registry: Registry, versions: Versions, *, history_limit: int) -> None:
    """Fill *registry* with the built-in kinds, each with an empty collection."""

    def add(group: str, plural: str, kind: str, source: Doc, *columns: Column, **options: Any) -> Collection:
        """Add *kind*, whose objects have the schema *source*; gives its collection."""
        collection: Collection | None = options.pop("collection", None)
        if collection is None:
            collection = Collection(versions, history_limit=history_limit)
        schema = Schema({**source, "nullable": False}, where="schema")
        columns = columns if plural == "events" else (_NAME, *columns, _AGE)
        version = Version("v1", schema, columns, status=options.pop("status", False))
        rules = {"generation": False, "unconditional_update": True} | options
        registry.add(
            Kind(
                group=group,
                plural=plural,
                kind=kind,
                versions=[version],
                storage_version="v1",
                collection=collection,
                builtin=True,
                **rules,
            )
        )
        return collection

    add(
        "",
        "namespaces",
        "Namespace",
        _NAMESPACE,
        Column("Status", "string", "phase"),
        status=True,
        short_names=("ns",),
        namespaced=False,
        fields=frozenset({"status.phase"}),
        to_stored=namespace_to_stored,
    )
    data = Column("Data", "integer", "data")
    add("", "configmaps", "ConfigMap", _CONFIG_MAP, data, short_names=("cm",), check_update=check_immutable)
    add(
        "",
        "secrets",
        "Secret",
        _SECRET,
        Column("Type", "string", "type"),
        data,
        fields=frozenset({"type"}),
        complete=complete_secret,
        check=check_secret,
        check_update=check_secret_update,
    )
    add("", "serviceaccounts", "ServiceAccount", _SERVICE_ACCOUNT, short_names=("sa",))
    events = add(
        "",
        "events",
        "Event",
        _CORE_EVENT,
        *_EVENT_COLUMNS,
        short_names=("ev",),
        create_on_update=True,
        fields=_EVENT_FIELDS,
    )
    add(
        "events.k8s.io",
        "events",
        "Event",
        _NEW_EVENT,
        *_EVENT_COLUMNS,
        collection=events,
        short_names=("ev",),
        create_on_update=True,
        fields=_NEW_EVENT_FIELDS,
        from_stored=event_from_core,
        to_stored=event_to_core,
        stored_group="",
    )
    add(
        "coordination.k8s.io",
        "leases",
        "Lease",
        _LEASE,
        Column("Holder", "string", "holder"),
        unconditional_update=False,
        create_on_update=True,
        check=check_lease,
    )
    add(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        _CRD,
        status=True,
        short_names=("crd", "crds"),
        namespaced=False,
        generation=True,
        unconditional_update=False,
        check=definitions.check,
        to_stored=definitions.complete,
    )
    for prefix, namespaced in (("", True), ("Cluster", False)):
        role, binding = f"{prefix}Role", f"{prefix}RoleBinding"
        plurals = f"{role.lower()}s", f"{binding.lower()}s"
        add(rbac.GROUP, plurals[0], role, _ROLE, namespaced=namespaced, create_on_update=True)
        add(
            rbac.GROUP,
            plurals[1],
            binding,
            _BINDING,
            namespaced=namespaced,
            create_on_update=True,
            complete=complete_binding,
            check_update=check_binding_update,
        )


_EVENT_COLUMNS: Final = (
    Column("Last Seen", "string", "last_seen"),
    Column("Type", "string", "type"),
    Column("Reason", "string", "reason"),
    Column("Object", "string", "object"),
    Column("Message", "string", "message"),
)
