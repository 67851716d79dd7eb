"""`embedded_plane`: an embedded control plane as a child process, for fleets, tests and the demo.

Owns the child; it dies with us, also when we are killed. Faults are ordered through `EmbeddedPlane.faults`.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit

import msgspec

from devcluster.embedded.accounts import ADMIN, issue_token
from devcluster.embedded.directory import ADDRESS, CA, KEY, KUBECONFIG, WRITES
from devcluster.embedded.faults import Fault
from devcluster.embedded.kubeconfigs import write_kubeconfig
from devcluster.embedded.writelog import read_writes
from devcluster.plane import ADMINS, Write

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10.0


class PlaneFailure(Exception):
    """The control plane did not start, or refused an order."""


class FaultClient:
    """Orders faults; see `faults.Fault` for what they do and whom they hit."""

    def __init__(self, plane: EmbeddedPlane) -> None:
        self._plane: Final = plane

    async def add(self, fault: Fault) -> str:
        """Order *fault*; its id. It strikes requests that arrive after this returns."""
        answer = await self._plane.order("POST", "/_faults", msgspec.json.encode(fault))
        return msgspec.json.decode(answer, type=Fault).id

    async def active(self) -> list[Fault]:
        """The faults that still strike, with their hits so far."""
        answer = await self._plane.order("GET", "/_faults")
        return msgspec.json.decode(answer, type=dict[str, list[Fault]])["faults"]

    async def clear(self, fault_id: str = "") -> None:
        """End one fault, or all."""
        await self._plane.order("DELETE", f"/_faults/{fault_id}" if fault_id else "/_faults")


class EmbeddedPlane:
    """A running child process; a `devcluster.plane.ControlPlane`."""

    def __init__(self, directory: Path, process: asyncio.subprocess.Process) -> None:
        self._directory: Final = directory
        self._process: Final = process
        self.url: Final = (directory / ADDRESS).read_text(encoding="utf-8").strip()
        self.kubeconfig: Final = directory / KUBECONFIG
        self.faults: Final = FaultClient(self)

    @property
    def pids(self) -> Sequence[int]:
        return () if self._process.returncode is not None else (self._process.pid,)

    def rss_bytes(self) -> int:
        pages = 0
        for pid in self.pids:
            with suppress(FileNotFoundError):
                pages += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    async def kubeconfig_for(
        self, user: str, *, groups: Sequence[str] = (), server: str | None = None, admin: bool = True
    ) -> Path:
        """A kubeconfig with a token of its own for *user*, who needs rights only where RBAC is on."""
        return self._write_kubeconfig(user, [*groups, *([ADMINS] if admin else [])], server or self.url)

    def _write_kubeconfig(self, user: str, groups: Sequence[str], server: str) -> Path:
        name = "".join(char if char.isalnum() or char in "-._" else "_" for char in user)
        port = f"-{urlsplit(server).port}" if server != self.url else ""
        return write_kubeconfig(
            self._directory / f"{name}{port}.kubeconfig",
            server=server,
            ca_pem=(self._directory / CA).read_bytes(),
            user=user,
            token=issue_token((self._directory / KEY).read_bytes(), user, groups),
        )

    def writes(self) -> list[Write]:
        return read_writes(self._directory / WRITES)

    async def restart(self, *, away_s: float = 0.0) -> None:
        """Drop every connection and the history, be away for *away_s*, come back with the same objects."""
        await self.order("POST", "/_faults/restart", msgspec.json.encode({"away_s": away_s}))
        await asyncio.sleep(away_s)
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not await asyncio.to_thread(self._is_ready):  # noqa: ASYNC110 - another process's readiness
                await asyncio.sleep(0.02)

    async def wipe(self) -> None:
        """Become as new: no objects, definitions, faults, connections or logged writes. Kubeconfigs stay valid."""
        await self.order("POST", "/_faults/wipe")

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(BrokenPipeError, ConnectionResetError):
                await self._process.stdin.wait_closed()

    async def order(self, method: str, path: str, body: bytes = b"") -> bytes:
        """One administrator's request. Raises: PlaneFailure with the server's words."""
        return await asyncio.to_thread(self._order, method, path, body)

    def _order(self, method: str, path: str, body: bytes) -> bytes:
        where = urlsplit(self.url)
        tls = ssl.create_default_context(cafile=str(self._directory / CA))
        connection = http.client.HTTPSConnection(str(where.hostname), where.port, context=tls, timeout=30.0)
        token = issue_token((self._directory / KEY).read_bytes(), ADMIN.user, ADMIN.groups)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise PlaneFailure(f"{method} {path}: {answer.status} {content.decode()}")
        return content

    def _is_ready(self) -> bool:
        try:
            self._order("GET", "/readyz", b"")
        except (OSError, http.client.HTTPException, PlaneFailure):
            return False
        return True


@asynccontextmanager
async def embedded_plane(
    directory: Path,
    *,
    port: int = 0,
    bookmark_interval_s: float = 60.0,
    history: int = 20_000,
    rbac: bool = False,
) -> AsyncIterator[EmbeddedPlane]:
    """A control plane that runs as long as the block; its files go to *directory* (made if need be).

    Without *rbac* every account that is authenticated may do everything.

    Raises: PlaneFailure with the end of the child's log when it does not start.
    """
    _prepare(directory)
    options = {"--port": port, "--bookmark-interval-s": bookmark_interval_s, "--history": history}
    process = await _spawn(directory, options, ["--rbac"] if rbac else [])
    try:
        await _wait_serving(directory, process)
        plane = EmbeddedPlane(directory, process)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    try:
        yield plane
    finally:
        await plane.stop()


def _prepare(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / ADDRESS).unlink(missing_ok=True)


async def _spawn(directory: Path, options: dict[str, float], flags: list[str]) -> asyncio.subprocess.Process:
    arguments = ["--directory", str(directory), *flags]
    arguments += [str(part) for pair in options.items() for part in pair]
    with _log_file(directory) as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "devcluster.embedded",
            *arguments,
            "--die-with-stdin",
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _log_file(directory: Path) -> BinaryIO:
    return (directory / "server.log").open("ab")


async def _wait_serving(directory: Path, process: asyncio.subprocess.Process) -> None:
    address = directory / ADDRESS
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not address.exists():
                if process.returncode is not None:
                    raise PlaneFailure(f"it ended with {process.returncode}: {_log_end(directory)}")
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise PlaneFailure(f"not ready after {_START_TIMEOUT_S} s: {_log_end(directory)}") from error


def _log_end(directory: Path) -> str:
    return (directory / "server.log").read_text(encoding="utf-8", errors="replace")[-2000:]
