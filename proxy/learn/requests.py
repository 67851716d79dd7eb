"""What a request says of its controller: read once its answer came, and noted in `seen`. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from kubeio.rest.request_info import BadTarget, RequestInfo, first_values, request_info
from proxy.bodies import UnsupportedEncoding, read_body
from proxy.headers import Request
from proxy.learn.seen import LockName, LockSeen, Seen
from proxy.locks import LOCK_RESOURCES
from proxy.patches import PATCHES
from proxy.protobuf import Malformed, ObjectHead
from proxy.routes import CONNECTIONS

LEASES: Final = "leases.coordination.k8s.io"
_LEADER: Final = b"control-plane.alpha.kubernetes.io/leader"
"""Annotation of a lock that is no Lease; the same bytes in JSON and in protobuf."""
_NO_OBJECTS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups whose creates are questions."""
_CONFLICT: Final = 409
"""Another process was faster."""
_EVENTS: Final = frozenset({"events", "events.events.k8s.io"})
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Call(msgspec.Struct, frozen=True):
    """A request for a resource. *head*: what the object in its body says of itself, if it can be read."""

    info: RequestInfo
    selector: str = ""
    agent: str = ""
    manager: str = ""
    head: ObjectHead | None = None
    format: str = ""
    """Encoding of an object that takes no label; empty: it does, or there is none."""
    is_election: bool = False
    """Whether it is about a Lease, or says who leads."""

    @property
    def is_about_objects(self) -> bool:
        """Whether its object counts: neither an Event nor a lock."""
        return self.info.group_resource not in _EVENTS and not self.is_election

    @property
    def name(self) -> str:
        """Name of the object; of a create, as far as the body says it."""
        return self.info.name or (self.head.name if self.head is not None else "")


def read_call(request: Request) -> Call | None:
    """The call that *request* is; None if it is for no resource."""
    target = request.target.decode("utf-8", "surrogateescape")
    try:
        info = request_info(request.method.decode(), target)
    except BadTarget:
        return None
    if not info.resource or info.group in _NO_OBJECTS:
        return None
    query = first_values(target.partition("?")[2])
    head, encoding = _read_object(request, info)
    return Call(
        info,
        selector=query.get("labelSelector") or query.get("fieldSelector") or "",
        agent=request.header(b"user-agent").decode("latin-1").partition("/")[0],
        manager=query.get("fieldManager", ""),
        head=head,
        format=encoding,
        is_election=info.group_resource == LEASES or _LEADER in request.body,
    )


def _read_object(request: Request, info: RequestInfo) -> tuple[ObjectHead | None, str]:
    content_type = request.header(b"content-type").decode("latin-1")
    encoding = content_type.partition(";")[0].strip().lower()
    if info.verb not in ("create", "update", "patch") or encoding in PATCHES:
        return None, ""
    if request.header(b"content-encoding") not in (b"", b"identity"):
        return None, "a compressed body"
    try:
        return read_body(request.body, content_type).head, ""
    except UnsupportedEncoding:
        return None, encoding
    except Malformed:
        return None, ""


def note_call(seen: Seen, call: Call, status: int) -> None:
    """Note *call*, which the API server answered with *status*."""
    info = call.info
    seen.agents.update(filter(None, [call.agent]))
    seen.managers.update(filter(None, [call.manager]))
    if info.subresource in CONNECTIONS:
        seen.connections.add(f"{info.group_resource}/{info.subresource}")
        return
    if _note_lock(seen, call, status) or not call.is_about_objects:
        return
    if call.format:
        seen.kind(info.group_resource).formats.add(call.format)
    if status >= 300:
        return
    if info.verb in ("list", "watch"):
        kind = seen.kind(info.group_resource)
        kind.namespaces.add(info.namespace)
        kind.selectors.add(call.selector)
        kind.has_old_watch |= info.is_old_watch
    elif info.verb in _WRITES:
        _note_write(seen, call)


def _note_lock(seen: Seen, call: Call, status: int) -> bool:
    """Whether *call* is about a lock."""
    info = call.info
    key = LockName(info.group_resource, info.namespace, call.name)
    if info.group_resource not in LOCK_RESOURCES or not call.name or info.subresource:
        return False
    if info.verb in ("list", "watch") or not (call.is_election or key in seen.locks):
        return False
    lock = seen.locks.setdefault(key, LockSeen())
    if info.verb == "get":
        lock.reads += 1
    elif status < 300:
        lock.writes += 1
    elif info.verb == "create" and status != _CONFLICT:
        lock.refused = status
    return True


def _note_write(seen: Seen, call: Call) -> None:
    info = call.info
    kind = seen.kind(info.group_resource)
    kind.writes[f"{info.verb} {info.subresource}".strip()] += 1
    kind.before_lock += not any(lock.writes for lock in seen.locks.values())
    if info.subresource:
        return
    controller = call.head.controller if call.head is not None else None
    if info.verb == "create" and call.head is not None and controller is None:
        kind.created[""] += 1  # those with a controller are counted once its kind is resolved
    if controller is None and call.name:
        kind.note_name(f"{info.namespace}/{call.name}".strip("/"))
