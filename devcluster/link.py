"""A TCP link on loopback between one client and one server, that can be held, cut and slowed down.

Carries bytes and does not look into them, so TLS passes through. Owns its listening port and the connections
across it. Fleets and tests put one before each replica, on the embedded and on the real control plane alike.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from enum import Enum
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536
_CHUNKS_ON_THE_WAY = 64
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _End(Enum):
    """How one direction of a connection ended."""

    CLOSED = "closed"
    RESET = "reset"  # by its source; whatever that had sent before has arrived
    UNWANTED = "unwanted"  # its sink is gone; the other direction may still have something on its way


class Link:
    """A way to `target_host:target_port`; open from entry to exit, on a port that stays the same.

    `hold` lets connections stand and bytes wait, as a dead network does, also when their sender is gone by then;
    `cut` refuses and resets, as a dead server does. `delay_s` is added in each direction, and may be changed at
    any time.
    """

    def __init__(self, target_host: str, target_port: int, *, delay_s: float = 0.0) -> None:
        self._target = (target_host, target_port)
        self.delay_s = delay_s
        self._open = asyncio.Event()
        self._open.set()
        self._guard: socket.socket | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._clients: set[socket.socket] = set()
        self._held_up: set[socket.socket] = set()

    @property
    def port(self) -> int:
        if self._guard is None:
            raise RuntimeError("the link has not been entered")
        return int(self._guard.getsockname()[1])

    @property
    def url(self) -> str:
        """Where the client finds the server through this link."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def is_cut(self) -> bool:
        return self._accepting is None

    @property
    def connections(self) -> int:
        """Connections across it now."""
        return len(self._carrying)

    @property
    def held_up(self) -> int:
        """Connections whose client has sent something since `hold`."""
        return len(self._held_up)

    async def __aenter__(self) -> Self:
        # The guard keeps the port ours while the listener is away: it is bound, but never listens.
        self._guard = _bound_socket(0)
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self.restore()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cut()
        try:
            if self._tasks is not None and isinstance(error, asyncio.CancelledError):
                await self._tasks.__aexit__(kind, error, traceback)
            elif self._tasks is not None:  # what the block raises stays as it is, not in a group
                await self._tasks.__aexit__(None, None, None)
        finally:
            if self._guard is not None:
                self._guard.close()

    def hold(self) -> None:
        """From now on no byte passes, and nobody is told: connections stand, also new ones."""
        self._open.clear()

    def release(self) -> None:
        """What was held goes on its way, in order."""
        self._held_up.clear()
        self._open.set()

    def cut(self) -> None:
        """Reset every connection and refuse new ones, from the loop's next turn on."""
        if self._accepting is not None:
            self._accepting.cancel()
            self._accepting = None
        for task in self._carrying:
            task.cancel()

    def restore(self) -> None:
        """Accept connections again; what was reset stays reset."""
        if self._accepting is not None:
            return
        if self._tasks is None:
            raise RuntimeError("the link has not been entered")
        listener = _bound_socket(self.port)
        listener.listen(128)
        self._accepting = self._tasks.create_task(self._accept(listener), name=f"link {self.port}")

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while self._tasks is not None:
                client, _ = await loop.sock_accept(listener)
                task = self._tasks.create_task(self._carry(client), name=f"link {self.port} connection")
                self._carrying.add(task)
                task.add_done_callback(self._carrying.discard)

    async def _carry(self, client: socket.socket) -> None:
        """Both directions of one connection, until both have ended; a broken one is reset at both sides."""
        loop = asyncio.get_running_loop()
        is_whole = False
        with client, socket.socket() as server:
            client.setblocking(False)
            server.setblocking(False)
            self._clients.add(client)
            try:
                await loop.sock_connect(server, self._target)
                is_whole = await self._both_ways(client, server)
            except OSError:
                pass  # the server is away: the client learns by the reset
            finally:
                self._clients.discard(client)
                if not is_whole:
                    for side in (client, server):
                        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    async def _both_ways(self, client: socket.socket, server: socket.socket) -> bool:
        """Whether both sides closed in order. What one side had sent before it broke still arrives."""
        async with asyncio.TaskGroup() as directions:
            upstream = directions.create_task(self._pass_on(client, server), name="link upstream")
            downstream = directions.create_task(self._pass_on(server, client), name="link downstream")
            left = {upstream, downstream}
            while left:
                ended, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                if any(way.result() is _End.RESET for way in ended):  # and nothing on its way before it
                    for way in left:
                        way.cancel()
                    return False
        return upstream.result() is downstream.result() is _End.CLOSED

    async def _pass_on(self, source: socket.socket, sink: socket.socket) -> _End:
        """Bytes of *source* to *sink*, each `delay_s` after it came, none while held; then how *source* ended."""
        way: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_CHUNKS_ON_THE_WAY)
        async with asyncio.TaskGroup() as ends:
            receiving = ends.create_task(self._receive(source, way), name="link receive")
            end = await self._send(way, sink)
            receiving.cancel()
        return end

    async def _receive(self, source: socket.socket, way: asyncio.Queue[tuple[float, bytes | None]]) -> None:
        """Put what *source* sends on its *way*: then b"" for its end, or None for a reset: they wait their turn too."""
        loop = asyncio.get_running_loop()
        chunk: bytes | None = b"-"
        while chunk:
            try:
                chunk = await loop.sock_recv(source, _CHUNK_BYTES)
            except OSError:
                chunk = None
            if chunk and source in self._clients and not self._open.is_set():
                self._held_up.add(source)
            await way.put((loop.time() + self.delay_s, chunk))

    async def _send(self, way: asyncio.Queue[tuple[float, bytes | None]], sink: socket.socket) -> _End:
        loop = asyncio.get_running_loop()
        while True:
            due, chunk = await way.get()
            if (wait_s := due - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            await self._open.wait()
            if chunk is None:
                return _End.RESET
            try:
                if not chunk:
                    sink.shutdown(socket.SHUT_WR)
                    return _End.CLOSED
                await loop.sock_sendall(sink, chunk)
            except OSError:
                return _End.UNWANTED


def _bound_socket(port: int) -> socket.socket:
    """A socket on loopback; several may be bound to one port, only a listening one gets connections."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setblocking(False)
    bound.bind(("127.0.0.1", port))
    return bound
