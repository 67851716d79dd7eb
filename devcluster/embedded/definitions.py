"""CustomResourceDefinitions: checked, completed and served. Pure."""

from __future__ import annotations

from typing import Any, Final

from devcluster.embedded.registry import Column, Kind, Version
from devcluster.embedded.schema import Schema, SchemaError
from devcluster.embedded.status import Cause
from devcluster.embedded.store import Collection
from devcluster.embedded.table import is_column_path

Doc = dict[str, Any]
_FORBIDDEN: Final = "FieldValueForbidden"


def complete(doc: Doc) -> Doc:
    """A CRD (without metadata) with the defaults and the status that make it established."""
    spec = doc.get("spec") or {}
    names = spec.setdefault("names", {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})
    status = doc.get("status") or {}
    storage = [version["name"] for version in spec.get("versions", []) if version.get("storage")]
    status["acceptedNames"] = dict(names)
    status["storedVersions"] = list(dict.fromkeys([*(status.get("storedVersions") or []), *storage]))
    status["conditions"] = status.get("conditions") or [
        _condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        _condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    return {**doc, "spec": spec, "status": status}


def _condition(type_: str, reason: str, message: str) -> Doc:
    return {"type": type_, "status": "True", "reason": reason, "message": message}


def check(name: str, doc: Doc) -> list[Cause]:
    """Everything in the spec of the CRD *name* that cannot be served."""
    spec = doc.get("spec") or {}
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    causes = [
        Cause(f"spec.{field}", "must be given", "FieldValueRequired")
        for field, value in (
            ("group", spec.get("group")),
            ("scope", spec.get("scope")),
            ("names.plural", names.get("plural")),
            ("names.kind", names.get("kind")),
            ("versions", versions),
        )
        if not value
    ]
    if causes:
        return causes
    if name != f"{names['plural']}.{spec['group']}":
        causes.append(Cause("metadata.name", f'"{name}": must be spec.names.plural+"."+spec.group'))
    if spec["scope"] not in ("Namespaced", "Cluster"):
        causes.append(
            Cause(
                "spec.scope",
                f'"{spec["scope"]}": supported values: "Cluster", "Namespaced"',
                "FieldValueNotSupported",
            )
        )
    if sum(1 for version in versions if version.get("storage")) != 1:
        causes.append(Cause("spec.versions", "must have exactly one version marked as storage version"))
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        causes.append(
            Cause("spec.conversion.strategy", "conversion webhooks are not served here; use None", _FORBIDDEN)
        )
    for at, version in enumerate(versions):
        causes += _version_causes(version, f"spec.versions[{at}]")
    return causes


def _version_causes(version: Doc, where: str) -> list[Cause]:
    causes = []
    subresources = version.get("subresources") or {}
    causes += [
        Cause(f"{where}.subresources.{name}", "this subresource is not served here", _FORBIDDEN)
        for name in subresources
        if name != "status"
    ]
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        causes.append(Cause(f"{where}.schema.openAPIV3Schema", "schemas are required", "FieldValueRequired"))
    else:
        try:
            Schema(schema, where=f"{where}.schema.openAPIV3Schema")
        except SchemaError as error:
            causes += error.causes
    causes += [
        Cause(
            f"{where}.additionalPrinterColumns[{at}].jsonPath", f'"{column.get("jsonPath")}": not a JSONPath'
        )
        for at, column in enumerate(version.get("additionalPrinterColumns") or [])
        if not is_column_path(str(column.get("jsonPath", "")))
    ]
    return causes


def warnings(kind: Kind) -> tuple[str, ...]:
    """What a client should know that wrote the CRD of *kind*."""
    rules = sum(len(version.schema.rules) for version in kind.versions.values() if version.schema is not None)
    if not rules:
        return ()
    said = "rules in CEL (x-kubernetes-validations) are stored and not evaluated by this control plane"
    return (f"{kind.plural}.{kind.group}: {said}",)


def served_kind(doc: Doc, collection: Collection) -> Kind:
    """The kind that a checked CRD defines, its objects in *collection*."""
    spec = doc["spec"]
    names = spec["names"]
    versions = [version for version in spec["versions"] if version.get("served")]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    selectable = {
        str(field["jsonPath"]).lstrip(".")
        for version in versions
        for field in version.get("selectableFields") or []
    }
    return Kind(
        group=spec["group"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec["scope"] == "Namespaced",
        versions=[_version(version) for version in versions],
        storage_version=storage,
        collection=collection,
        fields=frozenset(selectable),
    )


def _version(version: Doc) -> Version:
    columns = tuple(
        Column(
            name=column["name"],
            type=column["type"],
            path=column["jsonPath"],
            priority=column.get("priority", 0),
            format=column.get("format", ""),
            description=column.get("description", ""),
        )
        for column in version.get("additionalPrinterColumns") or []
    )
    return Version(
        name=version["name"],
        schema=Schema(version["schema"]["openAPIV3Schema"], where="schema"),
        columns=columns,
        status="status" in (version.get("subresources") or {}),
        deprecated=bool(version.get("deprecated")),
    )
