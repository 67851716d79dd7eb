"""Whether the Lease is renewed in time while its replica, the server and the machine are as busy as can be.

One replica of our program in sharded mode, its ring in a file, owns every object. Each reconcile asks for the next
one at once; one object in eight has its status written every time, so that 64 workers keep the server busy too.
Lateness is judged by both clocks: how long after the last one a renewal was sent, as it says itself, and how long
after the last one a watch saw it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import yaml

from benchmarks.measuring.meter import Meter
from benchmarks.measuring.processes import Cores
from benchmarks.measuring.rows import Row
from benchmarks.measuring.sightings import NotSeen, wait_for
from benchmarks.runtime.contestants import Order, ours
from benchmarks.runtime.goals import figure
from benchmarks.runtime.ground import LEASES_IN, RING, Ground
from benchmarks.runtime.program import Program, measured
from benchmarks.runtime.records import Loaded
from benchmarks.runtime.rows import Options
from kubeio.clock import Clock
from kubeio.leases.lease import decode_lease
from kubeio.models import Object
from kubeio.resource import LEASES
from kubeio.rest.client import Client
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.watch import Changed, Listed, ListWatch
from loadtest.machine import family

LATE_S = 1.0
MEMBER = "loaded"
_ENOUGH = 3


class Renewal(NamedTuple):
    """One renewal: when it was sent by the replica's wall clock, when it was seen by ours. Seconds."""

    sent_at: float
    seen_at: float


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late renewals were that are due every so often."""

    renewals: int
    late: int
    worst_s: float


def lateness(renewals: Sequence[Renewal], *, every_s: float, ended_at: float) -> Lateness:
    """Judge *renewals*, in their order; the one that had not come when the watch ended at *ended_at* counts too."""
    gaps_s = [
        max(after.sent_at - before.sent_at, after.seen_at - before.seen_at)
        for before, after in pairwise(renewals)
    ]
    if renewals:
        gaps_s.append(ended_at - renewals[-1].seen_at)
    late_s = [gap_s - every_s for gap_s in gaps_s]
    return Lateness(len(renewals), sum(one > LATE_S for one in late_s), max(0.0, *late_s) if late_s else 0.0)


class RenewalSightings:
    """The renewals of every Lease of one namespace, while `run` runs."""

    def __init__(self, client: Client, namespace: str, *, clock: Clock) -> None:
        self._watch = ListWatch(
            ListerWatcher(client, LEASES, namespace=namespace),
            clock=clock,
            rng=random.Random(0),  # noqa: S311 - jitter
        )
        self._clock = clock
        self._renewed: dict[str, str] = {}
        self.log: list[Renewal] = []

    async def run(self) -> None:
        async for event in self._watch.events():
            match event:
                case Listed(objects=objects):
                    for item in objects:
                        self._see(item)
                case Changed(object=item):
                    self._see(item)
                case _:
                    pass

    def shard_of(self, member: str) -> str:
        """The life that *member* began; empty if it has not."""
        return next((name for name in self._renewed if name.startswith(f"{member}-")), "")

    def _see(self, item: Object) -> None:
        renewed = decode_lease(item.raw).spec.renew_time or ""
        if renewed and self._renewed.get(item.meta.name) != renewed:
            self._renewed[item.meta.name] = renewed
            self.log.append(Renewal(datetime.fromisoformat(renewed).timestamp(), self._clock.now()))


async def measure_renewals(ground: Ground, meter: Meter, options: Options) -> Row:
    """Load one replica, and watch its Lease for as long as asked."""
    ring_file = ground.directory / "ring.yaml"
    ring_file.write_text(yaml.safe_dump(ground.spec.manifest()))
    sightings = RenewalSightings(ground.client, LEASES_IN, clock=ground.clock)
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(sightings.run(), name="renewals")
        async with measured(
            ground, "lease", lambda order: _command(order, options, ring_file), objects=options.objects
        ) as program:
            row = await _watch_lease(ground, meter, options, program, sightings)
        looking.cancel()
    return row


def _command(order: Order, options: Options, ring_file: Path) -> list[str]:
    return ours(
        order,
        *("--act", "load", "--workers", str(options.connections), "--member", MEMBER),
        *("--ring", RING, "--ring-file", str(ring_file), "--lease-s", str(options.lease_s)),
    )


async def _watch_lease(
    ground: Ground, meter: Meter, options: Options, program: Program, sightings: RenewalSightings
) -> Row:
    await wait_for(lambda: sightings.shard_of(MEMBER), "the replica to take its Lease", within_s=60)
    shard = sightings.shard_of(MEMBER)
    with meter.counting("giving the objects to the replica", options.objects) as tick:
        await ground.stock.give(dict.fromkeys(ground.stock.names, shard), tick)
    await program.wait_for(Loaded, within_s=options.start_within_s)
    ground.sightings.start_over()
    del sightings.log[:-1]
    began_at = ground.clock.now()
    cores = {
        "replica": Cores(family(program.running.pid), ground.clock),
        "server": Cores(ground.plane.pids, ground.clock),
    }
    lasts_s, writes = options.minutes * 60, 0
    with meter.counting("seconds of full load", int(lasts_s)) as tick:
        while (gone_s := ground.clock.now() - began_at) < lasts_s:
            program.check()
            await asyncio.sleep(min(1.0, lasts_s - gone_s))
            tick(1)
            writes += len(ground.sightings.changes)
            ground.sightings.start_over()
    found = lateness(sightings.log, every_s=options.lease_s / 3, ended_at=ground.clock.now())
    if found.renewals < _ENOUGH:
        raise NotSeen(f"only {found.renewals} renewals in {options.minutes:g} min: give it more --minutes")
    used = {who: one.used() for who, one in cores.items()}
    writes_per_s = writes / lasts_s
    how = (
        f"of {found.renewals} in {options.minutes:g} min, the latest by {found.worst_s:.2f} s; "
        f"{writes_per_s:,.0f} writes/s, cores: replica {used['replica']:.2f}, server {used['server']:.2f}"
    )
    return Row(
        key="lease",
        figures=[figure("lease", found.late, how)],
        details={
            "renewals": found.renewals,
            "worst_s": round(found.worst_s, 3),
            "every_s": options.lease_s / 3,
            "writes_per_s": round(writes_per_s, 1),
            "cores": used,
        },
    )
