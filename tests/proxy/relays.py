"""A relay before a control plane, directed by the test, and the clients that come through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.rest.request_info import RequestInfo
from proxy.controller_files import KUBECONFIG, write_files
from proxy.director import Admitted, Selection, Write
from proxy.locks import EchoLocks
from proxy.loopback import Loopback
from proxy.refusals import Refusal
from proxy.relay import Relay

SHARD, VISIBLE = "shard.ringleader.dev/web", "visible.ringleader.dev/web"
NAME = "web-1"
TERMS = f"{SHARD}={NAME},{VISIBLE}={NAME}"
LABELS = {SHARD: NAME, VISIBLE: NAME}
LOOPBACK = Loopback(datetime.now(UTC))
"""One for all tests: its keys take time."""


@dataclass
class ScriptedDirector:
    """Selects *selections* by resource, labels creates and updates of them, and admits what *verdict* lets pass."""

    selections: Mapping[str, Selection] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=lambda: LABELS)
    verdict: Callable[[Write], Refusal | None] = lambda _: None
    gate: asyncio.Event | None = None
    """Writes wait for it."""
    begun: list[Write] = field(default_factory=list)
    ended: list[tuple[Write, int | None]] = field(default_factory=list)
    asked: list[Write] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def selection(self, request: RequestInfo) -> Selection | None:
        return self.selections.get(request.group_resource)

    def reads_body(self, write: RequestInfo) -> bool:
        return write.group_resource in self.selections

    async def admit(self, write: Write) -> Admitted | Refusal:
        self.asked.append(write)
        self.changed.set()
        if self.gate is not None:
            await self.gate.wait()
        refusal = self.verdict(write)
        if refusal is not None:
            return refusal
        return Admitted(self.labels if write.info.group_resource in self.selections else {})

    def begin(self, write: Write) -> None:
        self.begun.append(write)
        self.changed.set()

    def end(self, write: Write, status: int | None) -> None:
        self.ended.append((write, status))
        self.changed.set()

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Return when *condition*, of the lists above, is true."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def wait_ended(self, count: int) -> None:
        """Return when *count* writes have ended."""
        await self.wait_for(lambda: len(self.ended) >= count)


@dataclass(frozen=True)
class Relayed:
    """A relay that serves, and the kubeconfig of its controller."""

    relay: Relay
    director: ScriptedDirector
    locks: EchoLocks
    port: int
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / KUBECONFIG


@asynccontextmanager
async def relayed(
    kubeconfig: Path,
    folder: Path,
    director: ScriptedDirector | None = None,
    *,
    locks: Iterable[str] = (),
    impersonation: Iterable[tuple[str, str]] = (),
) -> AsyncIterator[Relayed]:
    """A relay to the server of *kubeconfig*; its controller's files are in *folder*."""
    director = director or ScriptedDirector()
    echo = EchoLocks(frozenset(locks), SystemClock())
    relay = Relay(
        load_cluster(kubeconfig=str(kubeconfig)),
        loopback=LOOPBACK,
        director=director,
        locks=echo,
        impersonation=impersonation,
    )
    async with relay.serving() as port:
        write_files(folder, port=port, ca=LOOPBACK.ca, token=LOOPBACK.token, namespace="default")
        yield Relayed(relay, director, echo, port, folder)
