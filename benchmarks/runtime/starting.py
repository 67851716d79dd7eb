"""Rows about load: from the start of a process until every object was reconciled once, no-op reconciles, stalls.

Time, memory and rate of each candidate beside a plain LIST of the same objects. The runs with the ticker, which finds
the stall of the event loop, are apart: it costs a little.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from benchmarks.measuring.report import round_off
from benchmarks.measuring.run import Run, problem_of
from benchmarks.measuring.testbed import Testbed
from benchmarks.runtime.programs import Candidate, Loaded, Order, Repeated, Ticked, measured, our_forms, ours
from kubeio.access.cluster import load_cluster
from kubeio.models import ListMeta
from kubeio.rest.client import Client

PAGE: Final = 5_000
"""Objects in a page of the plain LIST."""
_SETTLE_S: Final = 1.0
"""After the load: a second use of the objects counts for the memory."""
_RATES: Final = {
    "rate-raw": ("--stored", "raw", "--act", "get", "--model", "raw"),
    "rate-model": ("--stored", "raw", "--act", "read", "--model", "website"),
}


class _Head(msgspec.Struct):
    metadata: ListMeta


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one candidate."""

    took_s: float
    """From just before the process was made until the last object's first reconcile began."""
    until_first_s: float
    rss_mb: float
    per_s: float
    """First reconciles per second, once they had begun."""
    per_core_s: float


@dataclass(slots=True)
class Starts:
    """All starts of one candidate. *why_not*: it cannot take part; *problem*: a run of it failed."""

    name: str
    runs: list[Start] = field(default_factory=list)
    why_not: str = ""
    problem: str = ""

    @property
    def took_s(self) -> float:
        return statistics.fmean(run.took_s for run in self.runs)

    @property
    def rss_mb(self) -> float:
        """The highest of all runs."""
        return max(run.rss_mb for run in self.runs)

    @property
    def per_core_s(self) -> float:
        return statistics.fmean(run.per_core_s for run in self.runs)

    def details(self) -> dict[str, object]:
        known: dict[str, object] = {
            "name": self.name,
            "runs": [msgspec.to_builtins(run) for run in self.runs],
        }
        if self.runs:
            known |= {
                "start_s": round(self.took_s, 3),
                "peak_rss_mb": round(self.rss_mb, 1),
                "first_reconciles_per_core_s": round_off(self.per_core_s),
            }
        return known | ({"left_out": self.why_not or self.problem} if self.why_not or self.problem else {})


async def measure_start(testbed: Testbed, run: Run, candidates: Sequence[Candidate], *, rounds: int) -> None:
    """The plain LIST and all candidates, round by round."""
    lists_s: list[float] = []
    listed_bytes = 0
    found = {one.key: Starts(one.name, why_not=one.why_not) for one in candidates}
    for _ in range(rounds):
        with run.console.counting("plain LIST", 0):
            took_s, listed_bytes = await plain_list(testbed)
        lists_s.append(took_s)
        for candidate in candidates:
            starts = found[candidate.key]
            if not starts.why_not and not starts.problem:
                await take_part(testbed, run, candidate, starts)
    note_starts(run, found, statistics.fmean(lists_s))
    run.detail(
        "start",
        list_s=[round(took_s, 3) for took_s in lists_s],
        list_bytes=listed_bytes,
        candidates={key: starts.details() for key, starts in found.items()},
    )


async def take_part(testbed: Testbed, run: Run, candidate: Candidate, starts: Starts) -> None:
    """One start; that one candidate fails does not keep the others out."""
    try:
        with run.console.counting(f"start of {candidate.name}", 0):
            starts.runs.append(await start_once(testbed, candidate))
    except Exception as error:
        starts.problem = problem_of(error) or ""
        if not starts.problem:
            raise
        run.console.say(f"{candidate.name}: {starts.problem}")


async def start_once(testbed: Testbed, candidate: Candidate) -> Start:
    """Start the candidate, wait until it has reconciled everything once, end it. Raises: NotSeen, Ended."""
    async with measured(testbed, candidate.key, candidate.command) as program:
        loaded = await program.wait_for(Loaded)
        await asyncio.sleep(_SETTLE_S)
        return Start(
            took_s=loaded.at - program.started_at,
            until_first_s=loaded.first_at - program.started_at,
            rss_mb=program.peak_mb(),
            per_s=loaded.per_s,
            per_core_s=loaded.per_core_s,
        )


async def plain_list(testbed: Testbed) -> tuple[float, int]:
    """Seconds and bytes of reading every object by pages on a new connection, and throwing the bytes away."""
    cluster = load_cluster(kubeconfig=str(testbed.replica.kubeconfig))
    path = testbed.resource.path(namespace=testbed.namespace)
    read_bytes, token = 0, ""
    began_at = time.monotonic()
    async with Client(cluster, user_agent="ringleader-bench-list") as client:
        while True:
            query = {"limit": str(PAGE)} | ({"continue": token} if token else {})
            answer = await client.request("GET", path, query=query, timeout_s=120)
            read_bytes += len(answer.body)
            token = msgspec.json.decode(answer.body, type=_Head).metadata.continue_
            if not token:
                return time.monotonic() - began_at, read_bytes


def note_starts(run: Run, found: Mapping[str, Starts], list_s: float) -> None:
    """The lines of the row, from all starts and the mean time of the plain LIST."""
    for form in ("raw", "compressed"):
        ours_, go = found[f"ours-{form}"], found["go"]
        if is_there(run, f"start-{form}-list", ours_):
            run.figure(f"start-{form}-list", ours_.took_s / list_s, f"{ours_.took_s:.2f} s of {list_s:.2f} s")
        note_beside(run, f"start-{form}-go", ours_, go)
        if is_there(run, f"rss-{form}", ours_):
            run.figure(f"rss-{form}", ours_.rss_mb, f"the highest of {len(ours_.runs)}")
    metadata, go = found["ours-metadata"], found["go-metadata"]
    note_beside(run, "metadata-go", metadata, go)
    if is_there(run, "metadata-rss", metadata, go):
        how = f"{metadata.rss_mb:.0f} MB of {go.rss_mb:.0f} MB"
        run.figure("metadata-rss", metadata.rss_mb / go.rss_mb, how)
    for key, starts in found.items():
        if is_there(run, f"load-{key}", starts):
            how = f"{starts.rss_mb:,.0f} MB, {starts.per_core_s:,.0f} reconciles/s per core"
            run.figure(f"load-{key}", starts.took_s, how)


def note_beside(run: Run, line: str, starts: Starts, peer: Starts) -> None:
    if is_there(run, line, starts, peer):
        run.figure(line, starts.took_s / peer.took_s, f"{starts.took_s:.2f} s of {peer.took_s:.2f} s")


def is_there(run: Run, line: str, *needed: Starts) -> bool:
    """Whether all of *needed* were measured; otherwise the line *line* has the reason."""
    for starts in needed:
        if starts.why_not:
            run.skip(line, starts.why_not)
            return False
        if starts.problem or not starts.runs:
            run.figure(line, None, f"{starts.name}: {starts.problem}")
            return False
    return True


# -- no-op reconciles ---------------------------------------------------------------------------------------


async def measure_rates(testbed: Testbed, run: Run, kopf: Candidate, *, rounds: int, reconciles: int) -> None:
    """No-op reconciles for each second of CPU: ours raw and decoded, and kopf's handlers, round by round.

    Every object asks for itself again at once, through queue, worker and cache; counted from the first reconcile of the
    last object on. kopf keeps no cache and has no such wish: its handlers' calls for the first list are counted.
    """
    times = times_again(reconciles, len(testbed.stock.names))
    rates: dict[str, list[float]] = {line: [] for line in (*_RATES, "rate-kopf")}
    problem = kopf.why_not
    for _ in range(rounds):
        for line, flags in _RATES.items():
            with run.console.counting(f"no-op reconciles, {line}", 0):
                command = with_flags(ours, *flags, "--again", str(times))
                async with measured(testbed, "rate", command) as program:
                    rates[line].append((await program.wait_for(Repeated)).per_core_s)
        if not problem:
            try:
                with run.console.counting("no-op handlers of kopf", 0):
                    async with measured(testbed, "rate-kopf", kopf.command) as program:
                        rates["rate-kopf"].append((await program.wait_for(Loaded)).per_core_s)
            except Exception as error:
                problem = problem_of(error) or ""
                if not problem:
                    raise
    for line in _RATES:
        how = f"of {len(rates[line])}: {', '.join(f'{rate:,.0f}' for rate in rates[line])}"
        run.figure(line, statistics.fmean(rates[line]), how)
    if kopf.why_not:
        run.skip("rate-kopf", kopf.why_not)
    elif problem:
        run.figure("rate-kopf", None, problem)
    else:
        raw, theirs = statistics.fmean(rates["rate-raw"]), statistics.fmean(rates["rate-kopf"])
        run.figure("rate-kopf", raw / theirs, f"{raw:,.0f} of {theirs:,.0f}/s per core")
    run.detail("rate", per_core_s={line: [round_off(one) for one in many] for line, many in rates.items()})
    run.detail("rate", again=times)


def with_flags(command: Callable[[Order], list[str]], *flags: str) -> Callable[[Order], list[str]]:
    return lambda order: [*command(order), *flags]


def times_again(reconciles: int, objects: int) -> int:
    """Repetitions of each object, so that enough is counted."""
    return max(1, math.ceil(reconciles / objects))


# -- stalls -------------------------------------------------------------------------------------------------


async def measure_stall(testbed: Testbed, run: Run, *, rounds: int) -> None:
    """Start our program with a ticker on its event loop, in each full form."""
    worst: dict[str, list[float]] = {}
    for form in our_forms()[:2]:
        for _ in range(rounds):
            with run.console.counting(f"stalls of {form.name}", 0):
                command = with_flags(form.command, "--ticker")
                async with measured(testbed, "stall", command) as program:
                    ticked = await program.wait_for(Ticked)
            worst.setdefault(form.key, []).append(round(ticked.worst_ms, 2))
    each_ms = {
        key.removeprefix("ours-"): ", ".join(f"{one:.0f}" for one in many) for key, many in worst.items()
    }
    how = "; ".join(f"{form}: {many} ms" for form, many in each_ms.items())
    run.figure("stall", max(one for many in worst.values() for one in many), how)
    run.detail("stall", worst_ms=worst)
