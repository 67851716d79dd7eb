"""OpenAPI v3, the part that kubectl reads: types, their schemas, and that writes take
`fieldValidation`. Pure."""

from __future__ import annotations

from typing import Any, Final

from devcluster.embedded.registry import Kind, Registry, Version

Doc = dict[str, Any]
_METADATA: Final[Doc] = {
    "type": "object",
    "description": "Standard object metadata.",
    "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def find(registry: Registry, parts: list[str]) -> Doc | None:
    """What stands below `/openapi/v3`."""
    match parts:
        case []:
            return index(registry)
        case ["api", version]:
            return document(registry, "", version)
        case ["apis", name, version]:
            return document(registry, name, version)
    return None


def index(registry: Registry) -> Doc:
    """`/openapi/v3`: one document per group and version."""
    paths = {}
    for group, versions in registry.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            url = f"/openapi/v3/{path}?hash={registry.generation}"
            paths[path] = {"serverRelativeURL": url}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Doc | None:
    """The document of one group and version."""
    kinds = registry.served(group, version)
    if not kinds:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "ringleader embedded control plane", "version": "v1"},
        "paths": {path: item for kind in kinds for path, item in _paths(kind, version).items()},
        "components": {
            "schemas": {_name(kind, version): _schema(kind, kind.versions[version]) for kind in kinds}
        },
    }


def _name(kind: Kind, version: str) -> str:
    return ".".join([*reversed((kind.group or "core").split(".")), version, kind.kind])


def _schema(kind: Kind, version: Version) -> Doc:
    source: Doc = version.schema.source if version.schema else {"type": "object"}
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": _METADATA,
        **{
            name: schema
            for name, schema in (source.get("properties") or {}).items()
            if name not in ("apiVersion", "kind", "metadata")
        },
    }
    return {**source, "properties": properties, "x-kubernetes-group-version-kind": [_gvk(kind, version.name)]}


def _gvk(kind: Kind, version: str) -> Doc:
    return {"group": kind.group, "version": version, "kind": kind.kind}


def _paths(kind: Kind, version: str) -> Doc:
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    where = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"{root}{where}/{kind.plural}"
    return {
        collection: {"get": _operation(kind, version, "list"), "post": _operation(kind, version, "post")},
        f"{collection}/{{name}}": {
            "get": _operation(kind, version, "get"),
            "put": _operation(kind, version, "put"),
            "patch": _operation(kind, version, "patch"),
            "delete": _operation(kind, version, "delete"),
        },
    }


def _operation(kind: Kind, version: str, action: str) -> Doc:
    names = ["fieldValidation", "dryRun", "fieldManager"] if action in ("post", "put", "patch") else []
    reference = {"$ref": f"#/components/schemas/{_name(kind, version)}"}
    return {
        "operationId": f"{action}{kind.kind}",
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind, version),
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in names
        ],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
    }
