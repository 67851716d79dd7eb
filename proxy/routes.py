"""What is done to which request of a controller: refused, answered here, or passed on with a selection.

Owns who may ask at all. Sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeio.rest.request_info import BadTarget, RequestInfo, request_info
from proxy.alias import Alias
from proxy.bodies import Body, UnsupportedEncoding, read_body
from proxy.director import Director, Write
from proxy.headers import Header, Request, first_value
from proxy.locks import EchoLocks
from proxy.loopback import Loopback
from proxy.protobuf import Malformed
from proxy.refusals import Refusal
from proxy.selection import select

_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_COLLECTIONS: Final = frozenset({"list", "watch", "deletecollection"})
CONNECTIONS: Final = frozenset({"attach", "exec", "portforward", "proxy"})
"""Subresources that are connections to something else: they pass whole."""

_PROTOCOLS: Final = frozenset({b"spdy/3.1", b"websocket"})
"""Protocols of Kubernetes' connections. Another one, HTTP/2 say, could carry requests past the director."""


class Refused(Exception):
    """The request is answered by *refusal*."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.message)


@dataclass(frozen=True, slots=True)
class Route:
    """What goes to the server for a request: *target*, without the header *without*; *write* if it is one.

    *alias*: what stands in the answer instead of the shard's name.
    """

    target: str
    without: bytes = b""
    alias: Alias | None = None
    write: Write | None = None
    body: Body | None = None


class Router:
    """Routes of the requests that come by *loopback*, as *director* decides; *locks* are answered here."""

    def __init__(self, loopback: Loopback, director: Director, locks: EchoLocks) -> None:
        self._loopback = loopback
        self._director = director
        self._locks = locks

    def admits(self, headers: list[Header]) -> bool:
        """Whether a request with *headers* is the controller's."""
        return self._loopback.admits(first_value(headers, b"authorization"))

    def route(self, request: Request) -> Route | bytes:
        """What goes to the server, or the answer. Raises Refused."""
        target = request.target.decode("utf-8", "surrogateescape")
        try:
            info = request_info(request.method.decode(), target)
        except BadTarget as error:
            raise Refused(Refusal(400, str(error))) from None
        if request.is_upgrade and request.header(b"upgrade").lower() not in _PROTOCOLS:
            raise Refused(Refusal(400, "only SPDY/3.1 and websocket can be switched to"))
        if info.subresource in CONNECTIONS:
            return Route(target)
        is_read = request.method in (b"GET", b"HEAD")
        if not is_read and (request.is_upgrade or info.verb not in _WRITES):
            raise Refused(Refusal(405, f"{request.method.decode()} {info.path} is not passed on"))
        content_type = request.header(b"content-type").decode("latin-1")
        reply = self._locks.reply(info, request.body, content_type)
        return self._resource_route(request, info, target, content_type) if reply is None else reply

    def _resource_route(self, request: Request, info: RequestInfo, target: str, content_type: str) -> Route:
        alias, selection = self._director.alias(info), None
        if info.verb in _COLLECTIONS:
            selection = self._director.selection(info)
        if selection is not None:
            if info.is_old_watch:
                raise Refused(Refusal(410, f"{info.path} honours no selector; watch the collection instead"))
            target = select(target, selection.terms, not_older_than=selection.not_older_than, alias=alias)
        # large answers are compressed, from 1.37 on each event of a watch
        without = b"accept-encoding" if selection is not None or alias is not None else b""
        if info.verb not in _WRITES:
            return Route(target, without, alias)
        body = None
        if info.verb in ("create", "update", "patch") and self._director.reads_body(info):
            body = _read(request, content_type)
        return Route(target, without, alias, Write(info, body.head if body else None), body)


def _read(request: Request, content_type: str) -> Body:
    """The body of *request*. Raises Refused."""
    if request.header(b"content-encoding") not in (b"", b"identity"):
        raise Refused(Refusal(415, "a compressed body is not supported here"))
    try:
        return read_body(request.body, content_type)
    except UnsupportedEncoding as error:
        raise Refused(Refusal(415, str(error))) from None
    except Malformed as error:
        raise Refused(Refusal(400, str(error))) from None
