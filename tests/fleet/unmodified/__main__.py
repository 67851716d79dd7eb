"""`python -m tests.fleet.unmodified`: random faults on unmodified kube-controller-managers, judged pod by pod.

One ring of Deployments, StatefulSets and Jobs on two API servers over one etcd, worked by proxies. One seed gives one
order of faults; when they strike depends on the machine. Exit codes: 0 nothing was lost or made twice, 1 a judge found
something or the workloads did not come to rest, 2 a flag cannot be.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from devcluster.flag_values import amount, count
from devcluster.real import BinariesMissing, ensure_binaries, kubernetes_recipe
from devcluster.real.binaries import SERVERS
from devcluster.real.build_progress import ConsoleProgress
from kubeio.program.flag_parser import FlagParser
from tests.fleet.leaves import leaves
from tests.fleet.unmodified.faults import FAULTS
from tests.fleet.unmodified.storm import Outcome, Plan, Storm, open_storm


def _parser() -> argparse.ArgumentParser:
    parser = FlagParser(
        prog="python -m tests.fleet.unmodified",
        usage="python -m tests.fleet.unmodified [OPTIONS]",
        description=(__doc__ or "").partition("\n\n")[0],
    )
    parser.add_argument("--minutes", type=amount, default=10.0, help="how long faults strike")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="order of the faults")
    parser.add_argument("--faults", default="", help="names, separated by commas; else all")
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument("--deployments", type=count, default=200, help="how many there are")
    parser.add_argument("--changes", type=amount, default=1.5, help="rollouts, scalings and Jobs in a second")
    parser.add_argument("--lease", type=count, default=5, help="duration of the Leases, in seconds")
    parser.add_argument("--out", type=Path, help="folder that keeps the logs of every process")
    return parser


def _chosen(text: str) -> list[str]:
    """Raises: SystemExit(2) for a name that is no fault's."""
    names = [name.strip() for name in text.split(",") if name.strip()] or list(FAULTS)
    for name in names:
        if name not in FAULTS:
            print(f"error: --faults: {name} is no fault; use some of {', '.join(FAULTS)}", file=sys.stderr)
            sys.exit(2)
    return names


async def run(plan: Plan, folder: Path) -> Storm:
    """Raises: AssertionError."""
    async with open_storm(folder, plan) as storm:
        await storm.run()
        return storm


def _print_outcome(storm: Storm) -> None:
    outcome: Outcome = storm.outcome
    workloads = storm.fleet.workloads
    for name, number in sorted(outcome.faults.items()):
        print(f"  {number:5}  {name}")
    print(
        f"{outcome.faults.total()} faults in {outcome.waves} waves ({outcome.missed.total()} struck nothing)"
    )
    print(f"changes: {', '.join(f'{count} {name}' for name, count in sorted(outcome.changes.items()))}")
    sets, jobs = workloads.deployments.replica_sets.values(), workloads.jobs.jobs.values()
    print(
        f"{workloads.pods_made:,} pods: {sum(each.made for each in sets):,} of {len(sets):,} ReplicaSets,"
        f" {workloads.stateful_sets.made():,} of StatefulSets, {sum(each.made for each in jobs):,} of {len(jobs)} Jobs"
    )
    print(
        f"{outcome.rests} times at rest, {outcome.longest_rest_s:.0f} s at most; {outcome.scaled_up:,} pods asked for"
        " there, and made exactly"
    )
    writes = outcome.writes
    print(
        f"{writes.accepted:,} writes of controllers accepted, 0 to another's object; {writes.refused:,} refused"
    )


def main() -> None:
    flags = _parser().parse_args()
    if flags.list:
        for name, fault in FAULTS.items():
            print(f"{name:20} {(fault.__doc__ or '').partition(chr(10))[0]}")
        return
    plan = Plan(
        seed=flags.seed,
        seconds=60 * flags.minutes,
        deployments=flags.deployments,
        changes_per_s=flags.changes,
        faults=_chosen(flags.faults),
        lease_s=flags.lease,
    )
    try:
        ensure_binaries(SERVERS, kubernetes_recipe(), progress=ConsoleProgress())
    except BinariesMissing as missing:
        print(f"error: {missing.reason}; {missing.remedy}", file=sys.stderr)
        sys.exit(1)
    print(f"unmodified: {flags.minutes:g} minutes, --seed {flags.seed}", flush=True)
    folder = flags.out or Path(tempfile.mkdtemp(prefix="unmodified-"))
    try:
        storm = asyncio.run(run(plan, folder))
    except* AssertionError as group:
        for error in leaves(group):
            print(f"unmodified: LOST, --seed {flags.seed}: {error}")
        print(f"unmodified: logs, changes and the audit log are in {folder}")
        sys.exit(1)
    _print_outcome(storm)
    print("unmodified: nothing was lost or made twice")
    if not flags.out:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
