"""A run: a fleet on real servers, waves of faults in the order of one seed, and what three checks find.

Owns the order of the waves and the judgement. `faults` has what strikes, `author_check` the third check.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml

from devcluster.children import start_child
from devcluster.nodes.network import NodeNetwork
from devcluster.plane import ControlPlane, Write
from devcluster.real import RealPlane
from ringleader.assets import website_crd
from ringleader.testing.commands import SHARD_MODULE, WAIT_MS, FleetSpec
from ringleader.testing.evidence import Evidence
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.ownership_checks import ForeignWrite, lives
from tests.fleet.chaos.author_check import AuthorReport
from tests.fleet.chaos.faults import ChaosFault
from tests.fleet.chaos.log_pipes import LogPipe, piped
from tests.fleet.chaos.networks import Pull, inside, open_namespaces
from tests.fleet.chaos.strike import MISSED, Site, Strike

CONTROLLER: Final = Path(__file__).parents[1] / "controllers" / "signing.py"
OBJECTS: Final = 150
REPLICAS: Final = 4
JUDGED_EVERY: Final = 6
"""Waves between two waits until every object is at its place and up to date."""
PAUSE_S: Final = (0.2, 2.0)
WITHIN_S: Final = 180.0
"""Longest wait for progress: the machine may be busy with other things, and a ring's hardest wait is a few Leases."""
PLACES: Final = 9
"""Members that may exist at one time; a bridge has as many cables."""
UNFENCED: Final = "ringleader.demo.unfenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is made of."""

    seed: int
    seconds: float
    faults: Sequence[ChaosFault]
    lease_s: int = 3
    updates_per_s: float = 20.0
    most_at_once: int = 4
    pause_s: tuple[float, float] = PAUSE_S
    former: Path | None = None
    fenced: bool = True
    spared: frozenset[str] = frozenset()


@dataclass(slots=True)
class Outcome:
    """Counts of a run, or of several."""

    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    waves: int = 0
    reconciles: int = 0
    refused: int = 0
    authors: int = 0
    """Versions that the author check judged."""
    unlogged: int = 0
    """Writes that a killed server carried out without a line in its log, and that the author check saw."""
    longest: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.faults += other.faults
        self.missed += other.missed
        self.waves += other.waves
        self.reconciles += other.reconciles
        self.refused += other.refused
        self.authors += other.authors
        self.unlogged += other.unlogged
        self.longest += other.longest


def waves(rng: random.Random, faults: Sequence[ChaosFault], *, most_at_once: int) -> list[ChaosFault]:
    """The faults of the next wave: one that strikes alone, or up to *most_at_once* different others."""
    first = rng.choice(faults)
    if first.is_alone:
        return [first]
    others = [each for each in faults if not each.is_alone and each is not first]
    return [first, *rng.sample(others, min(len(others), rng.randrange(most_at_once)))]


def subset(rng: random.Random, faults: Sequence[ChaosFault]) -> list[ChaosFault]:
    """A random half of *faults*: what is left out lets others show what they would hide."""
    chosen = [each for each in faults if rng.random() < 0.5]
    return chosen or list(faults)


class Storm:
    """Faults against a working fleet."""

    def __init__(self, plan: Plan, site: Site, report: AuthorReport) -> None:
        self.plan = plan
        self.site = site
        self.report = report
        self._begun = site.fleet.clock.now()
        self.outcome = Outcome()

    def choose(self, faults: Sequence[ChaosFault]) -> None:
        """Strike with *faults* alone."""
        self.plan = replace(self.plan, faults=faults)

    @property
    def elapsed_s(self) -> float:
        return self.site.fleet.clock.now() - self._begun

    async def run(self) -> None:
        """Strike until the time is over, and judge. Raises: AssertionError with what was found."""
        order = random.Random(self.plan.seed)
        while self.elapsed_s < self.plan.seconds:
            self.outcome.waves += 1
            wave = waves(order, self.plan.faults, most_at_once=self.plan.most_at_once)
            pause_s = order.uniform(*self.plan.pause_s)
            if wave[0].is_alone:
                await self.settle()
            await self._strike(wave)
            if wave[0].is_alone or self.outcome.waves % JUDGED_EVERY == 0:
                await self.settle()
            await asyncio.sleep(pause_s)
        await self.settle()
        await self.judge()

    async def _strike(self, wave: Sequence[ChaosFault]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in wave:
                    tasks.create_task(self._one(each), name=each.name)
        finally:
            self.site.taken.clear()

    async def _one(self, fault: ChaosFault) -> None:
        strike = Strike(self.site, random.Random(f"{self.plan.seed} {self.outcome.waves} {fault.name}"))
        began_s = self.elapsed_s
        try:
            await fault.strike(strike)
        except MISSED as error:
            self.outcome.missed[fault.name] += 1
            self._print(f"{fault.name} struck nothing ({str(error) or type(error).__name__})")
        else:
            self.outcome.faults[fault.name] += 1
            lasted_s = self.elapsed_s - began_s
            self._print(f"{fault.name} {', '.join(strike.struck)} (over after {lasted_s:.1f} s)")

    async def settle(self) -> None:
        """Wait until every object is at its place and up to date, and ask the author check."""
        fleet = self.site.fleet
        took_s = await fleet.wait_converged(within_s=WITHIN_S)
        self._print(f"settled after {took_s:.1f} s")
        self.report.read()
        found = list(map(str, self.report.findings))
        assert not found, "author check: " + "\n".join(found)

    async def judge(self) -> Evidence:
        """All three checks. Raises: AssertionError with what they found."""
        fleet, report = self.site.fleet, self.report
        last: list[int] = []

        async def is_updated() -> bool:
            marker = await fleet.objects.update(fleet.objects.refs[0])
            last.append(int(marker["metadata"]["resourceVersion"]))
            return True

        def has_caught_up() -> bool:
            report.read()
            return report.version >= last[-1]

        await fleet.wait_for(is_updated, "a last update", within_s=WITHIN_S)
        await fleet.wait_for(has_caught_up, "the author check to have seen all", within_s=WITHIN_S)
        evidence = await asyncio.to_thread(fleet.evidence)
        evidence.require_reconciles(100)
        assert report.judged > 0, "the author check has judged nothing"
        foreign, unlogged = sifted(evidence, report)
        found = [*evidence.overlaps, *foreign, *(f"author check: {each}" for each in report.findings)]
        assert not found, "\n".join(map(str, found))
        outcome = self.outcome
        outcome.reconciles, outcome.refused = evidence.reconciles, len(evidence.refused_writes)
        outcome.authors, outcome.unlogged = report.judged, unlogged
        if (longest := evidence.longest_unattended) is not None:
            at_s = longest.begin - self._begun
            outcome.longest.append(
                f"{longest.length_s:.1f} s, {longest.key} from {at_s:.1f} s on ({longest.reason})"
            )
        return evidence

    def _print(self, line: str) -> None:
        print(f"{self.elapsed_s:7.1f} s  {line}", flush=True)


def sifted(evidence: Evidence, report: AuthorReport) -> tuple[list[ForeignWrite], int]:
    """The foreign writes but those whose label just before is missing in the log of a server that was killed.

    The author check has seen that label then, and it named the writer.
    """
    account_of = lives(evidence.writes, keys=evidence.spec.keys)

    def is_unlogged(write: Write) -> bool:
        version = int(write.resource_version or 0)
        label = report.label_before(write.uid, version) if version else None
        return label is not None and account_of.get(label) == write.user

    foreign = [each for each in evidence.foreign_writes if not is_unlogged(each.write)]
    return foreign, len(evidence.foreign_writes) - len(foreign)


# -- what a run stands on -------------------------------------------------------------------------------------------


def signed_definition(directory: Path) -> Path:
    """The Website's definition with `status.worker`, as a file in *directory*."""
    document = yaml.safe_load(website_crd().read_text())
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"]["properties"]["worker"] = {"type": "string"}
    path = directory / "websites.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def spec_of(plan: Plan, directory: Path, *, with_networks: bool) -> FleetSpec:
    return FleetSpec(
        controller=f"{CONTROLLER}:websites",
        definitions=(signed_definition(directory),),
        lease_s=plan.lease_s,
        settle_s=1,
        patience_s=120,
        environment={WAIT_MS: "0-200" if plan.fenced else "0-1000"},  # the longer, the more writes come late
        shard_flags=("--watch-silence", "6"),
        shard_module=SHARD_MODULE if plan.fenced else UNFENCED,
        shard_wrapper=(*(inside(directory) if with_networks else ()), *piped(directory)),
    )


@contextlib.asynccontextmanager
async def author_report(plane: ControlPlane, spec: FleetSpec, directory: Path) -> AsyncIterator[AuthorReport]:
    """The author check on *plane*, as a process of its own, past the fault proxy where there are real servers."""
    direct = plane.direct_kubeconfigs if isinstance(plane, RealPlane) else []
    out = directory / "authors.jsonl"
    out.touch()
    command = [sys.executable, "-m", "tests.fleet.chaos.author_check", "--out", str(out)]
    command += ["--label", spec.keys.shard, "--namespace", spec.namespace]
    command += ["--resource", spec.resource.group_resource]
    for kubeconfig in direct or [await plane.kubeconfig_for("author-check")]:
        command += ["--kubeconfig", str(kubeconfig)]
    child = await start_child(command, name="the author check", log=directory / "authors.log")
    try:
        yield AuthorReport(out)
    finally:
        await child.end(grace_s=0)


@contextlib.asynccontextmanager
async def open_storm(
    plane: ControlPlane, directory: Path, plan: Plan, *, network: NodeNetwork | None
) -> AsyncIterator[Storm]:
    """A fleet that works, with the author check beside it; its replicas in namespaces on *network* if there is one."""
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - once, before anything runs
    spec, names = spec_of(plan, directory, with_networks=network is not None), _names()
    async with contextlib.AsyncExitStack() as stack:
        pipes = {name: LogPipe(directory, name) for name in names}
        for pipe in pipes.values():
            stack.callback(pipe.close)
        networks: dict[str, Pull] = {}
        if network is not None:
            networks = await stack.enter_async_context(open_namespaces(network, directory, names))
        fleet = await stack.enter_async_context(open_fleet(plane, directory, spec=spec))
        await fleet.start(replicas=REPLICAS)
        await fleet.objects.create_many(OBJECTS)
        report = await stack.enter_async_context(author_report(plane, spec, directory))
        await fleet.wait_converged(within_s=WITHIN_S)
        async with asyncio.TaskGroup() as tasks:
            updates = tasks.create_task(_update(fleet, plan), name="updates")
            site = Site(fleet=fleet, pipes=pipes, former=plan.former, spared=plan.spared, networks=networks)
            yield Storm(plan, site, report)
            updates.cancel()


def _names() -> list[str]:
    return [f"replica-{number}" for number in range(1, PLACES + 1)]


async def _update(fleet: Fleet, plan: Plan) -> None:
    await fleet.objects.run_updates(per_s=plan.updates_per_s, rng=random.Random(plan.seed))
