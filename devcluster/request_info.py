"""RequestInfo: verb, resource and name of a request, from its method, path and query alone. Pure.

Knows no registry: a resource need not be served. RBAC and faults are decided by this.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

_NAMED_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


class RequestInfo(msgspec.Struct, frozen=True):
    """A request for a resource, or (*resource* empty) for a path."""

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def group_resource(self) -> str:
        """`websites.example.com`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


def request_info(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """The request *method* on *path*."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return RequestInfo(method.lower(), path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    verb = _NAMED_VERBS.get(method, method.lower())
    if not name and verb in ("get", "delete"):
        is_watch = query.get("watch") in ("true", "1")
        verb = "deletecollection" if verb == "delete" else "watch" if is_watch else "list"
        selector = query.get("fieldSelector", "")
        if selector.startswith("metadata.name=") and "," not in selector:
            name = selector.removeprefix("metadata.name=").removeprefix("=")
    return RequestInfo(verb, path, group, rest[0], subresource, namespace, name)
