"""`python -m tests.fleet.chaos`: random faults on a working fleet, on a real kube-apiserver, judged by both checks.

One seed gives one order of faults; when they strike depends on the machine. Exit codes: 0 nothing was lost, 1 a check
found something or objects did not come back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from devcluster.faults import Fault
from devcluster.plane import ControlPlane
from kubeio.resource import LEASES
from ringleader.testing.client import RequestFailedError
from ringleader.testing.commands import WAIT_MS, FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.plugin import plane_context
from tests.fleet.judging import judge

OBJECTS: Final = 200
REPLICAS: Final = 4
UPDATES_PER_S: Final = 20.0
LEASE_S: Final = 3
JUDGED_EVERY: Final = 8
"""Faults between two waits until every object is at its place and up to date."""
PAUSE_S: Final = (0.5, 4.0)
LONGEST_S: Final = 4 * LEASE_S
"""Longest freeze, partition or absence of the API server: far beyond a Lease."""


class Chaos:
    """Faults against *fleet*, in the order that *rng* gives."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet = fleet
        self._rng = rng
        self.faults: Counter[str] = Counter()
        self._kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            self.kill,
            self.kill_and_join,
            self.freeze,
            self.kill_leader,
            self.freeze_leader,
            self.delete_lease,
            self.restart,
            self.cut,
            self.hold,
            self.partition,
            self.lost_answers,
            self.mute_watches,
            self.errors,
            self.restart_server,
        )

    async def strike(self) -> str:
        """One fault, to its end; its name."""
        kind = self._rng.choice(self._kinds)
        await kind()
        name = kind.__name__.replace("_", " ")
        self.faults[name] += 1
        return name

    def _member(self) -> str:
        running = [name for name, replica in self._fleet.members.items() if replica.current is not None]
        return self._rng.choice(sorted(running))

    def _span_s(self) -> float:
        return self._rng.uniform(0.2, LONGEST_S)

    async def kill(self) -> None:
        await self._fleet.kill(self._member(), again=True)

    async def kill_and_join(self) -> None:
        await self._fleet.kill(self._member())
        await self._fleet.add_member()

    async def freeze(self) -> None:
        member = self._member()
        self._fleet.freeze(member)
        await asyncio.sleep(self._span_s())
        self._fleet.wake(member)

    async def kill_leader(self) -> None:
        await self._fleet.kill_leader()

    async def freeze_leader(self) -> None:
        sharder = self._fleet.sharders[await self._fleet.wait_leader()]
        sharder.freeze()
        await asyncio.sleep(self._span_s())
        sharder.wake()

    async def delete_lease(self) -> None:
        namespace = self._fleet.spec.lease_namespace
        if shards := sorted(self._fleet.lives()):
            with contextlib.suppress(RequestFailedError):  # it may be gone since
                await self._fleet.client.delete(LEASES, self._rng.choice(shards), namespace=namespace)

    async def restart(self) -> None:
        await self._fleet.restart(self._member())

    async def cut(self) -> None:
        await self._order(Fault(what="cut", user=self._member(), for_s=self._span_s()))

    async def hold(self) -> None:
        await self._order(Fault(what="hold", user=self._member(), for_s=self._span_s()))

    async def partition(self) -> None:
        await self._order(Fault(what="partition", user=self._member(), for_s=self._span_s()))

    async def lost_answers(self) -> None:
        await self._order(Fault(what="lose_answer", user=self._anyone(), verb="write", count=10, for_s=3))

    async def mute_watches(self) -> None:
        await self._order(Fault(what="mute_watches", user=self._anyone(), for_s=1))

    async def errors(self) -> None:
        code = self._rng.choice((429, 500, 503))
        await self._order(Fault(what="error", user=self._anyone(), code=code, retry_after_s=1, for_s=5))

    async def restart_server(self) -> None:
        await self._fleet.plane.restart(away_s=self._rng.uniform(0, LONGEST_S / 2))

    def _anyone(self) -> str:
        return self._rng.choice([self._member(), *sorted(self._fleet.sharders)])

    async def _order(self, fault: Fault) -> None:
        await self._fleet.plane.faults.add(fault)
        await asyncio.sleep(fault.for_s or 0)


async def run(plane: ControlPlane, directory: Path, *, minutes: float, seed: int) -> None:
    """Strike for *minutes*. Raises AssertionError if a check found something or an object did not come back."""
    rng = random.Random(seed)
    flags = ("--watch-silence", "6")
    spec = FleetSpec(lease_s=LEASE_S, settle_s=1, environment={WAIT_MS: "0-200"}, shard_flags=flags)
    async with open_fleet(plane, directory, spec=spec) as fleet, asyncio.TaskGroup() as tasks:
        await fleet.start(replicas=REPLICAS)
        await fleet.objects.create_many(OBJECTS)
        await fleet.wait_converged()
        updates = tasks.create_task(
            fleet.objects.run_updates(per_s=UPDATES_PER_S, rng=random.Random(seed)),
            name="updates",
        )
        chaos, begun = Chaos(fleet, rng), fleet.clock.now()
        while fleet.clock.now() - begun < 60 * minutes:
            name = await chaos.strike()
            print(f"{fleet.clock.now() - begun:7.1f} s  {name}", flush=True)
            if chaos.faults.total() % JUDGED_EVERY == 0:
                await judge(fleet, within_s=180)
            await asyncio.sleep(rng.uniform(*PAUSE_S))
        evidence = await judge(fleet, within_s=180)
        updates.cancel()
    print(
        f"{chaos.faults.total()} faults: {', '.join(f'{n} {name}' for name, n in sorted(chaos.faults.items()))}"
    )
    print(
        f"{evidence.reconciles:,} reconciles, {len(evidence.overlaps)} overlaps; {len(evidence.foreign_writes)}"
        f" foreign writes, {len(evidence.refused_writes)} refused"
    )
    if (longest := evidence.longest_unattended) is not None:
        print(
            f"longest unattended: {longest.key} for {longest.length_s:.1f} s from {longest.begin - begun:.1f} s on"
            f" ({longest.reason})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults strike")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="order of the faults")
    parser.add_argument(
        "--plane", choices=("real", "embedded"), default="real", help="control plane to run on"
    )
    parser.add_argument("--out", default="", help="folder that keeps the logs of every process")
    flags = parser.parse_args()

    async def chaos(directory: Path) -> None:
        async with plane_context(directory, is_real=flags.plane == "real", faults=True) as plane:
            await run(plane, directory, minutes=flags.minutes, seed=flags.seed)

    print(
        f"chaos: {flags.minutes:g} minutes on the {flags.plane} control plane, --seed {flags.seed}",
        flush=True,
    )
    try:
        with contextlib.ExitStack() as stack:
            name = flags.out or stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
            asyncio.run(chaos(Path(name)))
    except* AssertionError as group:
        for error in group.exceptions:
            print(f"chaos: LOST, --seed {flags.seed}: {error}")
        sys.exit(1)
    print("chaos: nothing was lost")


if __name__ == "__main__":
    main()
