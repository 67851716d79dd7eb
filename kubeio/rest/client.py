"""The only HTTP towards API servers: requests, streams, and the verbs on objects.

Owns what is sent for each verb, how its answer is decoded, and the translation of every failure into
`kubeio.errors`. Connections, credentials and deadlines are the transport's. Decides no retries: callers know what may
be repeated. Not for use from several event loops.
"""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec

from kubeio.access.cluster import Cluster
from kubeio.clock import Clock, SystemClock
from kubeio.errors import InputError, KubeError, ServerFailure, Unreachable
from kubeio.http.lines import Lines
from kubeio.http.messages import Answer, BrokenMessage, Call
from kubeio.http.tls import UnusableKeyPair
from kubeio.http.transport import SocketTransport, Transport
from kubeio.patch import ApplyPatch, Patch
from kubeio.resource import ApiResource
from kubeio.rest import answers
from kubeio.rest.answers import Page

if TYPE_CHECKING:
    from kubeio.rest.metrics import ClientMetrics

__all__ = ["Client", "Page", "Response"]

T = TypeVar("T")

_JSON: Final = "application/json"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_NOTHING: Final[Mapping[str, str]] = {}
_SAFE_PATH: Final = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@/%-]*").fullmatch
_SAFE_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+").fullmatch
_encode = msgspec.json.Encoder().encode


class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer below 300. Header names are in lower case; the body is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Requests to one cluster over at most *max_connections* kept connections; streams have their own.

    With *transport*, calls go over that instead.

    Raises: a leaf of ApiError for an answer of 300 or above (redirects are not followed), Unreachable for
    none, InputError when the credentials that the kubeconfig describes cannot be had at all.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        max_connections: int = 64,
        user_agent: str = "ringleader",
        clock: Clock | None = None,
        metrics: ClientMetrics | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.cluster = cluster
        self._headers: tuple[tuple[str, str], ...] = ()
        self._clock = clock or SystemClock()
        self._transport = transport or SocketTransport(
            cluster.endpoint,
            trust=cluster.trust,
            proxy=cluster.proxy,
            credentials=cluster.credentials,
            headers=(("User-Agent", user_agent), *cluster.impersonation),
            max_connections=max_connections,
            observe=None if metrics is None else metrics.observe,
        )

    def with_headers(self, headers: tuple[tuple[str, str], ...]) -> Client:
        """A client that sends *headers* with each request, over the connections of this one, which closes them."""
        client = copy.copy(self)
        client._headers = self._headers + headers
        return client

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; calls still under way fail."""
        await self._transport.close()

    # -- requests ----------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = _NOTHING,
        body: bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout_s: float = 30.0,
    ) -> Response:
        """One request and its whole answer, within *timeout_s*.

        Repeated silently: a GET whose kept connection turned out closed before any byte of the answer; any
        request after 401, once, if other credentials were found.
        """
        call = Call(method, _quoted(path), query, accept, body, content_type)
        answer = await self._answer(call, timeout_s)
        return Response(answer.status, answer.headers(), answer.body)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] = _NOTHING,
        accept: str = _JSON,
        connect_timeout_s: float = 30.0,
    ) -> AsyncIterator[Lines]:
        """The lines of a watch, on a connection of its own; *connect_timeout_s* lasts until the answer begins.

        The iterator ends when the server ends the answer. Leaving the block raises Unreachable if it was cut off.
        """
        call = Call("GET", _quoted(path), query, accept, is_stream=True, headers=self._headers)
        try:
            async with self._transport.stream(call, connect_timeout_s) as lines:
                if isinstance(lines, Answer):
                    raise self._failure(call, lines)
                yield lines
        except (BrokenMessage, UnusableKeyPair) as error:
            raise self._translated(call, error) from error.__cause__

    # -- objects -----------------------------------------------------------------------------------------

    async def get(
        self,
        resource: ApiResource,
        name: str,
        *,
        namespace: str = "",
        type: type[T],  # noqa: A002 - the API's name
        metadata_only: bool = False,
        any_version: bool = False,
        timeout_s: float = 30.0,
    ) -> T:
        """The object, by a consistent read; with *any_version* as the server's cache has it. Raises NotFound."""
        path = _object_path(resource, namespace, name)
        query = {"resourceVersion": "0"} if any_version else _NOTHING
        return await self._object(Call("GET", path, query, _accept(metadata_only)), type, timeout_s)

    async def create(
        self,
        resource: ApiResource,
        obj: object,
        *,
        namespace: str = "",
        type: type[T],  # noqa: A002 - the API's name
        field_manager: str = "",
        timeout_s: float = 30.0,
    ) -> T:
        """POST *obj* (anything msgspec encodes, or JSON bytes). Raises AlreadyExists."""
        path = resource.path(namespace=_segment("namespace", namespace))
        query = {"fieldManager": field_manager} if field_manager else _NOTHING
        return await self._object(Call("POST", path, query, _JSON, _body(obj)), type, timeout_s)

    async def replace(
        self,
        resource: ApiResource,
        name: str,
        obj: object,
        *,
        namespace: str = "",
        subresource: str = "",
        type: type[T],  # noqa: A002 - the API's name
        field_manager: str = "",
        timeout_s: float = 30.0,
    ) -> T:
        """PUT *obj*: a compare-and-swap if it carries a resourceVersion. Raises Conflict, NotFound."""
        path = _object_path(resource, namespace, name, subresource)
        query = {"fieldManager": field_manager} if field_manager else _NOTHING
        return await self._object(Call("PUT", path, query, _JSON, _body(obj)), type, timeout_s)

    async def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
        type: type[T],  # noqa: A002 - the API's name
        metadata_only: bool = False,
        field_manager: str = "",
        timeout_s: float = 30.0,
    ) -> T:
        """Apply *patch*. Raises Invalid (a `test` failed), Conflict (stale resourceVersion), NotFound."""
        path = _object_path(resource, namespace, name, subresource)
        query = _NOTHING
        if field_manager or isinstance(patch, ApplyPatch):
            query = _patch_query(patch, field_manager)
        call = Call("PATCH", path, query, _accept(metadata_only), patch.encode(), patch.content_type)
        return await self._object(call, type, timeout_s)

    async def delete(
        self,
        resource: ApiResource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        timeout_s: float = 30.0,
    ) -> None:
        """Delete, with *uid* and *resource_version* as preconditions. Raises NotFound, Conflict."""
        path = _object_path(resource, namespace, name)
        body = _encode(_delete_options(uid, resource_version, propagation))
        await self._answer(Call("DELETE", path, _NOTHING, _JSON, body), timeout_s)

    async def list_page(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        continue_: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        metadata_only: bool = False,
        timeout_s: float = 60.0,
    ) -> Page:
        """One page of a list; *limit* 0 asks for everything. Raises Expired if *continue_* is too old."""
        call = _list_call(
            resource,
            namespace,
            metadata_only,
            {
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
                "limit": str(limit) if limit else "",
                "continue": continue_,
                "resourceVersion": resource_version,
                "resourceVersionMatch": resource_version_match,
            },
        )
        answer = await self._answer(call, timeout_s)
        try:
            return answers.decode_page(answer.body)
        except answers.Unexpected as error:
            raise self._unexpected(call, answer, error) from error

    async def list_as(
        self,
        resource: ApiResource,
        *,
        type: type[T],  # noqa: A002 - the API's name
        namespace: str = "",
        label_selector: str = "",
        limit: int = 500,
        continue_: str = "",
        metadata_only: bool = False,
        timeout_s: float = 60.0,
    ) -> T:
        """One page of a consistent list, decoded straight as *type*: only what it names is kept. Raises Expired."""
        call = _list_call(
            resource,
            namespace,
            metadata_only,
            {"labelSelector": label_selector, "limit": str(limit), "continue": continue_},
        )
        return await self._object(call, type, timeout_s)

    async def pages(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        resource_version: str = "",
        resource_version_match: str = "",
        metadata_only: bool = False,
        timeout_s: float = 60.0,
    ) -> AsyncIterator[Page]:
        """Every page of a list, all of one version; *timeout_s* is for each. Expired in mid-list is raised."""
        continue_ = ""
        while True:
            page = await self.list_page(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=limit,
                continue_=continue_,
                # a continue token carries the version; the server refuses both
                resource_version="" if continue_ else resource_version,
                resource_version_match="" if continue_ else resource_version_match,
                metadata_only=metadata_only,
                timeout_s=timeout_s,
            )
            yield page
            continue_ = page.continue_
            if not continue_:
                return

    # -- inside ------------------------------------------------------------------------------------------

    async def _answer(self, call: Call, timeout_s: float) -> Answer:
        call.headers = self._headers
        try:
            answer = await self._transport.answer(call, timeout_s)
        except (BrokenMessage, UnusableKeyPair) as error:
            raise self._translated(call, error) from error.__cause__
        if answer.status >= 300:
            raise self._failure(call, answer)
        return answer

    async def _object(self, call: Call, kind: type[T], timeout_s: float) -> T:
        answer = await self._answer(call, timeout_s)
        try:
            return answers.decode(answer.body, kind)
        except answers.Unexpected as error:
            raise self._unexpected(call, answer, error) from error

    def _attempted(self, call: Call) -> str:
        """Verb, path and server, for messages."""
        return f"{call.method} {call.path} on {self.cluster.server}"

    def _failure(self, call: Call, answer: Answer) -> KubeError:
        return answers.error_of(self._attempted(call), answer, now=self._clock.wall())

    def _translated(self, call: Call, error: BrokenMessage | UnusableKeyPair) -> KubeError:
        if isinstance(error, BrokenMessage):
            return Unreachable(self._attempted(call), error.reason, maybe_done=error.sent)
        return InputError(
            "client-certificate",
            "<pair>",
            f"cannot be used ({error})",
            "give a PEM certificate and its plain key",
        )

    def _unexpected(self, call: Call, answer: Answer, error: answers.Unexpected) -> ServerFailure:
        attempted = self._attempted(call)
        return ServerFailure(attempted, status=answer.status, reason="UnexpectedAnswer", message=str(error))


def _list_call(resource: ApiResource, namespace: str, metadata_only: bool, query: Mapping[str, str]) -> Call:
    return Call(
        "GET",
        resource.path(namespace=_segment("namespace", namespace)),
        {name: value for name, value in query.items() if value},
        _PARTIAL_LIST if metadata_only else _JSON,
    )


def _accept(metadata_only: bool) -> str:
    return PARTIAL if metadata_only else _JSON


def _body(obj: object) -> bytes:
    return obj if isinstance(obj, bytes) else _encode(obj)


def _quoted(path: str) -> str:
    """*path* fit for a request line, whatever stands in it; what is quoted stays as it is."""
    return path if _SAFE_PATH(path) else quote(path, safe="/:@!$&'()*+,;=~%")


def _segment(field: str, text: str) -> str:
    """*text* as one segment of a path; empty stays empty. Raises InputError if the API could not mean it."""
    if not text or (_SAFE_SEGMENT(text) and text not in (".", "..")):
        return text
    if "/" in text or "%" in text or text in (".", ".."):
        raise InputError(field, text, "cannot be the name of an object", "write a name without / and %")
    return quote(text, safe=":")


def _object_path(resource: ApiResource, namespace: str, name: str, subresource: str = "") -> str:
    if not name:  # the path would be the collection's
        raise InputError("name", name, f"is empty (of {resource.group_resource})", "name one object")
    if resource.namespaced and not namespace:
        raise InputError(
            "namespace", namespace, f"is empty ({resource.group_resource} {name})", "name its namespace"
        )
    return resource.path(
        namespace=_segment("namespace", namespace),
        name=_segment("name", name),
        subresource=_segment("subresource", subresource),
    )


def _patch_query(patch: Patch, field_manager: str) -> dict[str, str]:
    query = {"fieldManager": field_manager} if field_manager else {}
    if isinstance(patch, ApplyPatch):
        if not field_manager:
            raise InputError(
                "field_manager", "", "is missing: server-side apply needs it", "name who applies"
            )
        query["force"] = "true" if patch.force else "false"
    return query


def _delete_options(uid: str, resource_version: str, propagation: str) -> dict[str, object]:
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    wanted = {name: value for name, value in preconditions.items() if value}
    if wanted:
        options["preconditions"] = wanted
    if propagation:
        options["propagationPolicy"] = propagation
    return options
