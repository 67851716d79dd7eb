"""Requests of another client at a steady rate, sent when they are due, whether the ones before were answered or not.

`python -m benchmarks.measuring.probe KUBECONFIG NAMESPACE PER_S FILE` is such a client in a process of its own. It
reads and patches one ConfigMap and writes a line for each answer: verb, instant of sending (by the clock of all
processes), seconds to the answer.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measuring.observations import wait_for
from benchmarks.measuring.processes import running
from benchmarks.measuring.senders import send_steadily
from kubeio.access.cluster import load_cluster
from kubeio.clock import Clock, SystemClock
from kubeio.errors import KubeError
from kubeio.patch import MergePatch
from kubeio.program import runtime
from kubeio.resource import ApiResource
from kubeio.rest.client import Client

CONFIGMAPS: Final = ApiResource("", "v1", "configmaps", "ConfigMap")
NAME: Final = "neighbour"
_CONNECTIONS: Final = 16
_STARTS_WITHIN_S: Final = 30.0


class Answer(NamedTuple):
    """One answered request. Seconds."""

    verb: str
    at: float
    took_s: float


class Probe:
    """The answers that a running probe got, read from its file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def between(self, since: float, until: float) -> list[Answer]:
        """Requests that were sent from *since* to *until*."""
        return [answer for answer in self.answers() if since <= answer.at <= until]

    def answers(self) -> list[Answer]:
        text = self._file.read_text() if self._file.exists() else ""
        rows = (line.split() for line in text.splitlines(keepends=True) if line.endswith("\n"))
        return [Answer(verb, float(at), float(took_s)) for verb, at, took_s in rows]


@asynccontextmanager
async def probing(
    kubeconfig: Path, namespace: str, directory: Path, *, per_s: float, clock: Clock
) -> AsyncIterator[Probe]:
    """A probe at work until the block ends: *per_s* GETs and as many PATCHes. Raises: NotSeen."""
    file = directory / "probe.answers"
    command = [sys.executable, "-m", "benchmarks.measuring.probe"]
    command += [str(kubeconfig), namespace, str(per_s), str(file)]
    async with running(lambda _: command, directory, name="probe", clock=clock):
        probe = Probe(file)
        await wait_for(
            lambda: len(probe.answers()) > per_s, "the probe's first answers", within_s=_STARTS_WITHIN_S
        )
        yield probe


async def run_probe(kubeconfig: str, namespace: str, per_s: float, path: Path) -> None:
    """Read and patch until cancelled."""
    gc.disable()
    cluster = load_cluster(kubeconfig=kubeconfig)
    async with Client(cluster, max_connections=_CONNECTIONS, user_agent=NAME) as client:
        await client.create(CONFIGMAPS, {"metadata": {"name": NAME}}, namespace=namespace, type=bytes)

        clock = SystemClock()
        with path.open("w", encoding="utf-8", buffering=1) as file:  # each line is written at once

            async def send(number: int) -> None:
                verb, sent_at = "GET" if number % 2 else "PATCH", clock.now()
                try:
                    if verb == "GET":
                        await client.get(CONFIGMAPS, NAME, namespace=namespace, type=bytes)
                    else:
                        patch = MergePatch({"data": {"number": str(number)}})
                        await client.patch(CONFIGMAPS, NAME, patch, namespace=namespace, type=bytes)
                except KubeError as error:
                    sys.stderr.write(f"{verb}: {error}\n")
                file.write(f"{verb} {sent_at} {clock.now() - sent_at}\n")

            await send_steadily(send, per_s=2 * per_s)


def main(arguments: Sequence[str]) -> None:
    kubeconfig, namespace, per_s, path = arguments
    runtime.run(run_probe(kubeconfig, namespace, float(per_s), Path(path)))


if __name__ == "__main__":
    main(sys.argv[1:])
