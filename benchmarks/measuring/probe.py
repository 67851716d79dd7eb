"""A stranger at the API server: reads and patches one ConfigMap at a steady rate, in a process of its own.

`python -m benchmarks.measuring.probe KUBECONFIG NAMESPACE PER_S FILE` writes one line per request: verb, when it was
sent (monotonic clock, which all processes share) and how long its answer took, in seconds. Requests are sent when they
are due, whether the ones before were answered or not.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from benchmarks.measuring.processes import running
from benchmarks.measuring.sightings import wait_for
from kubeio.access.cluster import load_cluster
from kubeio.clock import Clock, SystemClock
from kubeio.errors import KubeError
from kubeio.patch import MergePatch
from kubeio.program import runtime
from kubeio.resource import ApiResource
from kubeio.rest.client import Client

CONFIGMAPS: Final = ApiResource("", "v1", "configmaps", "ConfigMap")
NAME: Final = "stranger"
_CONNECTIONS: Final = 16
_STARTS_WITHIN_S: Final = 30.0


class Answer(NamedTuple):
    """One request of the probe. Seconds."""

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
    command = [
        sys.executable,
        "-m",
        "benchmarks.measuring.probe",
        str(kubeconfig),
        namespace,
        str(per_s),
        str(file),
    ]
    async with running(lambda _: command, directory, name="probe", environment={}, clock=clock):
        probe = Probe(file)
        await wait_for(
            lambda: len(probe.answers()) > per_s, "the probe's first answers", within_s=_STARTS_WITHIN_S
        )
        yield probe


async def run_probe(kubeconfig: str, namespace: str, per_s: float, file: TextIO) -> None:
    """Read and patch until cancelled."""
    clock = SystemClock()
    gc.disable()
    async with (
        Client(
            load_cluster(kubeconfig=kubeconfig), max_connections=_CONNECTIONS, user_agent="stranger"
        ) as client,
        asyncio.TaskGroup() as tasks,
    ):
        await client.create(CONFIGMAPS, {"metadata": {"name": NAME}}, namespace=namespace, type=bytes)
        began_at, number = clock.now(), 0

        async def send(verb: str, number: int) -> None:
            sent_at = clock.now()
            try:
                if verb == "GET":
                    await client.get(CONFIGMAPS, NAME, namespace=namespace, type=bytes)
                else:
                    patch = MergePatch({"data": {"number": str(number)}})
                    await client.patch(CONFIGMAPS, NAME, patch, namespace=namespace, type=bytes)
            except KubeError as error:
                sys.stderr.write(f"{verb}: {error}\n")
            file.write(f"{verb} {sent_at} {clock.now() - sent_at}\n")
            file.flush()

        while True:
            number += 1
            await asyncio.sleep(max(0.0, began_at + number / (2 * per_s) - clock.now()))
            tasks.create_task(send("GET" if number % 2 else "PATCH", number), name="probe request")


def main(arguments: Sequence[str]) -> None:
    kubeconfig, namespace, per_s, path = arguments
    with Path(path).open("w", encoding="utf-8") as file:
        runtime.run(run_probe(kubeconfig, namespace, float(per_s), file))


if __name__ == "__main__":
    main(sys.argv[1:])
