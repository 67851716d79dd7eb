"""`embedded_plane`: an embedded control plane as a child process, for fleets, tests and the demo.

Owns the child, which ends with this process, also when that is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from devcluster.accounts import ADMIN, issue_token
from devcluster.children import Child, PlaneFailed, start_child, wait_for_file
from devcluster.embedded.directory import ADDRESS, CA, KEY, KUBECONFIG, WRITES
from devcluster.embedded.writelog import read_writes
from devcluster.faults import FaultClient, fault_proxy
from devcluster.kubeconfig import write_kubeconfig
from devcluster.listening import LOOPBACK
from devcluster.orders import Orders
from devcluster.plane import ADMINS, Write

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10.0


class EmbeddedPlane:
    """A running child process; a `devcluster.plane.ControlPlane`."""

    def __init__(self, directory: Path, child: Child, direct: str, faults: FaultClient | None) -> None:
        self._directory: Final = directory
        self._child: Final = child
        self._faults: Final = faults
        self.url: Final = faults.url if faults else direct
        self.kubeconfig: Final = directory / KUBECONFIG
        self._key: Final = (directory / KEY).read_bytes()
        self._orders: Final = Orders(direct, ca=directory / CA, key=self._key)
        if faults is not None:
            self._write_kubeconfig(self.kubeconfig, ADMIN.user, ADMIN.groups)

    @property
    def faults(self) -> FaultClient:
        if self._faults is None:
            raise PlaneFailed("the control plane was started without faults")
        return self._faults

    @property
    def pids(self) -> Sequence[int]:
        return (self._child.pid,) if self._child.is_running else ()

    def rss_bytes(self) -> int:
        return self._child.rss_bytes()

    async def kubeconfig_for(self, user: str, *, groups: Sequence[str] = (), admin: bool = True) -> Path:
        """A kubeconfig with a token of its own for *user*, who needs rights only where RBAC is on."""
        name = "".join(char if char.isalnum() or char in "-._" else "_" for char in user)
        path = self._directory / f"{name}.kubeconfig"
        return self._write_kubeconfig(path, user, [*groups, *([ADMINS] if admin else [])])

    def _write_kubeconfig(self, path: Path, user: str, groups: Sequence[str]) -> Path:
        authorities = [self._directory / CA, *([self._faults.ca] if self._faults else [])]
        return write_kubeconfig(
            path,
            server=self.url,
            authority_pem=b"".join(each.read_bytes() for each in authorities),
            user=user,
            credentials={"token": issue_token(self._key, user, groups)},
        )

    def writes(self) -> list[Write]:
        return read_writes(self._directory / WRITES)

    async def restart(self, *, away_s: float = 0.0) -> None:
        """Close every connection, stay away for *away_s*, serve again with the same objects and no history."""
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
        """One administrator's request past the faults. Raises: PlaneFailed with the server's message."""
        return await self._orders.send(method, path, body)

    async def stop(self) -> None:
        await self._child.end(grace_s=_STOP_TIMEOUT_S)


@asynccontextmanager
async def embedded_plane(
    directory: Path,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    bookmark_interval_s: float = 60.0,
    history: int = 20_000,
    rbac: bool = False,
    faults: bool = False,
) -> AsyncIterator[EmbeddedPlane]:
    """A control plane that runs as long as the block; its files go to *directory* (made if need be).

    *host* is `127.0.0.1` or `::1`. Without *rbac* every account that is authenticated may do everything. With
    *faults* all clients come through a fault proxy.

    Raises: PlaneFailed with the end of the child's log when it does not start.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # noqa: ASYNC240 - once, at the start
    address = directory / ADDRESS
    address.unlink(missing_ok=True)
    options = {
        "--host": host,
        "--port": port,
        "--bookmark-interval-s": bookmark_interval_s,
        "--history": history,
    }
    command = [sys.executable, "-m", "devcluster.embedded", "--directory", str(directory), *["--rbac"] * rbac]
    command += [str(part) for pair in options.items() for part in pair]
    child = await start_child(command, name="the embedded control plane", log=directory / "server.log")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(child.end, grace_s=_STOP_TIMEOUT_S)
        direct, proxy = await wait_for_file(child, address), None
        if faults:
            proxy = await stack.enter_async_context(
                fault_proxy(
                    directory / "faults", upstreams=[direct], upstream_ca=directory / CA, key=directory / KEY
                )
            )
        yield EmbeddedPlane(directory, child, direct, proxy)
