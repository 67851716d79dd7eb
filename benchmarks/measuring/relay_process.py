"""`python -m benchmarks.measuring.relay_process KUBECONFIG FOLDER`: a relay in a process of its own, until SIGTERM.

It selects and labels ConfigMaps, admits every write, and puts its controller's files into FOLDER; `port` comes last.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.program import runtime
from kubeio.protocol import RingKeys
from kubeio.rest.request_info import RequestInfo
from proxy.alias import NAME_LENGTH, Alias
from proxy.controller_files import write_files
from proxy.director import Admitted, Selection, Write
from proxy.locks import EchoLocks
from proxy.loopback import Loopback, make_certificates
from proxy.refusals import Refusal
from proxy.relay import Relay

_KEYS: Final = RingKeys("ring", "bench")
_ALIAS: Final = Alias("life-".ljust(NAME_LENGTH, "0"), _KEYS)
LABELS: Final = dict.fromkeys((_KEYS.shard, _KEYS.visible), "life-".ljust(NAME_LENGTH, "0"))
_TERMS: Final = ",".join(f"{name}={value}" for name, value in LABELS.items())


class AdmitAll:
    """A director of ConfigMaps that admits every write."""

    def selection(self, request: RequestInfo) -> Selection | None:
        return Selection(_TERMS) if request.resource == "configmaps" else None

    def alias(self, request: RequestInfo) -> Alias | None:
        return _ALIAS if request.resource == "configmaps" else None

    def reads_body(self, write: RequestInfo) -> bool:
        return write.resource == "configmaps"

    async def admit(self, write: Write) -> Admitted | Refusal:
        return Admitted(LABELS)

    def begin(self, write: Write) -> None:
        """Nothing is counted."""

    def instead_of(self, write: Write, answer: bytes) -> Refusal | None:
        return None

    def end(self, write: Write, status: int | None) -> None:
        """Nothing is counted."""


async def _run(kubeconfig: str, folder: Path) -> None:
    clock = SystemClock()
    loopback = Loopback(make_certificates(clock.wall()))
    relay = Relay(
        load_cluster(kubeconfig=kubeconfig),
        loopback=loopback,
        director=AdmitAll(),
        locks=EchoLocks(()),
    )
    async with relay.serving() as port:
        write_files(folder, port=port, ca=loopback.ca, token=loopback.token, namespace="default")
        (folder / "port").write_text(str(port))
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(runtime.run(_run(sys.argv[1], Path(sys.argv[2]))))
