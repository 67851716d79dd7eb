"""Leader-election locks that the proxy answers itself: every controller leads, and no lock reaches the API server.

A lock is what the controller stored last: the same bytes in the same encoding. Nothing but its name is read. Owns no
socket.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from kubeio.patch import merged
from kubeio.rest.request_info import RequestInfo
from proxy.bodies import JSON, UnsupportedEncoding, read_object
from proxy.protobuf import Malformed
from proxy.refusals import Refusal, refusal_reply, reply

LOCK_RESOURCES: Final = frozenset({"leases.coordination.k8s.io", "configmaps", "endpoints"})
"""What client-go's leader election has used as a lock."""
_MERGE_PATCH: Final = "application/merge-patch+json"


class EchoLocks:
    """The locks called *names*, in any namespace, of one life of the controller."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._stored: dict[tuple[str, str, str], tuple[bytes, str]] = {}

    def forget(self) -> None:
        """Begin a new life of the controller: it finds no lock, so that it waits for no predecessor."""
        self._stored.clear()

    def reply(self, info: RequestInfo, body: bytes, content_type: str) -> bytes | None:
        """The answer to a request for a lock; None if it is for something else.

        A list or watch is for something else: it shows what the API server has.
        """
        if info.group_resource not in LOCK_RESOURCES or info.subresource:
            return None
        name = info.name
        if info.verb == "create":
            name = _name_in(body, content_type)
        elif info.verb in ("list", "watch", "deletecollection"):
            return None
        if name not in self._names:
            return None
        return self._reply(info.verb, (info.group_resource, info.namespace, name), body, content_type)

    def _reply(self, verb: str, key: tuple[str, str, str], body: bytes, content_type: str) -> bytes:
        stored = self._stored.get(key)
        if verb == "create":
            if stored is not None:
                return refusal_reply(Refusal(409, f"the lock {key[2]} exists", reason="AlreadyExists"))
            return self._store(201, key, body, content_type)
        if stored is None:
            return refusal_reply(Refusal(404, f"the lock {key[2]} does not exist"))
        match verb:
            case "update":
                return self._store(200, key, body, content_type)
            case "patch":
                return self._patch(key, stored, body, content_type)
            case "delete":
                del self._stored[key]
        return reply(200, *stored)

    def _store(self, status: int, key: tuple[str, str, str], body: bytes, content_type: str) -> bytes:
        self._stored[key] = (body, content_type)
        return reply(status, body, content_type)

    def _patch(
        self, key: tuple[str, str, str], stored: tuple[bytes, str], body: bytes, content_type: str
    ) -> bytes:
        content, encoding = stored
        if content_type.partition(";")[0] != _MERGE_PATCH or not encoding.startswith(JSON):
            return refusal_reply(Refusal(415, f"the lock {key[2]} takes merge patches of JSON only"))
        try:
            changed = merged(msgspec.json.decode(content), msgspec.json.decode(body))
        except msgspec.DecodeError as error:
            return refusal_reply(Refusal(400, f"the patch of the lock {key[2]} is no JSON: {error}"))
        return self._store(200, key, msgspec.json.encode(changed), encoding)


def _name_in(body: bytes, content_type: str) -> str:
    """The name of the object in *body*; empty if it cannot be read."""
    try:
        return read_object(body, content_type).head.name
    except (Malformed, UnsupportedEncoding):
        return ""
