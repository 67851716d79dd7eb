"""`python -m benchmarks.forged`: a tenant forges shard labels while honest objects are made and handed over.

On a real kube-apiserver without admission policies: thousands of objects bear names that no shard ever had, and one
object gets a new one hundreds of times a second. Measured: how long honest objects wait for their owner and for a
newcomer, and what the sharder needs for all that.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.measuring.command import Benchmark, Format, PlaneName, run_benchmark
from benchmarks.measuring.document import Beginning, Document
from benchmarks.measuring.goals import Figure, Goal, Wanted
from benchmarks.measuring.machine import read_versions
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.processes import Cores
from benchmarks.measuring.rows import Row
from benchmarks.measuring.sightings import NotSeen, wait_for
from benchmarks.measuring.stock import document as object_document
from benchmarks.sharder.fleet import Sharder, sharding
from benchmarks.sharder.ground import LEASES_IN, MEMBERS, Ground, open_ground
from benchmarks.sharder.rows import Peaks
from kubeio.errors import KubeError
from kubeio.leases.lease import Leases
from kubeio.patch import MergePatch
from kubeio.rest.client import Client
from loadtest.machine import family
from loadtest.quantiles import percentile
from ring import HashRing, object_key

GOALS: Final = {
    "assign-p50": Wanted("honest object: from its creation to its owner, p50", Goal(unit="ms")),
    "assign-p99": Wanted("the same, p99", Goal(most=2_000, unit="ms")),
    "handed-over": Wanted("one more member: honest objects handed over to it", Goal(most=30, unit="s")),
    "peak": Wanted("peak RSS of the sharder", Goal(most=80, unit="MB")),
    "cpu": Wanted("CPU of the sharder meanwhile", Goal(unit="% of a core")),
    "relabels": Wanted("labels forged on one object", Goal(unit="1/s")),
    "leases": Wanted("Leases in the ring's namespace at the end", Goal(most=300, unit="Leases")),
}
CREATED_WITHIN_S: Final = 120.0
ASSIGNED_WITHIN_S: Final = 60.0
HANDED_OVER_WITHIN_S: Final = 120.0
ONE_MORE: Final = "one-more"
AT_ONCE: Final = 2
"""Patches of the tenant under way: more of one object only conflict with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked of a run."""

    forged: int
    per_s: float
    honest: int
    honest_per_s: float
    is_real: bool


def bench_forged(
    *,
    forged: Annotated[int, typer.Option(min=1, help="Objects with a forged name each.")] = 16_000,
    per_s: Annotated[float, typer.Option(min=1, help="New names per second on one object.")] = 270.0,
    honest: Annotated[int, typer.Option(min=10, help="Honest objects.")] = 2_000,
    honest_per_s: Annotated[float, typer.Option(min=1, help="Honest objects made per second.")] = 40.0,
    plane: Annotated[PlaneName, typer.Option(help="Control plane to measure on.")] = PlaneName.REAL,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("build/bench-forged"),
    output: Annotated[Format, typer.Option("--output", "-o", help="What to print.")] = Format.TABLE,
    strict: Annotated[bool, typer.Option(help="Exit 1 if a goal is missed.")] = True,
) -> None:
    """What forged labels cost honest objects, without the guard's admission policies.

    Exit codes: 0 every goal met, 1 a goal missed (unless --no-strict) or not measured, 2 bad input.
    """
    options = Options(
        forged=forged, per_s=per_s, honest=honest, honest_per_s=honest_per_s, is_real=plane is PlaneName.REAL
    )
    Benchmark[Document](
        run=lambda folder, meter, save: measure(options, folder, meter, save),
        out=out,
        output=output,
        strict=strict,
    ).exit()


async def measure(
    options: Options, directory: Path, meter: Meter, save: Callable[[Document], object]
) -> Document:
    """Raises: BinariesMissing, and what makes the run impossible."""
    began = Beginning(module="benchmarks.forged", is_real=options.is_real, objects=options.forged)
    peaks = Peaks()
    async with open_ground(directory, is_real=options.is_real, objects=options.forged, lease_s=15) as ground:
        versions = await read_versions(ground.plane, ground.client)
        await ground.stock.give({}, lambda _: None)  # its template, while no sharder writes to it
        await ground.stand_ins.join(MEMBERS)
        async with sharding(ground, peaks, row="forged") as sharder:
            await sharder.wait_idle()
            with meter.counting("forging names", options.forged) as tick:
                await ground.stock.give(_forged_names(ground), tick)
            row = await _measure_honest(ground, meter, options, sharder)
        figures = [*row.figures, _figure("peak", max(peaks.by_row.values()))]
        document = began.document(Document, [row], figures, versions=versions)
        save(document)
        return document


def _forged_names(ground: Ground) -> dict[str, str]:
    return {name: f"forged-{number:05}-0badcafe" for number, name in enumerate(ground.stock.names)}


async def _measure_honest(ground: Ground, meter: Meter, options: Options, sharder: Sharder) -> Row:
    """Honest objects are made, and handed over to a newcomer, while one object is relabelled all the time."""
    ground.sightings.start_over()
    cores = Cores(family(sharder.running.pid), ground.clock)
    async with relabelling(ground, options.per_s) as forger:
        waits_ms = await _made(ground, meter, options)
        handed_over_s, moved = await _handed_over(ground, list(waits_ms))
        used, relabels = cores.used(), forger.rate()
    leases, _ = await Leases(ground.client, LEASES_IN).list()
    known = [wait for wait in waits_ms.values() if wait is not None]
    left = len(waits_ms) - len(known)
    p99 = percentile(known, 0.99) if known and not left else None
    return Row(
        key="forged",
        figures=[
            _figure("assign-p50", percentile(known, 0.5) if known else None, f"{len(known):,} objects"),
            _figure(
                "assign-p99", p99, f"{left} without an owner" if left else f"at most {max(known):.0f} ms"
            ),
            _figure("handed-over", handed_over_s, f"{moved} objects"),
            _figure("cpu", 100 * used, f"{options.forged:,} forged names"),
            _figure("relabels", relabels, f"{options.per_s:g} wanted"),
            _figure("leases", len(leases)),
        ],
    )


async def _made(ground: Ground, meter: Meter, options: Options) -> dict[str, float | None]:
    """How long each honest object waited for an owner, in milliseconds; None: for longer than was waited."""
    shards = frozenset(ground.stand_ins.shards.values())
    created_at: dict[str, float] = {}

    async def create(number: int) -> None:
        name = f"honest-{number:05}"
        body = object_document(ground.resource, ground.spec.namespace, name)
        await ground.client.create(ground.resource, body, namespace=ground.spec.namespace, type=bytes)
        created_at[name] = ground.clock.now()

    began_at = ground.clock.now()
    with meter.counting("honest objects", options.honest) as tick:
        async with asyncio.timeout(CREATED_WITHIN_S), asyncio.TaskGroup() as tasks:
            for number in range(options.honest):
                await asyncio.sleep(began_at + number / options.honest_per_s - ground.clock.now())
                tasks.create_task(create(number), name="honest object")
                tick(1)
    try:
        await wait_for(
            lambda: all(ground.sightings.owner_of(name) in shards for name in created_at),
            "every honest object to be assigned",
            within_s=ASSIGNED_WITHIN_S,
        )
    except NotSeen as error:
        meter.say(str(error))
    assigned_at: dict[str, float] = {}
    for change in ground.sightings.gained(shards):
        assigned_at.setdefault(change.name, change.at)
    return {
        name: max(0.0, assigned_at[name] - at) * 1000 if name in assigned_at else None
        for name, at in created_at.items()
    }


async def _handed_over(ground: Ground, honest: list[str]) -> tuple[float | None, int]:
    """How long a newcomer waits for its share of the honest objects, and how many these are."""
    began_at = ground.clock.now()
    await ground.stand_ins.join([ONE_MORE])
    newcomer = ground.stand_ins.shards[ONE_MORE]
    share = _share(ground, honest)
    try:
        await wait_for(
            lambda: all(ground.sightings.owner_of(name) == newcomer for name in share),
            f"{ONE_MORE} to own its {len(share)} objects",
            within_s=HANDED_OVER_WITHIN_S,
        )
    except NotSeen:
        return None, len(share)
    of_share = frozenset(share)
    last_at = max(change.at for change in ground.sightings.gained([newcomer]) if change.name in of_share)
    return last_at - began_at, len(share)


def _share(ground: Ground, names: list[str]) -> list[str]:
    """Those of *names* whose place is the newcomer's."""
    ring = HashRing(sorted(ground.stand_ins.shards))
    keys = [object_key(ground.resource.group, ground.spec.namespace, name) for name in names]
    return [name for name, member in zip(names, ring.owners(keys), strict=True) if member == ONE_MORE]


class Forger:
    """Gives one object another name, *per_s* times a second, while `run` runs."""

    def __init__(self, client: Client, ground: Ground, name: str, per_s: float) -> None:
        self._client = client
        self._ground = ground
        self._name = name
        self._per_s = per_s
        self._began_at = ground.clock.now()
        self._sent = self._done = 0

    def rate(self) -> float:
        """Names per second so far."""
        return round(self._done / max(0.001, self._ground.clock.now() - self._began_at), 1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._forge(), name="forger")

    async def _forge(self) -> None:
        while True:
            self._sent += 1
            labels = {self._ground.keys.shard: f"again-{self._sent:07}-0badcafe"}
            due_at = self._began_at + self._sent / self._per_s
            await asyncio.sleep(max(0.0, due_at - self._ground.clock.now()))
            try:
                await self._client.patch(
                    self._ground.resource,
                    self._name,
                    MergePatch({"metadata": {"labels": labels}}),
                    namespace=self._ground.spec.namespace,
                    type=bytes,
                    metadata_only=True,
                )
            except KubeError:
                continue
            self._done += 1


@asynccontextmanager
async def relabelling(ground: Ground, per_s: float) -> AsyncIterator[Forger]:
    """One object more that is relabelled until the block ends."""
    name = "relabelled"
    body = object_document(ground.resource, ground.spec.namespace, name)
    await ground.client.create(ground.resource, body, namespace=ground.spec.namespace, type=bytes)
    async with Client(ground.cluster, user_agent="ringleader-bench-forger") as client:
        forger = Forger(client, ground, name, per_s)
        running = asyncio.create_task(forger.run(), name="forger")
        try:
            yield forger
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _figure(key: str, value: float | None, how: str = "") -> Figure:
    return GOALS[key].figure(key, value, how)


if __name__ == "__main__":
    sys.exit(run_benchmark(bench_forged, module="benchmarks.forged"))
