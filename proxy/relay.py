"""The relay: a server on loopback that passes a controller's requests on to the API server, as its director decides.

Owns the listening socket, as whom requests are sent, and when a write is sent. What is done to which request:
`proxy.routes`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from functools import partial
from typing import Final, assert_never

from kubeio.access.cluster import Cluster
from kubeio.errors import KubeError
from kubeio.http.dialer import Dialer
from kubeio.http.endpoint import Credential
from kubeio.http.messages import BrokenMessage
from kubeio.http.tls import UnusableKeyPair
from proxy.alias import AliasedStream
from proxy.aliased_answer import AliasedAnswer, OnInvalid
from proxy.bodies import Body
from proxy.director import Admitted, Director, Write
from proxy.headers import Header, Identity, Request, request_head
from proxy.locks import EchoLocks
from proxy.loopback import HOST, Loopback
from proxy.pair import Pair
from proxy.patches import RemovesLabels
from proxy.protobuf import Malformed
from proxy.refusals import Refusal, refusal_reply
from proxy.routes import Refused, Route, Router
from proxy.server_side import ServerSide

_WITH_BODY: Final = (b"POST", b"PUT", b"PATCH")

_NOT_THE_CONTROLLER: Final = refusal_reply(
    Refusal(401, "the token is not the one that the proxy gave to its controller")
)


class Relay:
    """Serves one controller. One event loop; `serving` may be entered once."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        loopback: Loopback,
        director: Director,
        locks: EchoLocks,
        impersonation: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Requests go to *cluster* with its credentials and, if given, as whom the headers of *impersonation* say."""
        self._endpoint = cluster.endpoint
        self._credentials = cluster.credentials
        self._dialer = Dialer(cluster.endpoint, cluster.trust, cluster.proxy)
        self._tls = loopback.tls
        self._director = director
        self._router = Router(loopback, director, locks)
        self._identity = Identity((*cluster.impersonation, *impersonation))
        self._fixed: tuple[Credential, bytes] | None = None
        self._pairs: set[Pair] = set()
        self._sending: dict[Pair, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._none_left = asyncio.Event()
        self._is_ending = False

    @property
    def pairs(self) -> int:
        """Open connections of the controller, and those that still await the answer to a write."""
        return len(self._pairs)

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[int]:
        """Listen on *port* of loopback, or (0) on a free one, which is given; leaving closes every connection.

        Raises: OSError if the port is taken; what the director raises.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            server = await loop.create_server(lambda: Pair(self), HOST, port, ssl=self._tls)
            try:
                yield server.sockets[0].getsockname()[1]
            finally:
                server.close()
                await self._end()

    def hang_up(self) -> None:
        """Close the controller's connections at once. Answers to its writes are still read."""
        for pair in list(self._pairs):
            pair.cut()

    async def wait_quiet(self) -> None:
        """Return when no connection is left, and every write that was sent has its answer."""
        while self._pairs:
            self._none_left.clear()
            await self._none_left.wait()

    # -- Handler -----------------------------------------------------------------------------------------

    def opened(self, pair: Pair) -> None:
        self._pairs.add(pair)
        if self._is_ending:  # its handshake was under way
            pair.cut()

    def closed(self, pair: Pair) -> None:
        self._pairs.discard(pair)
        if not self._pairs:
            self._none_left.set()

    def hung_up(self, pair: Pair) -> None:
        if (task := self._sending.get(pair)) is not None:
            task.cancel()

    def answered(self, pair: Pair, status: int) -> None:
        if status == 401 and (credential := self._credentials.current()) is not None:
            self._credentials.reject(credential)

    def refuse(self, pair: Pair, status: int, reason: str) -> bytes:
        return refusal_reply(Refusal(status, reason))

    def reject(self, headers: list[Header]) -> bytes | None:
        return None if self._router.admits(headers) else _NOT_THE_CONTROLLER

    def handle(self, pair: Pair, request: Request) -> None:
        try:
            reply_or_route = self._router.route(request)
        except Refused as refused:
            pair.answer(refusal_reply(refused.refusal))
            return
        except Exception as error:  # the director's: the event loop would only log it
            self._fail(error)
            pair.cut()
            return
        if isinstance(reply_or_route, bytes):
            pair.answer(reply_or_route)
            return
        credential = self._credentials.current()
        if reply_or_route.write is None and credential and pair.server(credential.certificate):
            data = self._message(request, reply_or_route, credential, request.body)
            pair.forward(data, aliased=_aliased(reply_or_route))
        else:
            self._start(pair, self._send(pair, request, reply_or_route))

    # -- to the server -----------------------------------------------------------------------------------

    async def _send(self, pair: Pair, request: Request, route: Route) -> None:
        """Connect if need be, ask the director about a write, and send."""
        body = request.body
        try:
            while True:
                credential = self._credentials.current() or await self._credentials.renewed()
                if pair.server(credential.certificate) is None:
                    await self._connect(pair, credential)
                if route.write is not None:
                    body = await self._admitted(route.write, route.body, request.body)
                if not pair.is_open:
                    return
                if pair.server(credential.certificate) is not None:
                    break  # else the server closed meanwhile
        except Refused as refused:
            pair.answer(refusal_reply(refused.refusal))
            return
        except (BrokenMessage, UnusableKeyPair, KubeError) as error:
            pair.answer(refusal_reply(Refusal(503, f"the API server cannot be reached: {error}")))
            return
        data = self._message(request, route, credential, body)
        if route.write is None:
            pair.forward(data, aliased=_aliased(route))
            return
        self._director.begin(route.write)
        answer = _aliased(route, partial(self._instead_of, route.write))
        pair.forward(data, partial(self._note_end, route.write), answer)

    def _instead_of(self, write: Write, answer: bytes) -> bytes:
        refusal = self._director.instead_of(write, answer)
        return answer if refusal is None else refusal_reply(refusal)

    def _note_end(self, write: Write, status: int | None) -> None:
        try:
            self._director.end(write, status)
        except Exception as error:  # the event loop would only log it
            self._fail(error)

    async def _connect(self, pair: Pair, credential: Credential) -> None:
        server = ServerSide(pair, credential.certificate)
        try:
            await self._dialer.connect(server, credential.certificate)
        except BaseException:
            server.detach()
            raise
        pair.attach(server)

    async def _admitted(self, write: Write, body: Body | None, content: bytes) -> bytes:
        """The body to send. Raises Refused."""
        verdict = await self._director.admit(write)
        match verdict:
            case Refusal():
                raise Refused(verdict)
            case Admitted():
                return _labelled(body, verdict) if body is not None and verdict.labels else content
        assert_never(verdict)

    def _message(self, request: Request, route: Route, credential: Credential, body: bytes) -> bytes:
        if self._fixed is None or self._fixed[0] is not credential:
            authorization = credential.authorization
            lines = f"Host: {self._endpoint.authority}\r\n"
            lines += f"Authorization: {authorization}\r\n" if authorization else ""
            self._fixed = (credential, lines.encode("latin-1"))
        target = (self._endpoint.base_path + route.target).encode("utf-8", "surrogateescape")
        head = request_head(
            b"%b %b HTTP/1.1\r\n" % (request.method, target),
            request.headers,
            fixed=self._fixed[1],
            identity=self._identity,
            without=route.without,
        )
        if request.is_upgrade:
            return b"%bConnection: Upgrade\r\nUpgrade: %b\r\n\r\n" % (head, request.header(b"upgrade"))
        if not body and request.method not in _WITH_BODY:
            return head + b"\r\n"
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)

    def _start(self, pair: Pair, sending: Coroutine[object, object, None]) -> None:
        task = self._group.create_task(sending, name="send a request to the API server")
        self._sending[pair] = task
        task.add_done_callback(lambda _: self._sending.pop(pair, None))

    def _fail(self, error: Exception) -> None:
        """End the relay with *error*."""
        self._group.create_task(_raise(error), name="a fault of the director")

    @property
    def _group(self) -> asyncio.TaskGroup:
        if self._tasks is None:
            raise RuntimeError("the relay does not serve")
        return self._tasks

    async def _end(self) -> None:
        self._is_ending = True
        for pair in list(self._pairs):
            pair.abort()
        await self.wait_quiet()


def _aliased(route: Route, on_invalid: OnInvalid | None = None) -> AliasedAnswer | None:
    return None if route.alias is None else AliasedAnswer(AliasedStream(route.alias), on_invalid)


def _labelled(body: Body, admitted: Admitted) -> bytes:
    """*body* with the labels and annotations of *admitted*. Raises Refused."""
    try:
        return body.with_labels(admitted.labels, admitted.annotations)
    except RemovesLabels as error:
        raise Refused(Refusal(422, str(error), reason="Invalid")) from None
    except Malformed as error:
        raise Refused(Refusal(400, str(error))) from None


async def _raise(error: Exception) -> None:
    raise error
