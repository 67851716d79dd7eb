"""The rows about the beginning: from the start of a process until every object has been reconciled once.

Time, memory and rate of each contestant beside a plain LIST of the same objects; the stall of our event loop in runs
of its own, since the ticker that finds it costs a little.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from benchmarks.measuring.failures import told
from benchmarks.measuring.goals import Figure, round_off
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.rows import Row
from benchmarks.runtime.contestants import Contestant, our_forms
from benchmarks.runtime.goals import figure, skipped
from benchmarks.runtime.ground import Ground
from benchmarks.runtime.program import measured
from benchmarks.runtime.records import Loaded, Ticked
from benchmarks.runtime.rows import Options
from kubeio.access.cluster import load_cluster
from kubeio.models import ListMeta
from kubeio.rest.client import Client

_SETTLE_S: Final = 1.0
"""After the load: whatever is done once more with the objects counts for the memory."""


class _Head(msgspec.Struct):
    metadata: ListMeta


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one contestant."""

    took_s: float
    """From just before the process was made until the last object's first reconcile began."""
    until_first_s: float
    rss_mb: float
    per_s: float
    """First reconciles per second, once they had begun."""
    per_core_s: float


@dataclass(slots=True)
class Starts:
    """What became of one contestant."""

    name: str
    runs: list[Start] = field(default_factory=list)
    why_not: str = ""
    """Why it could not take part."""
    problem: str = ""
    """Why a run of it failed."""

    @property
    def took_s(self) -> float:
        return statistics.fmean(run.took_s for run in self.runs)

    @property
    def rss_mb(self) -> float:
        """The highest of all runs."""
        return max(run.rss_mb for run in self.runs)

    def details(self) -> dict[str, object]:
        known: dict[str, object] = {"name": self.name}
        if self.runs:
            known |= {
                "start_s": round(self.took_s, 3),
                "peak_rss_mb": round(self.rss_mb, 1),
                "first_reconciles_per_s": round_off(statistics.fmean(run.per_s for run in self.runs)),
                "first_reconciles_per_core_s": round_off(
                    statistics.fmean(run.per_core_s for run in self.runs)
                ),
                "runs_s": [round(run.took_s, 3) for run in self.runs],
                "until_first_s": [round(run.until_first_s, 3) for run in self.runs],
            }
        return known | ({"left_out": self.why_not or self.problem} if self.why_not or self.problem else {})


async def measure_start(
    ground: Ground, meter: Meter, options: Options, contestants: Sequence[Contestant]
) -> Row:
    """The plain LIST and all contestants in turns, as often as asked."""
    lists_s: list[float] = []
    listed_bytes = 0
    found = {one.key: Starts(one.name, why_not=one.why_not) for one in contestants}
    for _ in range(options.rounds):
        with meter.counting("plain LIST", None):
            took_s, listed_bytes = await plain_list(ground, page=options.page)
        lists_s.append(took_s)
        for contestant in contestants:
            starts = found[contestant.key]
            if not starts.why_not and not starts.problem:
                await _take_part(ground, meter, options, contestant, starts)
    return Row(
        key="start",
        figures=figures(found, statistics.fmean(lists_s)),
        details={
            "list_s": [round(took_s, 3) for took_s in lists_s],
            "list_bytes": listed_bytes,
            "contestants": {key: starts.details() for key, starts in found.items()},
        },
    )


async def _take_part(
    ground: Ground, meter: Meter, options: Options, contestant: Contestant, starts: Starts
) -> None:
    """One start; that one contestant fails does not keep the others out."""
    try:
        with meter.counting(f"start of {contestant.name}", None):
            starts.runs.append(await start_once(ground, options, contestant))
    except Exception as error:
        starts.problem = told(error) or ""
        if not starts.problem:
            raise
        meter.say(f"{contestant.name}: {starts.problem}")


async def start_once(ground: Ground, options: Options, contestant: Contestant) -> Start:
    """Start the contestant, wait until it has reconciled everything once, end it. Raises: NotSeen, Ended."""
    objects = options.objects
    async with measured(ground, contestant.key, contestant.command, objects=objects) as program:
        loaded = await program.wait_for(Loaded, within_s=options.start_within_s)
        await asyncio.sleep(_SETTLE_S)
        return Start(
            took_s=loaded.at - program.started_at,
            until_first_s=loaded.first_at - program.started_at,
            rss_mb=program.peak_mb(),
            per_s=loaded.per_s,
            per_core_s=loaded.per_core_s,
        )


async def plain_list(ground: Ground, *, page: int) -> tuple[float, int]:
    """Seconds and bytes of reading every object by pages on a new connection, and throwing the bytes away."""
    cluster = load_cluster(kubeconfig=str(ground.account.kubeconfig))
    path = ground.resource.path(namespace=ground.namespace)
    read_bytes, token = 0, ""
    began_at = time.monotonic()
    async with Client(cluster, user_agent="ringleader-bench-list") as client:
        while True:
            query = {"limit": str(page)} | ({"continue": token} if token else {})
            answer = await client.request("GET", path, query=query, timeout_s=120)
            read_bytes += len(answer.body)
            token = msgspec.json.decode(answer.body, type=_Head).metadata.continue_
            if not token:
                return time.monotonic() - began_at, read_bytes


# -- figures ------------------------------------------------------------------------------------------------


def figures(found: Mapping[str, Starts], list_s: float) -> list[Figure]:
    """The lines of the row, from all starts and the mean time of the plain LIST."""
    lines: list[Figure] = []
    for form in ("raw", "compressed"):
        starts = found[f"ours-{form}"]
        lines += [
            _beside_list(f"start-{form}-list", starts, list_s),
            _beside(f"start-{form}-go", starts, found["go"]),
            _memory(f"rss-{form}", starts),
        ]
    metadata, peer = found["ours-metadata"], found["go-metadata"]
    return [*lines, _beside("metadata-go", metadata, peer), _memory_beside("metadata-rss", metadata, peer)]


def _beside_list(key: str, starts: Starts, list_s: float) -> Figure:
    return _absent(key, starts) or figure(
        key, starts.took_s / list_s, f"{starts.took_s:.2f} s of {list_s:.2f} s"
    )


def _beside(key: str, starts: Starts, peer: Starts) -> Figure:
    return _absent(key, starts, peer) or figure(
        key, starts.took_s / peer.took_s, f"{starts.took_s:.2f} s of {peer.took_s:.2f} s"
    )


def _memory(key: str, starts: Starts) -> Figure:
    return _absent(key, starts) or figure(key, starts.rss_mb, f"the highest of {len(starts.runs)}")


def _memory_beside(key: str, starts: Starts, peer: Starts) -> Figure:
    return _absent(key, starts, peer) or figure(
        key, starts.rss_mb / peer.rss_mb, f"{starts.rss_mb:.0f} MB of {peer.rss_mb:.0f} MB"
    )


def _absent(key: str, *needed: Starts) -> Figure | None:
    """The line *key* without a value, if one of *needed* did not take part, or failed."""
    for starts in needed:
        if starts.why_not:
            return skipped(key, starts.why_not)
        if starts.problem or not starts.runs:
            return figure(key, None, f"{starts.name}: {starts.problem}")
    return None


# -- stall --------------------------------------------------------------------------------------------------


async def measure_stall(ground: Ground, meter: Meter, options: Options) -> Row:
    """Start our program with a ticker on its event loop, in each full form that there is."""
    worst: dict[str, list[float]] = {}
    for form in our_forms()[:2]:
        if form.why_not:
            continue
        for _ in range(options.rounds):
            with meter.counting(f"stalls of {form.name}", None):
                worst.setdefault(form.key, []).append(await _worst_stall_ms(ground, options, form))
    told_ms = {key: ", ".join(f"{one:.0f}" for one in many) for key, many in worst.items()}
    how = "; ".join(f"{key.removeprefix('ours-')}: {many} ms" for key, many in told_ms.items())
    highest = max(one for many in worst.values() for one in many)
    return Row(key="stall", figures=[figure("stall", highest, how)], details={"worst_ms": worst})


async def _worst_stall_ms(ground: Ground, options: Options, form: Contestant) -> float:
    objects = options.objects
    async with measured(
        ground, "stall", lambda order: [*form.command(order), "--ticker"], objects=objects
    ) as program:
        return round((await program.wait_for(Ticked, within_s=options.start_within_s)).worst_ms, 2)
