"""Memory, threads, descriptors and sockets of every process of a fleet, and its Leases, over hours: nothing may grow.

Growth is the slope of a straight line fitted to the samples, times the time that they span. The first fifth is left
out: a process fills its caches.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

from ringleader.testing.fleet import Fleet
from tests.fleet.chaos.strike import NO_ANSWER

WARM_UP: Final = 0.2
FEWEST: Final = 20
"""Samples of one process: fewer show no slope."""
ALLOWED: Final = {
    "rss_bytes": (0.10, 8e6),
    "threads": (0.0, 4.0),
    "descriptors": (0.0, 16.0),  # a sharder that leads has a dozen sockets more than one that waits
    "sockets": (0.0, 16.0),
}
"""Growth that is none: a share of the mean, and at least so much."""
ALLOWED_LEASES: Final = (0.0, 6.0)
LEASES: Final = "Leases"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement at *t*, of the process *pid* that filled *place*."""

    t: float
    place: str
    pid: int
    what: str
    value: float


@dataclass(frozen=True, slots=True)
class Growth:
    """What the samples of one process show."""

    place: str
    what: str
    mean: float
    growth: float
    allowed: float
    minutes: float

    @property
    def is_too_much(self) -> bool:
        return self.growth > self.allowed

    def __str__(self) -> str:
        unit, scale = (" MB", 1e6) if self.what == "rss_bytes" else ("", 1.0)
        verdict = "GROWS" if self.is_too_much else "flat"
        return (
            f"  {self.place:12} {self.what:12} mean {self.mean / scale:8.1f}{unit}, {self.growth / scale:+7.2f}{unit}"
            f" in {self.minutes:.0f} minutes (allowed {self.allowed / scale:.1f}): {verdict}"
        )


def growth_of(samples: Sequence[Sample]) -> Growth | None:
    """The growth in *samples* of one process and one quantity; None if they are too few."""
    begin, end = samples[0].t, samples[-1].t
    judged = [each for each in samples if each.t >= begin + WARM_UP * (end - begin)]
    if len(judged) < FEWEST:
        return None
    times, values = [each.t for each in judged], [each.value for each in judged]
    slope, _ = statistics.linear_regression(times, values)
    what, mean = samples[0].what, statistics.fmean(values)
    share, least = ALLOWED.get(what, ALLOWED_LEASES)
    return Growth(
        samples[0].place,
        what,
        mean=mean,
        growth=slope * (times[-1] - times[0]),
        allowed=max(share * mean, least),
        minutes=(times[-1] - times[0]) / 60,
    )


def growths(samples: Iterable[Sample]) -> list[Growth]:
    """The growth of each place and quantity, by the process that filled the place for longest."""
    series: dict[tuple[str, str], dict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for each in samples:
        series[each.place, each.what][each.pid].append(each)
    found = [growth_of(max(by_pid.values(), key=len)) for _, by_pid in sorted(series.items())]
    return [each for each in found if each is not None]


class Sampler:
    """Takes samples of *fleet*."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._began = fleet.clock.now()
        self.samples: list[Sample] = []

    async def take(self) -> list[Sample]:
        """Measure everything now."""
        t = self._fleet.clock.now() - self._began
        taken: list[Sample] = []
        for name, place in {**self._fleet.sharders, **self._fleet.members}.items():
            if place.current is not None:
                with contextlib.suppress(OSError):  # it ends now
                    taken += measured(t, name, place.current.pid)
        with contextlib.suppress(*NO_ANSWER):
            taken.append(Sample(t, "ring", 0, LEASES, len(await self._fleet.leases())))
        self.samples += taken
        return taken

    def growths(self) -> list[Growth]:
        return growths(self.samples)


def measured(t: float, place: str, pid: int) -> list[Sample]:
    """The process *pid* as /proc shows it. Raises: OSError if it has ended."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
    links = []
    for link in (proc / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    values = {
        "rss_bytes": 1024.0 * int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "descriptors": len(links),
        "sockets": sum(link.startswith("socket:") for link in links),
    }
    return [Sample(t, place, pid, what, value) for what, value in values.items()]


async def sample_for_ever(sampler: Sampler, *, every_s: float, csv: Path | None) -> Never:
    """Take samples until cancelled, each also as a line of the file *csv*."""
    if csv is not None:
        csv.write_text("t_s,place,pid,what,value\n")  # noqa: ASYNC240 - once a minute
    while True:
        taken = await sampler.take()
        if csv is not None:
            with csv.open("a") as file:
                file.writelines(
                    f"{each.t:.0f},{each.place},{each.pid},{each.what},{each.value:.0f}\n" for each in taken
                )
        await asyncio.sleep(every_s)
