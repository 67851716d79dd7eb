"""One sample of everything per second: metrics of the replicas, memory and CPU of the processes.

Owns the series; where the figures come from is the target's. Failures to read are no failures of the run.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from kubeio.clock import Clock
from kubeio.errors import Forbidden, KubeError, NotFound
from kubeio.rest.client import Client
from loadtest.machine import cpu_s, family, memory_kb
from loadtest.observing.histograms import ApiPage, MetricsPage, Window
from loadtest.targets.target import Target, Usage

_EVERY_S: Final = 2.0
_TRIES: Final = 3
"""A replica that gives no metrics before the load counts what it did before, too."""
_API_TIMEOUT_S: Final = 30.0
LOAD: Final = "load test"


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory and CPU of each process *at* an instant of the clock."""

    at: float
    usage: dict[str, Usage]


@dataclass(slots=True)
class ProcessPeak:
    """Of one process: peak memory, and cores used on average over the load."""

    name: str
    peak_mb: float
    cores: float


@dataclass(slots=True)
class Sampler:
    """Samples until `run` is cancelled."""

    target: Target
    clock: Clock
    window: Window = field(default_factory=Window)
    samples: list[Sample] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(_EVERY_S)

    async def begin(self) -> None:
        """The load begins: what was counted before does not count."""
        replicas = await self.target.size()
        for _ in range(_TRIES):
            if await self.sample() >= replicas:
                break
        self.window.begin()
        self.samples = []
        self._add_usage()

    async def sample(self) -> int:
        """Take one sample now; how many replicas gave their metrics."""
        pages = await self.target.metrics()
        for name, text in pages.items():
            self.window.add(name, MetricsPage(text))
        self._add_usage()
        return len(pages)

    def peaks(self) -> list[ProcessPeak]:
        """Each process of the samples. A process that was started anew counts its CPU from then on."""
        names = dict.fromkeys(name for sample in self.samples for name in sample.usage)
        return [self._peak(name) for name in names]

    def _peak(self, name: str) -> ProcessPeak:
        series = [(sample.at, sample.usage[name]) for sample in self.samples if name in sample.usage]
        used_s = sum(max(0.0, after.cpu_s - before.cpu_s) for (_, before), (_, after) in pairwise(series))
        lasted_s = max(series[-1][0] - series[0][0], 1e-9)
        peak = max(usage.rss_bytes for _, usage in series) / 1e6
        return ProcessPeak(name, round(peak, 1), round(used_s / lasted_s, 3) if len(series) > 1 else 0.0)

    def _add_usage(self) -> None:
        usage = dict(self.target.usage())
        pid = os.getpid()
        own = [pid, *_locusts(pid)]
        usage[LOAD] = Usage(sum(memory_kb(each, "VmRSS") for each in own) * 1024, cpu_s(own))
        self.samples.append(Sample(self.clock.now(), usage))


def _locusts(pid: int) -> list[int]:
    """This process's descendants that make the load."""
    return [each for each in family(pid) if each != pid and _is_locust(each)]


def _is_locust(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - a kernel's file
            return b"\0locust\0" in file.read()
    except OSError:
        return False


async def read_api_metrics(client: Client) -> tuple[ApiPage | None, str]:
    """The API server's own metrics; None and the reason where they cannot be had."""
    try:
        answer = await client.request("GET", "/metrics", accept="*/*", timeout_s=_API_TIMEOUT_S)
    except NotFound:
        return None, "this API server offers no metrics"
    except Forbidden:
        return None, "the account may not get /metrics of the API server"
    except KubeError as error:
        return None, str(error)
    return ApiPage(answer.body.decode(errors="replace").splitlines()), ""
