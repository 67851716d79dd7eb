"""The fault proxy: ends the clients' TLS, decides for every request which faults strike, and passes the rest on.

Owns the listening side, the active faults and their timers. `tunnel` owns one client's connection with its own to the
server. One connection stands for one: what breaks on either side breaks on the other.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Never
from urllib.parse import urlencode, urlsplit

import msgspec

from devcluster.accounts import Account, read_token
from devcluster.faults.fault import Fault, Faults, Hit, What, matches, parse_fault
from devcluster.faults.tunnel import Request, Tunnel

_TIMER_GRAIN_S: Final = 0.005
"""The loop's clock may run that much ahead: what expires must be over when its timer fires."""
_RETRY_S: Final = 0.05
"""Between two attempts to connect with a server that is away."""
_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_REPEATED_WITHIN_S: Final = 30.0
_NOT_PASSED_ON: Final = frozenset({b"connection", b"content-length", b"transfer-encoding", b"expect"})


class FaultProxy:
    """Stands before the API servers at *upstreams*, and spreads the connections of clients over those that accept them.

    With *names_users* the proxy authenticates tokens signed with *key* and names their user in `X-Remote-User`;
    otherwise the server authenticates all tokens.
    """

    def __init__(
        self, upstreams: Sequence[str], *, upstream_tls: ssl.SSLContext, key: bytes, names_users: bool
    ) -> None:
        places = [urlsplit(upstream) for upstream in upstreams]
        self._upstreams = deque((place.hostname or "", place.port or 443) for place in places)
        self._upstream_tls: Final = upstream_tls
        self._key: Final = key
        self._names_users: Final = names_users
        self._faults: Final = Faults()
        self._tunnels: set[Tunnel] = set()
        self._stopped: set[tuple[str, Tunnel]] = set()
        self._accounts: dict[bytes, Account | None] = {}
        self._repeating: set[asyncio.Task[None]] = set()
        self._server_away: Final = asyncio.Event()

    async def serve(self, clients: socket.socket, orders: socket.socket, tls: ssl.SSLContext) -> Never:
        """Accept connections: on *orders* always, on *clients* while a server accepts them too."""
        await self._listen(orders, tls)
        while True:
            address = clients.getsockname()
            listening = await self._listen(clients, tls)
            self._server_away.clear()
            await self._server_away.wait()
            listening.close()
            while not await self._is_reachable():  # noqa: ASYNC110 - a port has no event
                await asyncio.sleep(_RETRY_S)
            clients = socket.create_server(address, backlog=1024)

    async def _listen(self, listener: socket.socket, tls: ssl.SSLContext) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Tunnel(self), sock=listener, ssl=tls, backlog=1024)

    async def _is_reachable(self) -> bool:
        for upstream in list(self._upstreams):  # connections rotate it meanwhile
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(*upstream)
                writer.close()
                return True
        return False

    # for tunnels

    async def connect(self, protocol: asyncio.Protocol) -> None:
        """Connect *protocol* with the next server in turn that accepts the connection. Raises: OSError."""
        self._upstreams.rotate(-1)
        loop = asyncio.get_running_loop()
        for upstream in list(self._upstreams):
            with contextlib.suppress(ConnectionRefusedError):
                await loop.create_connection(lambda: protocol, *upstream, ssl=self._upstream_tls)
                return
        self._server_away.set()
        raise ConnectionRefusedError("no server accepts the connection")

    def opened(self, tunnel: Tunnel) -> None:
        self._tunnels.add(tunnel)

    def closed(self, tunnel: Tunnel) -> None:
        self._tunnels.discard(tunnel)

    def handle(self, tunnel: Tunnel, request: Request) -> None:
        """Answer *request*, pass it on, or let it be lost: now or later."""
        account = self._account(request)
        request.user = account.user if account else _subject(request)
        if request.path.startswith("/_faults"):
            tunnel.answer(*self._serve_order(request, account))
            return
        if not self._faults:
            tunnel.pass_on(self._encode(request, account))
            return
        struck: dict[What, Fault] = {
            each.what: each for each in self._faults.hit(_hit(request), now=self._now())
        }
        if fault := struck.get("partition"):
            tunnel.mute(hides_end=True)
            self._stopped.add((fault.id, tunnel))
        elif fault := struck.get("hold"):
            tunnel.hold(partial(self._strike, tunnel, request, account, struck))
            self._stopped.add((fault.id, tunnel))
        elif fault := struck.get("latency"):
            asyncio.get_running_loop().call_later(
                fault.delay_s, self._strike, tunnel, request, account, struck
            )
        else:
            self._strike(tunnel, request, account, struck)

    def _strike(
        self, tunnel: Tunnel, request: Request, account: Account | None, struck: dict[What, Fault]
    ) -> None:
        is_watch = request.is_watch
        if fault := struck.get("error"):
            message = fault.message or f"ordered by a fault ({fault.id})"
            tunnel.answer(fault.code, _status(fault.code, message, fault.retry_after_s), fault.retry_after_s)
            return
        if "cut" in struck:
            tunnel.abort()
            return
        if is_watch and "expire_watches" in struck:
            tunnel.answer(200, _EXPIRED)
            return
        if is_watch and "withhold_bookmarks" in struck:
            _ask_for_no_bookmarks(request)
        if fault := struck.get("stale_lists"):
            _make_stale(request, fault.version)
        if (fault := struck.get("repeat")) and not is_watch:
            asyncio.get_running_loop().call_later(fault.delay_s, self._repeat, self._encode(request, account))
        if (fault := struck.get("slow_watches")) and is_watch:
            tunnel.slow_down(fault.delay_s)
        tunnel.pass_on(
            self._encode(request, account),
            is_lost="lose_answer" in struck,
            is_muted="mute_watches" in struck and is_watch,
        )

    def _repeat(self, data: bytes) -> None:
        """Send the request *data* to the next server in turn on a connection of our own."""
        task = asyncio.get_running_loop().create_task(self._send(data), name="repeat a request")
        self._repeating.add(task)
        task.add_done_callback(self._repeating.discard)

    async def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_REPEATED_WITHIN_S):
                reader, writer = await asyncio.open_connection(*self._upstreams[0], ssl=self._upstream_tls)
                writer.write(data)
                await reader.read(1)  # by then it is decided
                writer.close()

    # accounts

    def _account(self, request: Request) -> Account | None:
        """The account of a token that was signed with our key."""
        header = request.header(b"authorization")
        if header not in self._accounts:
            scheme, _, token = header.decode("latin-1").partition(" ")
            self._accounts[header] = (
                read_token(self._key, token.strip()) if scheme.lower() == "bearer" else None
            )
        return self._accounts[header]

    def _encode(self, request: Request, account: Account | None) -> bytes:
        """*request* for the server."""
        named = account if self._names_users else None
        lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url)]
        for name, value in request.headers:
            lowered = name.lower()
            is_identity = lowered.startswith(b"x-remote-") or (
                named is not None and lowered == b"authorization"
            )
            if lowered not in _NOT_PASSED_ON and not is_identity:
                lines.append(b"%b: %b" % (name, value))
        if named is not None:
            lines.append(b"X-Remote-User: " + named.user.encode())
            lines += [b"X-Remote-Group: " + group.encode() for group in named.groups]
        if request.body or request.method not in ("GET", "HEAD", "DELETE"):
            lines.append(b"Content-Length: %d" % len(request.body))
        return b"\r\n".join([*lines, b"", request.body])

    # orders

    def _serve_order(self, request: Request, account: Account | None) -> tuple[int, bytes]:
        if account is None or not account.is_admin:
            return 403, _status(403, "faults are ordered by the administrator only")
        parts = request.path.strip("/").split("/")[1:]
        match request.method, parts:
            case "GET", []:
                return 200, msgspec.json.encode({"faults": self._faults.active()})
            case "POST", []:
                try:
                    return 201, msgspec.json.encode(self.add(parse_fault(request.body)))
                except ValueError as error:
                    return 400, _status(400, f"fault: {error}")
            case "DELETE", []:
                self.clear()
                return 200, b"{}"
            case "DELETE", [fault_id] if ended := self._faults.remove(fault_id):
                self._end(ended)
                return 200, b"{}"
        return 404, _status(404, "there is no such fault")

    def add(self, fault: Fault) -> Fault:
        """Let *fault* strike from now on; it has an id then."""
        added = self._faults.add(fault, now=self._now())
        if fault.for_s is not None:
            asyncio.get_running_loop().call_later(fault.for_s + _TIMER_GRAIN_S, self._expire)
        if added.strikes_open_watches:
            for tunnel in list(self._tunnels):
                self._strike_open(added, tunnel)
        return added

    def clear(self) -> None:
        """End all faults."""
        for fault in self._faults.active():
            self._end(self._faults.remove(fault.id))

    def _strike_open(self, fault: Fault, tunnel: Tunnel) -> None:
        """Let *fault* strike what is open on *tunnel*."""
        request = tunnel.current
        is_order = request is not None and request.path.startswith("/_faults")
        if is_order or (fault.strikes_only_watches and not (request and request.is_watch)):
            return
        hit = _hit(request) if request else Hit(tunnel.user, tunnel.user_agent, None)
        if fault.what == "hold":
            if request is not None and matches(fault, hit):
                tunnel.hold()
                self._stopped.add((fault.id, tunnel))
            return
        if not self._faults.hit(hit, now=self._now(), only_id=fault.id):
            return
        match fault.what:
            case "cut" | "expire_watches" | "withhold_bookmarks":
                tunnel.abort()
            case "slow_watches":
                tunnel.slow_down(fault.delay_s)
            case "partition":
                tunnel.mute(hides_end=True)
                self._stopped.add((fault.id, tunnel))
            case _:
                tunnel.mute()

    def _expire(self) -> None:
        for fault in self._faults.expire(now=self._now()):
            self._end(fault)

    def _end(self, fault: Fault | None) -> None:
        """Reset the connections that a partition stopped; deliver what a hold kept."""
        if fault is None:
            return
        for stopped in [stopped for stopped in self._stopped if stopped[0] == fault.id]:
            self._stopped.discard(stopped)
            if fault.what == "partition":
                stopped[1].abort()
            else:
                stopped[1].release()

    @staticmethod
    def _now() -> float:
        return time.monotonic()


def _hit(request: Request) -> Hit:
    return Hit(request.user, request.header(b"user-agent").decode("latin-1"), request.info)


def _subject(request: Request) -> str:
    """The account that a token of the server's own names, unchecked; empty without one."""
    token = request.header(b"authorization").partition(b" ")[2]
    parts = token.split(b".")
    try:
        claims: Any = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (IndexError, binascii.Error, msgspec.DecodeError):
        return ""
    return str(claims.get("sub", "")) if isinstance(claims, dict) else ""


def _make_stale(request: Request, version: int) -> None:
    """Ask for the state at *version*, if *request* is a list that may be answered from it."""
    query = dict(request.query)
    asked, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch")
    if request.info.verb != "list" or not asked.isdigit() or match == "Exact" or "continue" in query:
        return
    if asked == "0":
        query.pop("limit", None)  # as the server does, which answers from its cache
    query |= {"resourceVersion": str(max(int(asked), version)), "resourceVersionMatch": "Exact"}
    request.url = f"{request.path}?{urlencode(query)}".encode()


def _ask_for_no_bookmarks(request: Request) -> None:
    """Remove the wish for bookmarks, unless the watch begins with a list whose end a bookmark marks."""
    query = dict(request.query)
    if query.get("sendInitialEvents") not in ("true", "1") and "allowWatchBookmarks" in query:
        del query["allowWatchBookmarks"]
        request.url = f"{request.path}?{urlencode(query)}".encode()


def _status(code: int, message: str, retry_after_s: int | None = None) -> bytes:
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "Unknown"),
        "code": code,
    }
    if retry_after_s is not None:
        status["details"] = {"retryAfterSeconds": retry_after_s}
    return msgspec.json.encode(status)


_EXPIRED: Final = msgspec.json.encode(
    {"type": "ERROR", "object": msgspec.Raw(_status(410, "too old resource version: ordered by a fault"))}
)
