"""Opens connections to one server: TCP, through a proxy, TLS.

Owns the TLS contexts, kept as long as the CA and the client certificate stay the same. A shorter time limit is the
caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from typing import Final

from kubeio.http.connection import Connection
from kubeio.http.endpoint import Endpoint, KeyPair, Proxy, Trust
from kubeio.http.messages import BrokenMessage
from kubeio.http.tls import client_context

CONNECT_TIMEOUT_S: Final = 10.0
"""TCP, proxy and TLS together; a call with less time left waits no longer than that."""
_KEEPALIVE_IDLE_S = 30
_KEEPALIVE_PROBES = 3


class Dialer:
    """Opens connections to *endpoint*. `dial` raises BrokenMessage (not sent) if it cannot be reached."""

    def __init__(self, endpoint: Endpoint, trust: Trust, proxy: Proxy | None = None) -> None:
        self._endpoint = endpoint
        self._trust = trust
        self._proxy = proxy
        self._context: ssl.SSLContext | None = None
        self._context_for: tuple[bytes, KeyPair | None] | None = None

    async def dial(self, identity: KeyPair | None) -> Connection:
        """A new connection that presents *identity*. Raises BrokenMessage, UnusableKeyPair."""
        connection = Connection(asyncio.get_running_loop(), identity)
        await self.connect(connection, identity)
        return connection

    async def connect(self, protocol: asyncio.Protocol, identity: KeyPair | None) -> None:
        """Connect *protocol*, presenting *identity*. Raises BrokenMessage, UnusableKeyPair."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._connect(protocol, identity)
        except TimeoutError as error:
            raise _broken(f"no connection within {CONNECT_TIMEOUT_S:g} s") from error
        except ssl.SSLCertVerificationError as error:
            raise _broken(f"the server's certificate is not accepted: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise _broken(f"TLS failed: {error.reason or error}") from error
        except (OSError, UnicodeError) as error:
            raise _broken(f"cannot connect: {_plain(error)}") from error

    async def _connect(self, protocol: asyncio.Protocol, identity: KeyPair | None) -> None:
        endpoint, proxy = self._endpoint, self._proxy
        loop = asyncio.get_running_loop()
        context = self._tls(identity) if endpoint.is_tls else None
        server_name = (self._trust.server_name or endpoint.host) if context else None
        if proxy is None:
            transport, _ = await loop.create_connection(
                lambda: protocol, endpoint.host, endpoint.port, ssl=context, server_hostname=server_name
            )
        else:
            transport = await self._tunnel(protocol, proxy, context, server_name)
        _keep_alive(transport)

    async def _tunnel(
        self,
        protocol: asyncio.Protocol,
        proxy: Proxy,
        context: ssl.SSLContext | None,
        server_name: str | None,
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        endpoint = self._endpoint
        transport, tunnel = await loop.create_connection(_Tunnel, proxy.host, proxy.port)
        try:
            host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
            await tunnel.open(transport, f"{host}:{endpoint.port}", proxy)
            if context is None:
                transport.set_protocol(protocol)
                protocol.connection_made(transport)
                transport.resume_reading()
                return transport
            upgraded = await loop.start_tls(transport, protocol, context, server_hostname=server_name)
        except BaseException:
            transport.abort()
            raise
        if upgraded is None:
            raise _broken("the proxy closed the connection during TLS")
        protocol.connection_made(upgraded)
        return upgraded

    def _tls(self, identity: KeyPair | None) -> ssl.SSLContext:
        ca = self._current_ca()
        if self._context is None or self._context_for != (ca, identity):
            self._context = client_context(self._trust, ca, identity)
            self._context_for = (ca, identity)
        return self._context

    def _current_ca(self) -> bytes:
        """The CA file may be rotated; a file that cannot be read leaves what was read before."""
        trust = self._trust
        if trust.ca_file is None:
            return trust.ca
        try:
            return trust.ca_file.read_bytes()
        except OSError:
            return self._context_for[0] if self._context_for else trust.ca


class _Tunnel(asyncio.Protocol):
    """The conversation with a proxy until it lets bytes through."""

    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def open(self, transport: asyncio.Transport, target: str, proxy: Proxy) -> None:
        """Ask *proxy* for a way to *target*. Raises BrokenMessage."""
        authorization = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n"
        transport.write(head.encode())
        status_line = (await self._answer).partition(b"\r\n")[0].decode("latin-1")
        parts = status_line.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].startswith("2"):
            raise _broken(f"the proxy {proxy.host}:{proxy.port} refused: {status_line or 'it closed'}")
        transport.pause_reading()  # what follows belongs to TLS

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._answer.done():
            return
        if b"\r\n\r\n" in self._received or len(self._received) > 64 * 1024:
            self._answer.set_result(self._received)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_result(b"")


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the kernel notice a peer that vanished while a stream is silent."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_IDLE_S // _KEEPALIVE_PROBES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


def _broken(reason: str) -> BrokenMessage:
    return BrokenMessage(reason, sent=False, answered=False)


def _plain(error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the host's name is not known ({error.strerror})"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
