"""No-op reconciles for each second of CPU: ours with a cached read, raw and decoded, and kopf's handlers.

Ours: every object asks for itself again at once, through queue, worker and cache, as often as is needed for a steady
figure; what is counted begins when all have been reconciled once. kopf keeps no cache and has no such wish: counted
are its handlers' calls for the first list, from the first to the last, without the list itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Final

from benchmarks.measuring.failures import told
from benchmarks.measuring.goals import Figure, round_off
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.rows import Row
from benchmarks.runtime.contestants import Contestant, Order, our_forms
from benchmarks.runtime.goals import figure, skipped
from benchmarks.runtime.ground import Ground
from benchmarks.runtime.program import measured
from benchmarks.runtime.records import Loaded, Repeated
from benchmarks.runtime.rows import Options

_FLAGS: Final = {
    "raw": ("--act", "look", "--model", "raw"),
    "model": ("--act", "read", "--model", "website"),
}


async def measure_rates(ground: Ground, meter: Meter, options: Options, kopf: Contestant) -> Row:
    """Raw, decoded and kopf in turns, as often as asked."""
    rates: dict[str, list[float]] = {way: [] for way in (*_FLAGS, "kopf")}
    problem = kopf.why_not
    for _ in range(options.rounds):
        for way, flags in _FLAGS.items():
            with meter.counting(f"no-op reconciles, {way}", None):
                rates[way].append(await _ours_per_core_s(ground, options, flags))
        if not problem:
            with meter.counting("no-op handlers of kopf", None):
                try:
                    rates["kopf"].append(await _kopf_per_core_s(ground, options, kopf))
                except Exception as error:
                    problem = told(error) or ""
                    if not problem:
                        raise
    raw, model = (statistics.fmean(rates[way]) for way in _FLAGS)
    return Row(
        key="rate",
        figures=[
            figure("rate-raw", raw, _how(rates["raw"])),
            figure("rate-model", model, _how(rates["model"])),
            _beside_kopf(raw, rates["kopf"], kopf.why_not, problem),
        ],
        details={
            "per_core_s": {way: [round_off(rate) for rate in found] for way, found in rates.items()},
            "again": again(options),
        },
    )


def again(options: Options) -> int:
    """How often each object comes again, so that enough is counted."""
    return max(1, math.ceil(options.reconciles / options.objects))


def _beside_kopf(raw: float, kopf: list[float], why_not: str, problem: str) -> Figure:
    if why_not:
        return skipped("rate-kopf", why_not)
    if problem:
        return figure("rate-kopf", None, problem)
    theirs = statistics.fmean(kopf)
    return figure("rate-kopf", raw / theirs, f"{raw:,.0f} of {theirs:,.0f}/s per core")


def _how(found: list[float]) -> str:
    return f"of {len(found)}: {', '.join(f'{rate:,.0f}' for rate in found)}"


async def _ours_per_core_s(ground: Ground, options: Options, flags: tuple[str, ...]) -> float:
    command = _raw_form(*flags, "--again", str(again(options)))
    async with measured(ground, "rate", command, objects=options.objects) as program:
        repeated = await program.wait_for(Repeated, within_s=options.start_within_s)
    return repeated.per_core_s


async def _kopf_per_core_s(ground: Ground, options: Options, kopf: Contestant) -> float:
    async with measured(ground, "rate-kopf", kopf.command, objects=options.objects) as program:
        loaded = await program.wait_for(Loaded, within_s=options.start_within_s)
    return loaded.per_core_s


def _raw_form(*flags: str) -> Callable[[Order], list[str]]:
    """Our program with objects stored raw, if that can be chosen."""
    raw = our_forms()[0]
    return lambda order: [*raw.command(order), *flags]
