"""The HTTPS server: authentication, dispatch, bookmarks and runs of the garbage collector.

Runs on one event loop in a process of its own (`process`); owns connections, open watches and timers.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from typing import Final, Never

import msgspec
import structlog

from devcluster.accounts import ANONYMOUS, Account, read_token
from devcluster.embedded.connection import Connection, RawRequest
from devcluster.embedded.endpoints import Answer, Call, Endpoints, verb_of
from devcluster.embedded.status import Refusal, bad_request, no_such_resource, unauthorized
from devcluster.embedded.streams import WatchStream
from devcluster.embedded.watches import Watch
from devcluster.embedded.writelog import WriteLog
from devcluster.listening import bound_socket

_log = structlog.get_logger("devcluster.embedded")
_COLLECTOR_DELAY_S: Final = 0.02
_ANSWERED_S: Final = 0.01
"""Until the answer to an order for a restart is out."""
_ANONYMOUS_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})


class Restart(msgspec.Struct):
    away_s: float = 0.0


class Server:
    """`start`, then serve until the loop ends."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext,
        key: bytes,
        log: WriteLog,
        history_limit: int,
        rbac: bool,
        bookmark_interval_s: float,
        url: str,
        listener: socket.socket,
    ) -> None:
        self._tls: Final = tls
        self._key: Final = key
        self._writes: Final = log
        self._address: Final = listener.getsockname()
        self._bookmark_interval_s: Final = bookmark_interval_s
        self._connections: set[Connection] = set()
        self._accounts: dict[bytes, Account | None] = {}
        self._collector_scheduled = False
        self._first_listener: Final = listener
        self._listener: asyncio.Server | None = None
        self._loop: Final = asyncio.get_running_loop()
        self._restarts: Final[asyncio.Queue[float]] = asyncio.Queue()
        self._new_endpoints: Final = partial(
            Endpoints,
            log=log,
            history_limit=history_limit,
            rbac=rbac,
            url=url,
            wake_collector=self._wake_collector,
            account_of=lambda token: read_token(key, token),
        )
        self.endpoints: Endpoints = self._new_endpoints()

    async def start(self) -> None:
        """Listen, and begin to send bookmarks."""
        await self._listen(self._first_listener)
        self._loop.call_later(self._bookmark_interval_s, self._send_bookmarks)

    async def run(self) -> Never:
        """Carry out restarts until cancelled."""
        while True:
            away_s = await self._restarts.get()
            self._leave()
            _log.info("restarting", away_s=away_s)
            await asyncio.sleep(away_s)
            await self._listen(bound_socket(self._address[1], self._address[0]))

    async def _listen(self, listener: socket.socket) -> None:
        self._listener = await self._loop.create_server(
            lambda: Connection(self), sock=listener, ssl=self._tls, backlog=1024
        )

    # connections

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def handle(self, connection: Connection, request: RawRequest) -> None:
        try:
            self._handle(connection, request)
        except Refusal as refusal:
            connection.refuse(refusal)
        except Exception as error:
            _log.exception("request failed", method=request.method, path=request.path)
            connection.refuse(Refusal(500, "InternalError", f"Internal error occurred: {error!r}"))

    def _handle(self, connection: Connection, request: RawRequest) -> None:
        account = self._account(request)
        if request.path.startswith("/_plane/"):
            connection.answer(self._serve_order(connection, request, account))
            return
        if account.user != ANONYMOUS.user:
            self.endpoints.authorize(account, request.method, request.target)
        target = self.endpoints.target(request.path)
        call = Call(
            request.method,
            request.path,
            request.query,
            request.body,
            request.header(b"content-type").partition(";")[0].strip(),
            request.header(b"accept"),
            request.header(b"user-agent"),
            account,
        )
        result = self.endpoints.serve(call, target, verb_of(request.method, target, request.query))
        if not isinstance(result, Watch):
            connection.answer(result)
        elif connection.transport is not None:
            connection.stream(WatchStream(result, connection.transport, on_end=connection.stream_ended))

    def _account(self, request: RawRequest) -> Account:
        header = request.headers.get(b"authorization", b"")
        if header in self._accounts:
            account = self._accounts[header]
        else:
            scheme, _, token = header.decode("latin-1").partition(" ")
            account = read_token(self._key, token.strip()) if scheme.lower() == "bearer" else None
            if account is not None:
                self._accounts[header] = account
        if account is None:
            if not header and request.path.rstrip("/") in _ANONYMOUS_PATHS:
                return ANONYMOUS
            raise unauthorized()
        if user := request.header(b"impersonate-user"):
            groups = tuple(filter(None, request.header(b"impersonate-group").split(",")))
            return self.endpoints.impersonate(account, user, groups)
        return account

    def _serve_order(self, connection: Connection, request: RawRequest, account: Account) -> Answer:
        if not account.is_admin:
            raise Refusal(403, "Forbidden", "the administrator only gives such orders")
        match request.method, request.path:
            case "POST", "/_plane/restart":
                order = _restart_order(request.body)
                self._loop.call_later(_ANSWERED_S, self._restarts.put_nowait, order.away_s)
                return Answer(b"{}", 202)
            case "POST", "/_plane/wipe":
                self._wipe(asking=connection)
                return Answer(b"{}")
        raise no_such_resource()

    # restart

    def _leave(self) -> None:
        """Connections and history are lost, the objects are kept."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.abort()
        for kind in self.endpoints.registry:
            kind.collection.forget_history()

    def _wipe(self, *, asking: Connection) -> None:
        """A new server at the same address: no objects, definitions, connections or logged writes.

        Tokens stay valid.
        """
        for connection in self._connections - {asking}:
            connection.abort()
        self._writes.wipe()
        self.endpoints = self._new_endpoints()

    # timers

    def _send_bookmarks(self) -> None:
        for connection in self._connections:
            if connection.watch is not None and not connection.watch.closed:
                connection.watch.bookmark()
        self._loop.call_later(self._bookmark_interval_s, self._send_bookmarks)

    def _wake_collector(self) -> None:
        if not self._collector_scheduled:
            self._collector_scheduled = True
            self._loop.call_later(_COLLECTOR_DELAY_S, self._collect)

    def _collect(self) -> None:
        self._collector_scheduled = False
        if self.endpoints.collector.work():
            self._wake_collector()


def _restart_order(body: bytes) -> Restart:
    try:
        return msgspec.json.decode(body or b"{}", type=Restart)
    except msgspec.DecodeError as error:
        raise bad_request(f"restart: {error}") from error
