"""The HTTPS server: who asks, which faults strike, what is answered; bookmarks and the collector's turns.

Runs on one event loop in a process of its own (`process`); owns connections, open watches and timers.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from functools import partial
from typing import Final, Never

import msgspec
import structlog

from devcluster.embedded.accounts import ANONYMOUS, Account, read_token
from devcluster.embedded.connection import Connection, RawRequest
from devcluster.embedded.endpoints import Answer, Call, Endpoints, verb_of
from devcluster.embedded.faults import Fault, Faults, Hit, What, parse_fault
from devcluster.embedded.paths import Target
from devcluster.embedded.status import Refusal, bad_request, no_such_resource, unauthorized, unsupported_verb
from devcluster.embedded.streams import WatchStream
from devcluster.embedded.watches import Watch
from devcluster.embedded.writelog import WriteLog

Struck = dict[What, Fault]
_log = structlog.get_logger("devcluster.embedded")
_COLLECTOR_DELAY_S: Final = 0.02
_ANSWERED_S: Final = 0.01
"""Until the answer to an order for a restart is out."""
_TIMER_GRAIN_S: Final = 0.005
"""The loop's clock may run that much ahead: what expires must be over when its timer fires."""
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
        self._faults: Final = Faults()
        self._connections: set[Connection] = set()
        self._accounts: dict[bytes, Account | None] = {}
        self._collector_scheduled = False
        self._first_listener: Final = listener
        self._listener: asyncio.Server | None = None
        self._loop: Final = asyncio.get_running_loop()
        self._restarts: Final[asyncio.Queue[float]] = asyncio.Queue()
        self._cut_off: set[tuple[str, Connection]] = set()
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
        """Carry out the restarts that are ordered, for ever."""
        while True:
            away_s = await self._restarts.get()
            self._leave()
            _log.info("restarting", away_s=away_s)
            await asyncio.sleep(away_s)
            await self._listen(socket.create_server(self._address, backlog=1024))

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
        connection.user = account.user
        if request.path.startswith("/_faults"):
            connection.answer(self._serve_faults(connection, request, account))
            return
        if account.user != ANONYMOUS.user:
            self.endpoints.authorize(account, request.method, request.path, request.query)
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
        verb = verb_of(request.method, target, request.query)
        if self._faults:
            self._handle_with_faults(connection, call, target, verb)
        else:
            self._carry_out(connection, call, target, verb)

    def _carry_out(
        self,
        connection: Connection,
        call: Call,
        target: Target | None,
        verb: str,
        *,
        as_of: int | None = None,
        muted: bool = False,
    ) -> None:
        result = self.endpoints.serve(call, target, verb, as_of=as_of)
        if isinstance(result, Watch):
            if connection.transport is not None:
                stream = WatchStream(
                    result, connection.transport, user=call.account.user, on_end=connection.stream_ended
                )
                connection.stream(stream)
                stream.muted = muted
            return
        connection.answer(result)

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
        return account

    # faults

    def _handle_with_faults(
        self, connection: Connection, call: Call, target: Target | None, verb: str
    ) -> None:
        hit = Hit(
            call.account.user,
            verb,
            target.kind.resource if target else "",
            target.namespace if target else "",
            target.name if target else "",
        )
        struck: Struck = {fault.what: fault for fault in self._faults.hit(hit, now=self._now())}
        if "partition" in struck:
            self._cut_off.add((struck["partition"].id, connection))
            return
        if "latency" in struck:
            self._loop.call_later(
                struck["latency"].delay_s, self._strike, connection, call, target, verb, struck
            )
            return
        self._strike(connection, call, target, verb, struck)

    def _strike(
        self,
        connection: Connection,
        call: Call,
        target: Target | None,
        verb: str,
        struck: Struck,
    ) -> None:
        try:
            self._strike_now(connection, call, target, verb, struck)
        except Refusal as refusal:
            connection.refuse(refusal)

    def _strike_now(
        self,
        connection: Connection,
        call: Call,
        target: Target | None,
        verb: str,
        struck: Struck,
    ) -> None:
        if fault := struck.get("error"):
            raise _ordered_error(fault)
        if "drop_watches" in struck and verb == "watch":
            connection.abort()
            return
        if "lose_answer" in struck:
            try:
                self.endpoints.serve(call, target, verb)
            finally:
                connection.abort()
            return
        as_of = None
        if fault := struck.get("stale_lists"):
            current = self.endpoints.versions.current
            as_of = fault.version if fault.version is not None else current - fault.behind
        muted = "mute_watches" in struck
        self._carry_out(connection, call, target, verb, as_of=as_of, muted=muted)

    def _serve_faults(self, connection: Connection, request: RawRequest, account: Account) -> Answer:
        if not account.is_admin:
            raise Refusal(403, "Forbidden", "faults are ordered by the administrator only")
        parts = request.path.strip("/").split("/")[1:]
        match request.method, parts:
            case "GET", []:
                return Answer(msgspec.json.encode({"faults": self._faults.active()}))
            case "POST", []:
                return Answer(msgspec.json.encode(self._add_fault(parse_fault(request.body))), 201)
            case "POST", ["restart"]:
                order = _restart_order(request.body)
                self._loop.call_later(_ANSWERED_S, self._restarts.put_nowait, order.away_s)
                return Answer(b"{}", 202)
            case "POST", ["wipe"]:
                self._wipe(asking=connection)
                return Answer(b"{}")
            case "DELETE", []:
                self._clear_faults()
                return Answer(b"{}")
            case "DELETE", [fault_id]:
                fault_gone = self._faults.remove(fault_id)
                if fault_gone is None:
                    raise no_such_resource()
                self._end_fault(fault_gone)
                return Answer(b"{}")
        raise unsupported_verb()

    def _add_fault(self, fault: Fault) -> Fault:
        added = self._faults.add(fault, now=self._now())
        if fault.for_s is not None:
            self._loop.call_later(fault.for_s + _TIMER_GRAIN_S, self._expire_faults)
        if fault.what in ("drop_watches", "mute_watches", "partition"):
            for connection in self._watching(added):
                if fault.what == "drop_watches":
                    connection.abort()
                    continue
                if connection.watch is not None:
                    connection.watch.muted = True
                if fault.what == "partition":
                    self._cut_off.add((added.id, connection))
        return added

    def _clear_faults(self) -> None:
        for fault in self._faults.active():
            self._end_fault(self._faults.remove(fault.id))

    def _watching(self, fault: Fault) -> list[Connection]:
        """Connections with an open watch that *fault* strikes."""
        found = []
        for connection in self._connections:
            stream = connection.watch
            if stream is None or stream.closed:
                continue
            target = stream.watch.target
            hit = Hit(stream.user, "watch", target.kind.resource, target.namespace, target.name)
            if self._faults.hit(hit, now=self._now(), only_id=fault.id):
                found.append(connection)
        return found

    def _expire_faults(self) -> None:
        for fault in self._faults.expire(now=self._now()):
            self._end_fault(fault)

    def _end_fault(self, fault: Fault | None) -> None:
        """A partition that ends cuts what it held: nothing held is carried out later."""
        if fault is None or fault.what != "partition":
            return
        for held in [held for held in self._cut_off if held[0] == fault.id]:
            self._cut_off.discard(held)
            held[1].abort()

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
        """A new server at the same address: no objects, definitions, faults, connections or logged writes.

        Tokens stay valid.
        """
        for connection in self._connections - {asking}:
            connection.abort()
        self._clear_faults()
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

    @staticmethod
    def _now() -> float:
        return time.monotonic()


def _ordered_error(fault: Fault) -> Refusal:
    reason = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}.get(
        fault.code, "Unknown"
    )
    message = fault.message or f"ordered by a fault ({fault.id})"
    return Refusal(fault.code, reason, message, retry_after_s=fault.retry_after_s)


def _restart_order(body: bytes) -> Restart:
    try:
        return msgspec.json.decode(body or b"{}", type=Restart)
    except msgspec.DecodeError as error:
        raise bad_request(f"restart: {error}") from error
