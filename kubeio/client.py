"""The only HTTP towards API servers: requests, streams, and the verbs on objects.

Owns a pool of connections, deadlines, the answer to 401, and the translation of every failure into
`kubeio.errors`. Decides no retries beyond that: callers know what may be repeated. Not for use from several
event loops. Called by everything that talks to a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from kubeio import answers
from kubeio.answers import Page
from kubeio.clock import Clock, SystemClock
from kubeio.config import Cluster
from kubeio.connection import Connection
from kubeio.credentials import Credential
from kubeio.dialer import Dialer
from kubeio.errors import ApiError, InputError, ServerFailure, Unreachable
from kubeio.exchange import Answer, Broken
from kubeio.line_stream import Lines
from kubeio.patch import ApplyPatch, Patch
from kubeio.pool import Pool, PoolClosed
from kubeio.resource import Resource

if TYPE_CHECKING:
    from kubeio.metrics import ClientMetrics

__all__ = ["Client", "Page", "Response"]

T = TypeVar("T")

_JSON: Final = "application/json"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
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


class _Call(msgspec.Struct, gc=False):
    """One request, still without credentials; its path is quoted."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    body: bytes | None = None
    content_type: str = _JSON
    is_stream: bool = False


class Client:
    """Requests to one cluster over at most *max_connections* kept connections; streams have their own.

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
    ) -> None:
        self.cluster = cluster
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._user_agent = user_agent
        self._dialer = Dialer(cluster)
        self._pool = Pool(self._dialer.dial, limit=max_connections)
        self._streams: set[Connection] = set()
        self._is_closed = False
        self._head: tuple[Credential, str] | None = None

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
        self._is_closed = True
        await self._pool.close()
        for connection in list(self._streams):
            connection.abort()
            await connection.wait_closed()

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
        call = _Call(method, _quoted(path), query, accept, body, content_type)
        answer = await self._answer(call, timeout_s)
        return Response(answer.status, answer.headers(), answer.body)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] = _NOTHING,
        accept: str = _JSON,
        connect_timeout_s: float = 30.0,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch, on a connection of its own; *connect_timeout_s* lasts until the answer begins.

        The iterator ends when the server ends the answer, and raises Unreachable when it is cut off.
        """
        call = _Call("GET", _quoted(path), query, accept, is_stream=True)
        connection, lines = await self._open_stream(call, connect_timeout_s)
        try:
            lines.translate = lambda broken: self._unreachable(call, broken)
            yield lines
        finally:
            self._end_stream(connection)

    # -- objects -----------------------------------------------------------------------------------------

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        type: type[T],  # noqa: A002 - the word of the API
        metadata_only: bool = False,
        timeout_s: float = 30.0,
    ) -> T:
        """The object, by a consistent read. Raises NotFound."""
        path = _object_path(resource, namespace, name)
        return await self._object(_Call("GET", path, _NOTHING, _accept(metadata_only)), type, timeout_s)

    async def create(
        self,
        resource: Resource,
        obj: object,
        *,
        namespace: str = "",
        type: type[T],  # noqa: A002 - the word of the API
        field_manager: str = "",
        timeout_s: float = 30.0,
    ) -> T:
        """POST *obj* (anything msgspec encodes, or JSON bytes). Raises AlreadyExists."""
        path = resource.path(namespace=_segment("namespace", namespace))
        query = {"fieldManager": field_manager} if field_manager else _NOTHING
        return await self._object(_Call("POST", path, query, _JSON, _body(obj)), type, timeout_s)

    async def replace(
        self,
        resource: Resource,
        name: str,
        obj: object,
        *,
        namespace: str = "",
        subresource: str = "",
        type: type[T],  # noqa: A002 - the word of the API
        field_manager: str = "",
        timeout_s: float = 30.0,
    ) -> T:
        """PUT *obj*: a compare-and-swap if it carries a resourceVersion. Raises Conflict, NotFound."""
        path = _object_path(resource, namespace, name, subresource)
        query = {"fieldManager": field_manager} if field_manager else _NOTHING
        return await self._object(_Call("PUT", path, query, _JSON, _body(obj)), type, timeout_s)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
        type: type[T],  # noqa: A002 - the word of the API
        metadata_only: bool = False,
        field_manager: str = "",
        timeout_s: float = 30.0,
    ) -> T:
        """Apply *patch*. Raises Invalid (a `test` failed), Conflict (stale resourceVersion), NotFound."""
        path = _object_path(resource, namespace, name, subresource)
        query = _NOTHING
        if field_manager or isinstance(patch, ApplyPatch):
            query = _patch_query(patch, field_manager)
        call = _Call("PATCH", path, query, _accept(metadata_only), patch.encode(), patch.content_type)
        return await self._object(call, type, timeout_s)

    async def delete(
        self,
        resource: Resource,
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
        await self._answer(_Call("DELETE", path, _NOTHING, _JSON, body), timeout_s)

    async def list_page(
        self,
        resource: Resource,
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
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": str(limit) if limit else "",
            "continue": continue_,
            "resourceVersion": resource_version,
            "resourceVersionMatch": resource_version_match,
        }
        call = _Call(
            "GET",
            resource.path(namespace=_segment("namespace", namespace)),
            {name: value for name, value in query.items() if value},
            _PARTIAL_LIST if metadata_only else _JSON,
        )
        answer = await self._answer(call, timeout_s)
        try:
            return answers.decode_page(answer.body)
        except answers.Unexpected as error:
            raise self._unexpected(call, answer, error) from error

    async def pages(
        self,
        resource: Resource,
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

    async def _object(self, call: _Call, kind: type[T], timeout_s: float) -> T:
        answer = await self._answer(call, timeout_s)
        try:
            return answers.decode(answer.body, kind)
        except answers.Unexpected as error:
            raise self._unexpected(call, answer, error) from error

    async def _answer(self, call: _Call, timeout_s: float) -> Answer:
        """The answer, below 300. Observed in the metrics once per request sent."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        credential = self.cluster.credentials.current() or await self._renewed(call, deadline)
        send = self._exchange if self._metrics is None else self._observed
        answer = await send(call, credential, deadline)
        if answer.status == 401:
            other = await self._other(call, credential, deadline)
            if other is not None:
                answer = await send(call, other, deadline)
        if answer.status >= 300:
            raise self._failure(call, answer)
        return answer

    async def _observed(self, call: _Call, credential: Credential, deadline: float) -> Answer:
        begun = time.perf_counter()
        status = None
        try:
            answer = await self._exchange(call, credential, deadline)
            status = answer.status
        finally:
            self._observe(status, call, begun)
        return answer

    def _observe(self, status: int | None, call: _Call, begun: float) -> None:
        if self._metrics is not None:
            host = self.cluster.endpoint.authority
            self._metrics.observe(status, call.method, host, time.perf_counter() - begun)

    async def _exchange(self, call: _Call, credential: Credential, deadline: float) -> Answer:
        request = self._request_bytes(call, credential)
        is_head = call.method == "HEAD"
        fresh = False
        while True:
            connection = None if fresh else self._pool.take(credential.certificate)
            if connection is None:
                connection = await self._acquire(call, credential, deadline, fresh=fresh)
            was_used = connection.exchanges > 0
            try:
                answer = await connection.exchange(request, deadline=deadline, head_only=is_head)
            except BaseException:
                self._pool.discard(connection)
                raise
            if isinstance(answer, Answer):
                self._pool.release(connection)
                return answer
            self._pool.discard(connection)
            if fresh or not was_used or answer.answered or answer.expired or call.method != "GET":
                raise self._unreachable(call, answer)
            fresh = True

    async def _acquire(
        self, call: _Call, credential: Credential, deadline: float, *, fresh: bool
    ) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.acquire(credential.certificate, fresh=fresh)
        except TimeoutError:
            reason = "no connection in time"
        except PoolClosed:
            reason = "this client is closed"
        except Broken as broken:
            reason = broken.reason
        raise Unreachable(self._attempted(call), reason, maybe_done=False)

    async def _open_stream(self, call: _Call, timeout_s: float) -> tuple[Connection, Lines]:
        deadline = asyncio.get_running_loop().time() + timeout_s
        credential = self.cluster.credentials.current() or await self._renewed(call, deadline)
        answer, connection = await self._begin_stream(call, credential, deadline)
        if answer.status == 401:
            other = await self._other(call, credential, deadline)
            if other is not None:
                self._end_stream(connection)
                answer, connection = await self._begin_stream(call, other, deadline)
        if connection.lines is None:
            self._end_stream(connection)
            raise self._failure(call, answer)
        return connection, connection.lines

    async def _begin_stream(
        self, call: _Call, credential: Credential, deadline: float
    ) -> tuple[Answer, Connection]:
        if self._is_closed:
            raise Unreachable(self._attempted(call), "this client is closed", maybe_done=False)
        begun = time.perf_counter()
        connection: Connection | None = None
        answer: Answer | Broken | None = None
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._dialer.dial(credential.certificate)
            self._streams.add(connection)
            connection.on_lost(self._streams.discard)
            answer = await connection.stream(self._request_bytes(call, credential), deadline=deadline)
        except TimeoutError:
            raise Unreachable(self._attempted(call), "no connection in time", maybe_done=False) from None
        except Broken as broken:
            raise self._unreachable(call, broken) from broken.__cause__
        finally:
            if connection is not None and not isinstance(answer, Answer):
                self._end_stream(connection)
            self._observe(answer.status if isinstance(answer, Answer) else None, call, begun)
        if isinstance(answer, Broken):
            raise self._unreachable(call, answer)
        return answer, connection

    def _end_stream(self, connection: Connection) -> None:
        connection.abort()
        self._streams.discard(connection)

    async def _renewed(self, call: _Call, deadline: float) -> Credential:
        try:
            async with asyncio.timeout_at(deadline):
                return await self.cluster.credentials.renewed()
        except TimeoutError:
            reason = f"no credentials in time ({self.cluster.user})"
            raise Unreachable(self._attempted(call), reason, maybe_done=False) from None

    async def _other(self, call: _Call, refused: Credential, deadline: float) -> Credential | None:
        """Credentials other than *refused*, if the source has any."""
        credentials = self.cluster.credentials
        credentials.reject(refused)
        credential = credentials.current() or await self._renewed(call, deadline)
        return None if credential == refused else credential

    def _request_bytes(self, call: _Call, credential: Credential) -> bytes:
        if self._head is None or self._head[0] is not credential:
            self._head = (credential, self._static_head(credential))
        path = call.path
        query = "?" + urlencode(call.query) if call.query else ""
        head = (
            f"{call.method} {self.cluster.endpoint.base_path}{path}{query} HTTP/1.1\r\n{self._head[1]}"
            f"Accept: {call.accept}\r\n"
        )
        body = call.body
        if body is None:
            # servers since 1.37 compress watches, too, if they may; nobody gains by it
            encoding = "identity" if call.is_stream else "gzip"
            return f"{head}Accept-Encoding: {encoding}\r\n\r\n".encode("latin-1")
        return (
            f"{head}Content-Type: {call.content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode(
                "latin-1"
            )
            + body
        )

    def _static_head(self, credential: Credential) -> str:
        lines = [f"Host: {self.cluster.endpoint.authority}", f"User-Agent: {self._user_agent}"]
        if credential.authorization:
            lines.append(f"Authorization: {credential.authorization}")
        lines.extend(f"{name}: {value}" for name, value in self.cluster.impersonation)
        return "".join(f"{line}\r\n" for line in lines)

    def _attempted(self, call: _Call) -> str:
        return f"{call.method} {call.path} on {self.cluster.server}"

    def _failure(self, call: _Call, answer: Answer) -> ApiError:
        return answers.failure(self._attempted(call), answer, now=self._clock.wall())

    def _unexpected(self, call: _Call, answer: Answer, error: answers.Unexpected) -> ServerFailure:
        return ServerFailure(
            self._attempted(call), status=answer.status, reason="UnexpectedAnswer", message=str(error)
        )

    def _unreachable(self, call: _Call, broken: Broken) -> Unreachable:
        return Unreachable(self._attempted(call), broken.reason, maybe_done=broken.sent)


def _accept(metadata_only: bool) -> str:
    return _PARTIAL if metadata_only else _JSON


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


def _object_path(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
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
