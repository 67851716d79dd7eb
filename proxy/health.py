"""Whether a proxy and its controller are ready, and whether the controller hangs.

A container has one readiness and one liveness probe, and two programs run in this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final, Never
from urllib.parse import urlsplit

from kubeio.clock import Clock
from kubeio.errors import InputError
from kubeio.shard.lease_validity import LeaseValidity

_EVERY_S: Final = 2.0
_TIMEOUT_S: Final = 2.0
_LONGEST_LINE: Final = 4096
_HUNG_S: Final = 60.0
"""A controller that has answered once and then fails for so long hangs."""


class ControllerProbe:
    """Asks the controller itself, at *url*, how it is, as a kubelet does.

    Its certificate is not verified: it stands behind loopback. Raises: InputError for a URL that cannot be asked.
    """

    def __init__(self, url: str, *, field: str, hung_s: float = _HUNG_S) -> None:
        split = urlsplit(url)
        try:
            port = split.port
        except ValueError:
            port = None
        if split.scheme not in ("http", "https") or not split.hostname or not port:
            raise InputError(field, url, "is no URL", "write it as http://127.0.0.1:8081/readyz")
        self.problem: str | None = "it was not asked yet"
        """Why the controller is not ready; None: it is."""
        self._hung_s: Final = hung_s
        self._host: Final = split.hostname
        self._port: Final = port
        self._target: Final = (split.path or "/") + (f"?{split.query}" if split.query else "")
        self._tls = ssl.create_default_context() if split.scheme == "https" else None
        if self._tls is not None:
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Ask again and again beside the block."""
        task = asyncio.create_task(self._run(), name="readiness of the controller")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait_hung(self) -> str:
        """Ask until it was fine once and then failed for *hung_s*; why it did. Each call begins anew."""
        loop, fine_at = asyncio.get_running_loop(), None
        while True:
            problem = await self._ask()
            if problem is None:
                fine_at = loop.time()
            elif fine_at is not None and loop.time() - fine_at >= self._hung_s:
                return problem
            await asyncio.sleep(min(_EVERY_S, self._hung_s / 4))

    async def _run(self) -> Never:
        while True:
            self.problem = await self._ask()
            await asyncio.sleep(_EVERY_S)

    async def _ask(self) -> str | None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                status = await self._status()
        except (OSError, ValueError, TimeoutError) as error:
            return str(error) or "no answer in time"
        return (
            None if status.isdecimal() and 200 <= int(status) < 400 else f"it answered {status or 'nothing'}"
        )

    async def _status(self) -> str:
        """The status of its answer, as it is written. Raises: OSError; ValueError for an endless line."""
        reader, writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._tls, limit=_LONGEST_LINE
        )
        try:
            host = f"[{self._host}]" if ":" in self._host else self._host
            head = f"GET {self._target} HTTP/1.1\r\nHost: {host}:{self._port}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            words = (await reader.readline()).split()
            return words[1].decode("latin-1") if len(words) > 1 else ""
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def controller_probe(url: str, field: str) -> ControllerProbe | None:
    """A probe at *url*, which *field* names; None without one. Raises: InputError."""
    return ControllerProbe(url, field=field) if url else None


class Health:
    """Readiness of the shard, once its parts are there. *readiness*, *liveness*: of the controller, if it has them."""

    def __init__(
        self,
        clock: Clock,
        *,
        readiness: ControllerProbe | None = None,
        liveness: ControllerProbe | None = None,
    ) -> None:
        self.validity: LeaseValidity | None = None
        self.why_no_lease: Callable[[], str] = lambda: "the shard has no Lease yet"
        self.why_down: Callable[[], str | None] = lambda: "objects are not listed yet"
        """Why the controller does not run; None: it does."""
        self._clock: Final = clock
        self.liveness: Final = liveness
        self._readiness: Final = readiness

    def why_not_ready(self) -> str | None:
        """None: the Lease is held, the shard's objects are listed, the controller runs and is ready."""
        if self.validity is None:
            return self.why_no_lease()
        if not self.validity.holds(self._clock.now()):
            return "the shard's Lease is too old"
        if (why := self.why_down()) is not None:
            return f"no controller: {why}"
        problem = self._readiness.problem if self._readiness is not None else None
        return None if problem is None else f"the controller is not ready: {problem}"
