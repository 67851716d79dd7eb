"""Many runs, each in a process of its own, and the shrinking of one that failed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from simulation.run import Plan, Result, run

_MOST_BYTES: Final = 3 << 30
_MOST_CPU_S: Final = 120
"""A run takes 1 to 3 s, a long one half a minute."""


def run_all(plans: Iterable[Plan], *, workers: int) -> Iterator[Result]:
    """The result of each plan, in the order in which they end. Each runs in a fork, so nothing is shared."""
    context = multiprocessing.get_context("fork")
    with context.Pool(workers, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_run_quietly, plans, chunksize=1)


def run_one(plan: Plan) -> Result:
    """The result of *plan*, in a fork."""
    (result,) = run_all([plan], workers=1)
    return result


def shrink(failed: Result, *, workers: int, most: int = 200, hours: float = 0.0) -> Result:
    """The run of *failed* with the fewest of its faults that break the same rule, as far as *most* runs find them.

    Delta debugging: parts of the list are left out, halves at first, single faults in the end.
    """
    best, parts, left = failed, 2, most
    while len(best.faults) > 1 and left > 0:
        size = max(1, len(best.faults) // parts)
        plans = [
            Plan(best.seed, (*best.faults[:begin], *best.faults[begin + size :]), hours=hours)
            for begin in range(0, len(best.faults), size)
        ]
        left -= len(plans)
        smaller = next(
            (result for result in run_all(plans, workers=workers) if result.rule == failed.rule), None
        )
        if smaller is not None:
            best, parts = smaller, max(2, parts - 1)
        elif size == 1:
            break
        else:
            parts = min(len(best.faults), 2 * parts)
    return best


def _run_quietly(plan: Plan) -> Result:
    """The result of *plan*. What its processes write to stderr (stacks of threads) is no output of ours."""
    if not plan.hours:
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S + 5))
    sys.unraisablehook = lambda unraisable: None
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
        try:
            return run(plan)
        except BaseException:  # a fault of the simulation
            why = traceback.format_exc()
    return Result(
        seed=plan.seed,
        digest="",
        faults=plan.faults or (),
        seconds=0,
        events=0,
        reconciles=0,
        requests=0,
        rule="the simulation itself",
        what=why[-2000:],
    )
