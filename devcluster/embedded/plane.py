"""`embedded_plane`: an embedded control plane as a child process, for fleets, tests and the demo.

Owns the child; it dies with us, also when we are killed. Faults are ordered through `EmbeddedPlane.faults`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit

import msgspec

from devcluster.accounts import ADMIN, issue_token
from devcluster.embedded.directory import ADDRESS, CA, KEY, KUBECONFIG, WRITES
from devcluster.embedded.writelog import read_writes
from devcluster.faults import FaultClient, fault_proxy
from devcluster.kubeconfig import token_credentials, write_kubeconfig
from devcluster.orders import Orders, PlaneFailure
from devcluster.plane import ADMINS, Write

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10.0


class EmbeddedPlane:
    """A running child process; a `devcluster.plane.ControlPlane`."""

    def __init__(
        self, directory: Path, process: asyncio.subprocess.Process, faults: FaultClient | None
    ) -> None:
        self._directory: Final = directory
        self._process: Final = process
        self._faults: Final = faults
        direct = (directory / ADDRESS).read_text(encoding="utf-8").strip()
        self.url: Final = faults.url if faults else direct
        self.kubeconfig: Final = directory / KUBECONFIG
        self._key: Final = (directory / KEY).read_bytes()
        self._orders: Final = Orders(direct, ca=directory / CA, key=self._key)
        if faults is not None:
            self._write_kubeconfig(self.kubeconfig, ADMIN.user, ADMIN.groups, self.url)

    @property
    def faults(self) -> FaultClient:
        if self._faults is None:
            raise PlaneFailure("it was started without faults")
        return self._faults

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
        server = server or self.url
        name = "".join(char if char.isalnum() or char in "-._" else "_" for char in user)
        port = f"-{urlsplit(server).port}" if server != self.url else ""
        path = self._directory / f"{name}{port}.kubeconfig"
        return self._write_kubeconfig(path, user, [*groups, *([ADMINS] if admin else [])], server)

    def _write_kubeconfig(self, path: Path, user: str, groups: Sequence[str], server: str) -> Path:
        authorities = [self._directory / CA, *([self._faults.ca] if self._faults else [])]
        return write_kubeconfig(
            path,
            server=server,
            authority_pem=b"".join(each.read_bytes() for each in authorities),
            user=user,
            credentials=token_credentials(issue_token(self._key, user, groups)),
        )

    def writes(self) -> list[Write]:
        return read_writes(self._directory / WRITES)

    async def restart(self, *, away_s: float = 0.0) -> None:
        """Drop every connection and the history, be away for *away_s*, come back with the same objects."""
        await self._orders.send("POST", "/_plane/restart", msgspec.json.encode({"away_s": away_s}))
        await asyncio.sleep(away_s)
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not await self._orders.is_ready():  # noqa: ASYNC110 - another process's readiness
                await asyncio.sleep(0.02)
        if self._faults is not None:
            await self._faults.wait_open()

    async def wipe(self) -> None:
        """Become as new: no objects, definitions, faults, connections or logged writes. Kubeconfigs stay valid."""
        if self._faults is not None:
            await self._faults.clear()
        await self._orders.send("POST", "/_plane/wipe")

    async def order(self, method: str, path: str, body: bytes = b"") -> bytes:
        """One administrator's request past the faults. Raises: PlaneFailure with the server's words."""
        return await self._orders.send(method, path, body)

    async def stop(self) -> None:
        await _stop(self._process)


@asynccontextmanager
async def embedded_plane(
    directory: Path,
    *,
    port: int = 0,
    bookmark_interval_s: float = 60.0,
    history: int = 20_000,
    rbac: bool = False,
    faults: bool = False,
) -> AsyncIterator[EmbeddedPlane]:
    """A control plane that runs as long as the block; its files go to *directory* (made if need be).

    Without *rbac* every account that is authenticated may do everything. With *faults* all clients come through a
    fault proxy.

    Raises: PlaneFailure with the end of the child's log when it does not start.
    """
    _prepare(directory)
    options = {"--port": port, "--bookmark-interval-s": bookmark_interval_s, "--history": history}
    process = await _spawn(directory, options, ["--rbac"] if rbac else [])
    try:
        await _wait_serving(directory, process)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_stop, process)
        proxy = None
        if faults:
            upstream = (directory / ADDRESS).read_text(encoding="utf-8").strip()
            proxy = await stack.enter_async_context(
                fault_proxy(
                    directory / "faults",
                    upstream=upstream,
                    upstream_ca=directory / CA,
                    key=directory / KEY,
                )
            )
        yield EmbeddedPlane(directory, process, proxy)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
    if process.stdin is not None:
        process.stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.wait_closed()


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
