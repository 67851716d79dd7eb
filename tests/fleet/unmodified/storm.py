"""A run: unmodified controllers at work, waves of faults in the order of one seed, and what the judges find.

Owns the order of the waves and the judgement. `faults` has what strikes, `changes` what users do meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from devcluster.real import real_plane
from devcluster.real.etcd_watch import STORES_JSON
from ringleader.testing.observer import NotConvergedError
from ringleader.testing.unmodified.fleet import ProxyFleet, ProxyFleetSpec, open_proxy_fleet
from ringleader.testing.unmodified.foreign import WriteReport, judge_writes
from ringleader.testing.unmodified.rings import WORKLOADS_RING
from tests.fleet.unmodified.changes import Changes
from tests.fleet.unmodified.faults import FAULTS, MISSED, SERVERS, Strike

JUDGED_EVERY: Final = 6
"""Waves between two waits until everything is at rest."""
SETTLED_WITHIN_S: Final = 300.0
"""Jobs whose pods failed wait for up to a minute, and what could not be handed over is tried again after one."""
SCALED_UP: Final = 20
"""Deployments that get one replica more at rest, to be counted exactly."""
AUDITED: Final = ("", "apps", "batch")
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is made of. *at_first*: proxies at the start."""

    seed: int
    seconds: float
    deployments: int = 200
    stateful_sets: int = 12
    changes_per_s: float = 1.5
    faults: Sequence[str] = tuple(FAULTS)
    at_first: int = 4
    pause_s: tuple[float, float] = (1.0, 5.0)
    lease_s: int = 5
    qps: int = 50
    api_servers: int = 2


@dataclass(slots=True)
class Outcome:
    """Counts of a run."""

    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    waves: int = 0
    rests: int = 0
    longest_rest_s: float = 0.0
    scaled_up: int = 0
    """Pods that were asked for at rest and counted exactly."""
    writes: WriteReport = field(default_factory=WriteReport)
    changes: Counter[str] = field(default_factory=Counter)


class Storm:
    """Faults against a working fleet."""

    def __init__(self, plan: Plan, fleet: ProxyFleet, changes: Changes) -> None:
        self.plan: Final = plan
        self.fleet: Final = fleet
        self.outcome: Final = Outcome()
        self._changes: Final = changes
        self._began = fleet.clock.now()
        self._lines: Final[deque[str]] = deque(maxlen=_SHOWN)

    @property
    def elapsed_s(self) -> float:
        return self.fleet.clock.now() - self._began

    async def run(self) -> None:
        """Strike until the time is over, and judge. Raises: AssertionError with what was found."""
        order = random.Random(self.plan.seed)
        await self.settle()
        self._began = self.fleet.clock.now()
        while self.elapsed_s < self.plan.seconds:
            self.outcome.waves += 1
            wave = order.sample(self.plan.faults, min(order.choice((1, 1, 2, 3)), len(self.plan.faults)))
            pause_s = order.uniform(*self.plan.pause_s)
            self._changes.allowed.set()
            await self._strike(wave)
            await asyncio.sleep(pause_s)
            self._require(self.fleet.workloads.findings)
            if self.outcome.waves % JUDGED_EVERY == 0:
                await self.settle()
                await self.scale_up(SCALED_UP)
        await self.settle()
        await self.scale_up(self.plan.deployments)
        await self.judge()

    async def _strike(self, wave: Sequence[str]) -> None:
        servers = [name for name in wave if name in SERVERS]
        taken: set[str] = set()
        async with asyncio.TaskGroup() as tasks:
            for name in [name for name in wave if name not in servers[1:]]:
                tasks.create_task(self._one(name, taken), name=name)

    async def _one(self, name: str, taken: set[str]) -> None:
        rng = random.Random(f"{self.plan.seed} {self.outcome.waves} {name}")
        strike = Strike(self.fleet, rng, taken=taken)
        try:
            await FAULTS[name](strike)
        except MISSED:
            self.outcome.missed[name] += 1
        else:
            self.outcome.faults[name] += 1
            self._print(f"{name} {', '.join(strike.struck)}")

    async def settle(self) -> None:
        """Let users rest, and wait until everything is as it must be. Raises: AssertionError."""
        self._changes.allowed.clear()
        began_s = self.elapsed_s
        try:
            await self.fleet.wait_settled(within_s=SETTLED_WITHIN_S)
        except NotConvergedError as error:
            self._require([*self.fleet.workloads.findings, str(error)])
        took_s = self.elapsed_s - began_s
        self.outcome.rests += 1
        self.outcome.longest_rest_s = max(self.outcome.longest_rest_s, took_s)
        owners = dict(sorted(self.fleet.owners().items()))
        self._print(f"at rest after {took_s:.1f} s: {owners}")
        self._require(self.fleet.workloads.findings)

    async def scale_up(self, number: int) -> None:
        """At rest, one replica more for *number* Deployments makes exactly so many pods. Raises: AssertionError."""
        workloads, names = self.fleet.workloads, self._changes.deployments(number)
        made, missed = workloads.pods_made, workloads.deployments.missed()
        await self._changes.scale_up(names)
        await self.fleet.wait_for("more pods", lambda: workloads.pods_made >= made + len(names))
        await self.settle()
        more = workloads.pods_made - made
        wrong = [] if more == len(names) else [f"{len(names)} replicas more made {more} pods"]
        if workloads.deployments.missed() != missed:
            wrong.append("a ReplicaSet that was raised at rest made no pod")
        self._require(wrong)
        self.outcome.scaled_up += more

    async def judge(self) -> None:
        """Stop all, and judge the audit log and what the programs printed. Raises: AssertionError."""
        await self.fleet.catch_up()
        await self.fleet.stop()
        writes = await asyncio.to_thread(self.fleet.plane.writes)
        report = judge_writes(writes, self.fleet.workloads, self.fleet.places)
        self.outcome.writes, self.outcome.changes = report, self._changes.done
        self._require([*report.foreign, *self.fleet.failures(), *self.fleet.workloads.findings])
        assert report.accepted > self.plan.deployments, "the controllers have written nothing"

    def _require(self, wrong: Sequence[str]) -> None:
        assert not wrong, "\n".join([*wrong[:10], "the last events:", *self._lines])

    def _print(self, line: str) -> None:
        self._lines.append(f"{self.elapsed_s:7.1f} s, revision {self.fleet.workloads.revision}  {line}")
        print(self._lines[-1], flush=True)


@contextlib.asynccontextmanager
async def open_storm(directory: Path, plan: Plan) -> AsyncIterator[Storm]:
    """A plane and a fleet at work in *directory*."""
    spec = ProxyFleetSpec(ring=WORKLOADS_RING, lease_s=plan.lease_s, qps=plan.qps)
    async with (
        real_plane(
            directory / "plane",
            audit=True,
            audited_groups=AUDITED,
            controller_manager=False,
            apiserver_flags=[STORES_JSON],
            api_servers=plan.api_servers,
        ) as plane,
        open_proxy_fleet(plane, directory / "fleet", spec=spec, seed=plan.seed) as fleet,
    ):
        await fleet.start_sharder()
        for _ in range(plan.at_first):
            await fleet.add()
        changes = Changes(fleet, seed=plan.seed, per_s=plan.changes_per_s)
        await changes.create(deployments=plan.deployments, stateful_sets=plan.stateful_sets)
        async with asyncio.TaskGroup() as tasks:
            changing = tasks.create_task(changes.run(), name="changes")
            yield Storm(plan, fleet, changes)
            changing.cancel()
