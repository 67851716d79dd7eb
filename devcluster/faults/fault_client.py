"""`fault_proxy`: the proxy as a child process, and `FaultClient`, which orders faults from it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from devcluster.children import start_child
from devcluster.faults.fault import Fault
from devcluster.orders import Orders, PlaneFailure

_START_TIMEOUT_S: Final = 60.0
ADDRESS: Final = "addresses"
CA: Final = "ca.pem"


class FaultClient:
    """Orders faults; see `Fault` for what they do and whom they strike."""

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
    directory: Path, *, upstream: str, upstream_ca: Path, key: Path, front_proxy: Path | None = None
) -> AsyncIterator[FaultClient]:
    """A proxy before the API server *upstream* that runs as long as the block; its files go to *directory*.

    *key*: the file of the key that tokens are signed with. *front_proxy*: a file with the certificate and key by which
    the server believes whom the proxy names; without it the server reads the tokens itself.

    Raises: PlaneFailure with the end of the proxy's log when it does not start.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # noqa: ASYNC240 - once, at the start
    address, log = directory / ADDRESS, directory / "log"
    address.unlink(missing_ok=True)
    options = {"--directory": directory, "--upstream": upstream, "--upstream-ca": upstream_ca, "--key": key}
    if front_proxy is not None:
        options["--front-proxy"] = front_proxy
    arguments = [str(part) for pair in options.items() for part in pair]
    child = await start_child(
        [sys.executable, "-m", "devcluster.faults", *arguments], name="fault proxy", log=log
    )
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not address.exists():
                if not child.is_running:
                    raise PlaneFailure(f"the fault proxy ended at its start: {child.last_lines()}")
                await asyncio.sleep(0.02)
        url, orders_url = address.read_text(encoding="utf-8").split()
        yield FaultClient(url, orders_url, ca=directory / CA, key=key.read_bytes())  # noqa: ASYNC240
    finally:
        await child.end(grace_s=0)
