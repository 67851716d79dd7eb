"""`python -m simulation`: seeds of the simulation. Exit codes: 0 no judge found anything, 1 one did, 2 bad input."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from devcluster.flag_values import amount, count
from kubeio.program.flag_parser import FlagParser
from kubeio.suggestions import nearest
from simulation.coverage import never_reached
from simulation.faults import KINDS, Fault
from simulation.record import relevant
from simulation.run import Plan, Result
from simulation.runs import run_all, run_one, shrink

_SHOWN = 60


def main(arguments: Sequence[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    kinds = tuple(filter(None, flags.kinds.split(",")))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        print(f"error: --kinds {unknown[0]}: is no fault; {nearest(unknown[0], KINDS)}", file=sys.stderr)
        return 2
    faults: tuple[str, ...] | None = None
    if flags.faults is not None:
        if flags.seed is None:
            print(
                "error: --faults: they belong to one run; add --seed, as a failure printed it",
                file=sys.stderr,
            )
            return 2
        faults = tuple(flags.faults.split())
        try:
            for text in faults:
                Fault.parse(text)
        except ValueError as error:
            print(f"error: --faults: {error}; copy the list that a failure printed", file=sys.stderr)
            return 2
    if flags.seed is not None:
        return _run_seed(Plan(flags.seed, faults, kinds, keeps=0, hours=flags.hours), flags)
    return _run_seeds(flags, kinds)


def _run_seed(plan: Plan, flags: argparse.Namespace) -> int:
    result = run_one(plan)
    if flags.show:
        print("\n".join(result.record))
    print(_summary(result))
    if not result.rule:
        return 0
    _report(result, flags)
    return 1


def _run_seeds(flags: argparse.Namespace, kinds: tuple[str, ...]) -> int:
    begun = time.monotonic()
    plans = (
        Plan(seed, None, kinds, hours=flags.hours) for seed in range(flags.first, flags.first + flags.seeds)
    )
    failed: list[Result] = []
    reached: Counter[str] = Counter()
    done = seconds = reconciles = 0.0
    for result in run_all(plans, workers=flags.workers):
        done += 1
        seconds += result.seconds
        reconciles += result.reconciles
        reached.update(result.reached)
        if result.rule:
            failed.append(result)
            print(f"FAILED {_summary(result)}", flush=True)
            if flags.until_failure:
                break
        if done % 50 == 0:
            print(f"{done:.0f} seeds, {len(failed)} failed, {time.monotonic() - begun:.0f} s", flush=True)
    if flags.coverage:
        for name, number in sorted(reached.items()):
            print(f"{number:10}  {name}")
        for name in never_reached(reached):
            print(f"     never  {name}")
    print(
        f"simulation: {done:.0f} seeds from {flags.first} on, {seconds / 3600:.1f} virtual hours,"
        f" {reconciles:,.0f} reconciles, {time.monotonic() - begun:.0f} s: {len(failed)} failed"
    )
    if failed:
        _report(min(failed, key=lambda result: len(result.faults)), flags)
    return 1 if failed else 0


def _summary(result: Result) -> str:
    came = f"{result.rule}: {result.what}" if result.rule else "nothing found"
    return (
        f"seed {result.seed}  digest {result.digest}  {result.seconds:.0f} s  {len(result.faults)} faults"
        f"  {result.reconciles} reconciles  {came}"
    )


def _report(result: Result, flags: argparse.Namespace) -> None:
    """Print a failure: the faults that it takes, and what happened to the objects that it names."""
    if flags.shrink:
        print(f"shrinking the {len(result.faults)} faults of seed {result.seed} ...", flush=True)
        result = shrink(result, workers=flags.workers, hours=flags.hours)
    whole = run_one(Plan(result.seed, result.faults, keeps=0, hours=flags.hours))
    for line in relevant(whole.record, whole.what, most=_SHOWN):
        print(line[:200])
    listed = " ".join(result.faults)
    hours = f" --hours {flags.hours:g}" if flags.hours else ""
    print(f"again: python -m simulation --seed {result.seed}{hours} --faults '{listed}'")


def _parser() -> argparse.ArgumentParser:
    parser = FlagParser(
        prog="python -m simulation",
        usage="python -m simulation [OPTIONS]",
        description=(__doc__ or "").partition(".")[0],
    )
    parser.add_argument("--seed", type=int, help="run this one seed, with its whole record")
    parser.add_argument("--seeds", type=count, default=50, help="run so many seeds [default: 50]")
    parser.add_argument("--first", type=int, default=1, help="the first of them [default: 1]")
    parser.add_argument("--faults", help="with --seed: these faults, as a failure printed them")
    parser.add_argument(
        "--kinds", default="", help=f"only faults of these kinds, separated by commas: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--hours",
        type=amount,
        default=0,
        help="large worlds, 30 to 100 replicas and 2,000 objects, with so many hours of faults",
    )
    parser.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first seed that fails")
    parser.add_argument(
        "--no-shrink", dest="shrink", action="store_false", help="show a failure with all its faults"
    )
    parser.add_argument("--coverage", action="store_true", help="print what the seeds reached, and how often")
    parser.add_argument("--show", action="store_true", help="with --seed: print the whole record")
    return parser


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings iterate by hash
        os.execve(  # noqa: S606 - this program again
            sys.executable,
            [sys.executable, "-m", "simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
