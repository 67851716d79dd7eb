"""`python -m tests.fleet.chaos`: random faults on whole fleets of processes on real servers, judged by three checks.

One seed gives one order of faults; when they strike depends on the machine. Each run of ten minutes has its own fleet
and a random half of the faults. Exit codes: 0 nothing was lost, 1 a check found something or objects did not come
back, 2 a flag cannot be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from devcluster.flag_values import amount, count
from devcluster.listening import LOOPBACK
from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing, ensure_binaries, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS
from devcluster.real.build_progress import ConsoleProgress
from devcluster.real.recipes import etcdutl_recipe
from kubeio.program.flag_parser import FlagParser
from ringleader.testing.plugin import plane_context
from tests.fleet.chaos.faults import FAULTS, ChaosFault
from tests.fleet.chaos.networks import missing, open_bridge
from tests.fleet.chaos.slowing import cgroup_root
from tests.fleet.chaos.soak import Growth, Sampler, sample_for_ever
from tests.fleet.chaos.storm import Outcome, Plan, Storm, open_storm, subset
from tests.fleet.leaves import leaves

RUN_S: Final = 600.0
API_SERVERS: Final = 2
AT_ONCE: Final = (2, 4, 8)
"""Faults that may strike at once; one number is drawn for each run."""


@contextlib.asynccontextmanager
async def storm_on(kind: str, directory: Path, plan: Plan) -> AsyncIterator[Storm]:
    """A storm on a plane of *kind* of its own, with all that this machine lets it have."""
    async with contextlib.AsyncExitStack() as stack:
        network = await stack.enter_async_context(open_bridge()) if kind == "real" else None
        host = network.address if network else LOOPBACK
        plane: ControlPlane = await stack.enter_async_context(
            real_plane(
                directory / "plane", audit=True, faults=True, api_servers=API_SERVERS, faults_host=host
            )
            if kind == "real"
            else plane_context(directory / "plane", is_real=False, faults=True)
        )
        storm = await stack.enter_async_context(open_storm(plane, directory / "fleet", plan, network=network))
        leave_out(storm)
        yield storm


async def one_run(directory: Path, plan: Plan, *, kind: str) -> Outcome:
    async with storm_on(kind, directory, plan) as storm:
        await storm.run()
        return storm.outcome


async def one_soak(
    directory: Path, plan: Plan, *, kind: str, csv: Path | None
) -> tuple[Outcome, list[Growth]]:
    """A long run with few faults. Samples of every process are taken each minute, or 60 times if it is shorter."""
    every_s = min(60.0, plan.seconds / 60)
    async with storm_on(kind, directory, plan) as storm:
        sampler = Sampler(storm.site.fleet)
        async with asyncio.TaskGroup() as tasks:
            sampling = tasks.create_task(sample_for_ever(sampler, every_s=every_s, csv=csv), name="samples")
            await storm.run()
            sampling.cancel()
        return storm.outcome, sampler.growths()


def leave_out(storm: Storm) -> None:
    """Leave out the faults that cannot be made at the site of *storm*, and print them with the reason."""
    possible: list[ChaosFault] = []
    for each in storm.plan.faults:
        if reason := each.missing(storm.site):
            print(f"  left out: {each.name} ({reason})")
        else:
            possible.append(each)
    storm.choose(possible)
    if not storm.site.networks:
        print(
            f"  left out: network namespaces ({missing() or 'no bridge is free'}); partitions are the proxy's"
        )
    if cgroup_root() is None:
        print("  left out: cgroups; processes are slowed by signals")
    print(f"  faults: {', '.join(sorted(each.name for each in possible))}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = FlagParser(
        prog="python -m tests.fleet.chaos",
        usage="python -m tests.fleet.chaos [OPTIONS]",
        description=(__doc__ or "").partition("\n\n")[0],
    )
    parser.add_argument("--minutes", type=amount, default=10.0, help="how long faults strike")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="order of the faults")
    parser.add_argument(
        "--faults", default="", help="names, separated by commas, or all; else a random half a run"
    )
    parser.add_argument("--list", action="store_true", help="print the table of faults")
    parser.add_argument(
        "--soak", type=amount, default=0.0, metavar="HOURS", help="few faults; nothing may grow"
    )
    parser.add_argument("--lease", type=count, default=3, help="duration of the Leases, in seconds")
    parser.add_argument("--plane", choices=("real", "embedded"), default="real")
    parser.add_argument("--former", type=Path, help="Python of a former version, for version_rolled")
    parser.add_argument(
        "--no-fence", action="store_true", help="replicas whose writes test nothing: must fail"
    )
    parser.add_argument("--out", type=Path, help="folder that keeps the logs of every process, and soak.csv")
    return parser


def _chosen(text: str) -> list[ChaosFault]:
    """Raises: SystemExit(2) for a name that is no fault's."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or names == ["all"]:
        return list(FAULTS.values())
    for name in names:
        if name not in FAULTS:
            print(f"error: --faults: {name} is no fault; use some of {', '.join(FAULTS)}", file=sys.stderr)
            sys.exit(2)
    return [FAULTS[name] for name in names]


def storm_of(flags: argparse.Namespace, folder: Path) -> Outcome:
    """Runs until the minutes are over. Raises: AssertionError."""
    total, rng, left_s = Outcome(), random.Random(flags.seed), 60 * flags.minutes
    number = 0
    while left_s > 0:
        number += 1
        faults = _chosen(flags.faults) if flags.faults else subset(rng, list(FAULTS.values()))
        seconds, most_at_once = min(left_s, RUN_S), rng.choice(AT_ONCE)
        plan = Plan(
            seed=rng.randrange(2**32),
            seconds=seconds,
            faults=faults,
            lease_s=flags.lease,
            most_at_once=most_at_once,
            former=flags.former,
            fenced=not flags.no_fence,
        )
        print(f"run {number}: {seconds / 60:g} minutes, up to {most_at_once} faults at once", flush=True)
        began = time.monotonic()
        directory = folder / f"run-{number}"
        total.add(asyncio.run(one_run(directory, plan, kind=flags.plane)))
        left_s -= max(seconds, time.monotonic() - began)
        if not flags.out:
            shutil.rmtree(directory)
    return total


def soak_of(flags: argparse.Namespace, folder: Path) -> Outcome:
    """Raises: AssertionError, also with what grew."""
    gentle = [each for each in _chosen(flags.faults) if flags.faults or each.is_gentle]
    plan = Plan(
        seed=flags.seed,
        seconds=3600 * flags.soak,
        faults=gentle,
        lease_s=flags.lease,
        updates_per_s=5.0,
        most_at_once=1,
        pause_s=(20.0, 60.0) if flags.soak >= 1 else (5.0, 15.0),
        spared=frozenset({"replica-1", "replica-2"}),
    )
    csv = flags.out / "soak.csv" if flags.out else None
    outcome, growths = asyncio.run(one_soak(folder / "soak", plan, kind=flags.plane, csv=csv))
    print("\n".join(map(str, growths)))
    grown = [str(each) for each in growths if each.is_too_much]
    assert not grown, "these grew:\n" + "\n".join(grown)
    return outcome


def _print_outcome(outcome: Outcome) -> None:
    for name, number in sorted(outcome.faults.items()):
        print(f"  {number:5}  {name}")
    missed = sum(outcome.missed.values())
    print(f"{outcome.faults.total()} faults in {outcome.waves} waves ({missed} more struck nothing)")
    print(
        f"{outcome.reconciles:,} reconciles, 0 overlaps; 0 foreign writes, {outcome.refused} refused,"
        f" {outcome.unlogged} after a write that a killed server did not log"
    )
    print(f"{outcome.authors:,} statuses compared with the label of their version, 0 by another author")
    if outcome.longest:
        print(f"longest unattended: {max(outcome.longest, key=lambda text: float(text.split()[0]))}")


def main() -> None:
    flags = _parser().parse_args()
    if flags.list:
        for each in FAULTS.values():
            print(f"{each.name:22} {each.does}")
        return
    _chosen(flags.faults)
    if flags.plane == "real":
        try:
            ensure_binaries(SERVERS, kubernetes_recipe(), progress=ConsoleProgress())
            ensure_binaries(["etcdutl"], etcdutl_recipe(), progress=ConsoleProgress())
        except BinariesMissing as missing:
            print(f"error: {missing.reason}; {missing.remedy}", file=sys.stderr)
            sys.exit(1)
    length = f"a soak of {flags.soak:g} hours" if flags.soak else f"{flags.minutes:g} minutes"
    print(f"chaos: {length} on the {flags.plane} control plane, --seed {flags.seed}", flush=True)
    folder = flags.out or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        outcome = soak_of(flags, folder) if flags.soak else storm_of(flags, folder)
    except* AssertionError as group:
        for error in leaves(group):
            print(f"chaos: LOST, --seed {flags.seed}: {error}")
        print(f"chaos: logs, journals and audit logs are in {folder}")
        sys.exit(1)
    _print_outcome(outcome)
    print("chaos: nothing was lost")
    if not flags.out:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
