"""`fault_proxy`: the proxy as a child process, and `FaultClient`, which orders faults from it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from devcluster.children import start_child, wait_for_file
from devcluster.faults.fault import Fault
from devcluster.listening import LOOPBACK
from devcluster.orders import Orders

_START_TIMEOUT_S: Final = 60.0
ADDRESS: Final = "addresses"
CA: Final = "ca.pem"


class FaultClient:
    """Client of a fault proxy: adds, lists and ends faults (`Fault`)."""

    def __init__(self, url: str, orders_url: str, *, ca: Path, key: bytes) -> None:
        self.url = url
        """Where clients reach the control plane through the proxy."""
        self.ca = ca
        self._orders = Orders(orders_url, ca=ca, key=key)
        self._front = Orders(url, ca=ca, key=key)

    async def add(self, fault: Fault) -> str:
        """Order *fault*; its id. It strikes requests that arrive after this returns."""
        answer = await self._orders.send("POST", "/_faults", msgspec.json.encode(fault))
        return msgspec.json.decode(answer, type=Fault).id

    async def active(self) -> list[Fault]:
        """The faults that still strike, with their hits so far."""
        answer = await self._orders.send("GET", "/_faults")
        return msgspec.json.decode(answer, type=dict[str, list[Fault]])["faults"]

    async def hits(self, fault_id: str) -> int:
        """How often the active fault *fault_id* has struck so far."""
        return next((fault.hits for fault in await self.active() if fault.id == fault_id), 0)

    async def clear(self, fault_id: str = "") -> None:
        """End one fault, or all."""
        await self._orders.send("DELETE", f"/_faults/{fault_id}" if fault_id else "/_faults")

    async def wait_open(self) -> None:
        """Wait until clients are let through to a server that was away."""
        async with asyncio.timeout(_START_TIMEOUT_S):
            while True:
                try:
                    await self._front.send("GET", "/_faults")
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    return


@asynccontextmanager
async def fault_proxy(
    directory: Path,
    *,
    upstreams: Sequence[str],
    upstream_ca: Path,
    key: Path,
    front_proxy: Path | None = None,
    host: str = LOOPBACK,
) -> AsyncIterator[FaultClient]:
    """A proxy on *host* before the API servers *upstreams*, for as long as the block; its files go to *directory*.

    *key*: the file of the key that tokens are signed with. *front_proxy*: a file with the client certificate and key
    of an authenticating proxy (`X-Remote-User`); without it the server authenticates the tokens.

    Raises: PlaneFailed with the end of the proxy's log when it does not start.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # noqa: ASYNC240 - once, at the start
    address, log = directory / ADDRESS, directory / "log"
    address.unlink(missing_ok=True)
    options = [("--directory", directory), ("--upstream-ca", upstream_ca), ("--key", key)]
    options += [("--front-proxy", front_proxy)] if front_proxy is not None else []
    arguments = [str(part) for pair in options for part in pair]
    arguments += ["--host", host]
    arguments += [part for upstream in upstreams for part in ("--upstream", upstream)]
    command = [sys.executable, "-m", "devcluster.faults", *arguments]
    child = await start_child(command, name="the fault proxy", log=log)
    try:
        url, orders_url = (await wait_for_file(child, address)).split()
        yield FaultClient(url, orders_url, ca=directory / CA, key=key.read_bytes())  # noqa: ASYNC240
    finally:
        await child.end(grace_s=0)
