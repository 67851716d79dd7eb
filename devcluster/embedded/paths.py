"""From a request's path to what it is about. Pure."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from devcluster.embedded.registry import Kind, Registry, Version
from devcluster.embedded.status import Refusal, no_such_path, no_such_resource


class Target(msgspec.Struct, frozen=True):
    """A collection (*name* empty), one object, or a subresource of it."""

    kind: Kind
    version: Version
    namespace: str
    name: str
    subresource: str


def parse_target(path: str, registry: Registry) -> Target:
    """What *path* (`/api/v1/...`, `/apis/GROUP/VERSION/...`) names.

    Raises: 404 for a resource, version, scope or subresource that is not served.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (not group and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    kind = registry.get(group, rest[0])
    served = kind.versions.get(version) if kind else None
    if kind is None or served is None or len(rest) > 3 or "" in rest:
        raise _unknown(group, registry)
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if kind.namespaced:
        if name and not namespace:
            raise _unknown(group, registry)
    elif namespace:
        raise _unknown(group, registry)
    if subresource and not (subresource == "status" and served.status):
        raise _unknown(group, registry)
    return Target(kind, served, namespace, name, subresource)


def _unknown(group: str, registry: Registry) -> Refusal:
    """The real server answers with a Status inside its own groups and with text everywhere else."""
    own = not group or any(kind.builtin and kind.group == group for kind in registry)
    return no_such_resource() if own else no_such_path()
