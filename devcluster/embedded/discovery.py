"""Discovery: groups, versions and resources, in the old form and the aggregated one. Pure."""

from __future__ import annotations

from typing import Any, Final

from devcluster.embedded.registry import Kind, Registry, Version

Doc = dict[str, Any]
VERSION: Final[Doc] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+ringleader-embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-11-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_STATUS_VERBS: Final = ("get", "patch", "update")


def core_versions(server: str) -> Doc:
    """`/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
    }


def group_list(registry: Registry) -> Doc:
    """`/apis`."""
    groups = [group for group in registry.groups() if group]
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(registry, group) for group in groups],
    }


def group(registry: Registry, name: str) -> Doc | None:
    """`/apis/GROUP`."""
    if not name or name not in registry.groups():
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, name)}


def _group(registry: Registry, name: str) -> Doc:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version} for version in registry.groups()[name]
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(registry: Registry, group_name: str, version: str) -> Doc | None:
    """`/api/v1`, `/apis/GROUP/VERSION`."""
    kinds = registry.served(group_name, version)
    if not kinds:
        return None
    resources = []
    for kind in kinds:
        resources.append(_resource(kind))
        if kind.versions[version].status:
            resources.append(
                {
                    "name": f"{kind.plural}/status",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": kind.kind,
                    "verbs": list(_STATUS_VERBS),
                }
            )
    group_version = f"{group_name}/{version}" if group_name else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def _resource(kind: Kind) -> Doc:
    resource: Doc = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(_VERBS),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    return resource


def aggregated(registry: Registry, *, core: bool, version: str) -> Doc:
    """`/api` or `/apis` as APIGroupDiscoveryList of apidiscovery.k8s.io/*version*."""
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {
                    "version": served,
                    "freshness": "Current",
                    "resources": [
                        _discovered(kind, kind.versions[served]) for kind in registry.served(name, served)
                    ],
                }
                for served in versions
            ],
        }
        for name, versions in registry.groups().items()
        if (name == "") == core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _discovered(kind: Kind, version: Version) -> Doc:
    named = {"group": kind.group, "version": version.name, "kind": kind.kind}
    resource: Doc = {
        "resource": kind.plural,
        "responseKind": named,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(_VERBS),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if version.status:
        resource["subresources"] = [
            {"subresource": "status", "responseKind": named, "verbs": list(_STATUS_VERBS)}
        ]
    return resource
