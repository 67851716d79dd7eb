"""`ringleader demo --unmodified`: kube-controller-managers behind proxies share Deployments on a real control plane.

Owns the acts and their order. The judges are those of `ringleader.testing.unmodified`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

from devcluster.real import real_plane
from devcluster.real.etcd_watch import STORES_JSON
from kubeio.errors import InputError
from ringleader.demo.running import background, build_if_missing, run_in_folder, until_interrupted
from ringleader.demo.screen import Screen, choose_screen
from ringleader.demo.unmodified_document import (
    Act,
    ActResult,
    UnmodifiedDocument,
    unmodified_document,
    unmodified_faults,
)
from ringleader.demo.unmodified_view import unmodified_view
from ringleader.output import Form, print_document, print_line
from ringleader.testing.unmodified.fleet import NAMESPACE, ProxyFleet, ProxyFleetSpec, open_proxy_fleet
from ringleader.testing.unmodified.foreign import WriteReport, judge_writes
from ringleader.testing.unmodified.replica_sets import unsettled
from ringleader.testing.unmodified.templates import template

NUMBER: Final = 30
PODS_EACH: Final = 3
_MANAGERS: Final = 3
_LEASE_S: Final = 4
_MOST: Final = 200
_ROLL_EVERY_S: Final = 0.4
_ROLLING: Final = 5
"""Rollouts under way when a controller is killed."""
_SAMPLE_S: Final = 0.5
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmodifiedOptions:
    """The flags of the command."""

    deployments: int = NUMBER
    keep: bool = False
    seed: int = 1
    lease_s: int | None = None


def check_fits(*, fenced: bool, until: str | None, objects: int) -> None:
    """Raises: InputError for a flag that makes no sense with `--unmodified`."""
    for flag, is_given in (("--no-fence", not fenced), ("--until", until is not None)):
        if is_given:
            raise InputError(flag, None, "does not go with --unmodified", "leave one of them out")
    if objects > _MOST:
        raise InputError(
            "--objects", objects, "is too much for --unmodified", f"use {_MOST} Deployments or fewer"
        )


def run_unmodified(options: UnmodifiedOptions, *, is_headless: bool, form: Form | None) -> int:
    """The command: 0 if every claim was proved, 1 if one was not."""
    if problem := build_if_missing():
        sys.stderr.write(f"error: --unmodified: {problem}\n")
        return 1
    is_quiet = is_headless or form is not None
    return run_in_folder(lambda folder: _run(options, folder, is_quiet=is_quiet, form=form or Form.JSON))


async def _run(options: UnmodifiedOptions, folder: Path, *, is_quiet: bool, form: Form) -> int:
    spec = ProxyFleetSpec(lease_s=options.lease_s or _LEASE_S, patience_s=120.0)
    async with (
        real_plane(
            folder / "plane",
            audit=True,
            audited_groups=("", "apps"),
            controller_manager=False,
            apiserver_flags=[STORES_JSON],
        ) as plane,
        open_proxy_fleet(plane, folder / "fleet", spec=spec, seed=options.seed) as fleet,
    ):
        subtitle = f"kube-controller-manager, unmodified; leases of {spec.lease_s} s"
        with choose_screen(is_headless=is_quiet, subtitle=subtitle) as screen:
            sampling = (
                contextlib.nullcontext() if is_quiet else background(_sample(fleet, screen), name="screen")
            )
            acts = UnmodifiedActs(fleet, screen, number=options.deployments)
            async with sampling:
                await acts.run()
                report = judge_writes(await asyncio.to_thread(plane.writes), fleet.workloads, fleet.places)
                shown = unmodified_document(fleet, report, acts.results)
                _say_end(shown, screen)
                if not is_quiet:
                    await asyncio.sleep(2 * _SAMPLE_S)  # so that the last sample shows the end
        code = _conclude(shown, fleet, report, form=form if is_quiet else None)
        if options.keep:
            print_line("The fleet stays up; Ctrl-C ends it. Commands for another terminal:")
            print_line(f"  export KUBECONFIG={plane.kubeconfig}")
            print_line(f"  kubectl get deployments -n {NAMESPACE} -L {fleet.spec.ring.keys.shard}")
            await until_interrupted()
        return code


async def _sample(fleet: ProxyFleet, screen: Screen) -> Never:
    while True:
        screen.show(unmodified_view(fleet))
        await asyncio.sleep(_SAMPLE_S)


def _say_end(shown: UnmodifiedDocument, screen: Screen) -> None:
    wrong = unmodified_faults(shown)
    screen.act("The end", "; ".join(wrong) or "every pod was made once, by the owner of its Deployment")
    screen.say(
        f"{shown.pods_made:,} pods made, {shown.pods_wanted:,} wanted, in {shown.replica_sets} ReplicaSets"
    )
    screen.say(
        f"{shown.writes:,} writes of controllers, {shown.foreign_writes} to another's objects, by the audit log",
        weight="bad" if wrong else "good",
    )


def _conclude(shown: UnmodifiedDocument, fleet: ProxyFleet, report: WriteReport, *, form: Form | None) -> int:
    """Print the document if it was asked for; name what went wrong."""
    if form is not None:
        print_document(shown, form=form)
    wrong = unmodified_faults(shown)
    named = [*fleet.workloads.findings, *report.foreign, *fleet.workloads.unsettled()][:_NAMED]
    for line in [*wrong, *named]:
        sys.stderr.write(f"FAILED: {line}\n")
    return 1 if wrong else 0


class UnmodifiedActs:
    """The acts on *fleet*, with *number* Deployments; `results` holds the measurements."""

    def __init__(self, fleet: ProxyFleet, screen: Screen, *, number: int) -> None:
        self.results: Final[list[ActResult]] = []
        self._fleet: Final = fleet
        self._screen: Final = screen
        self._names: Final = [f"web-{index}" for index in range(number)]
        self._versions: Final[Counter[str]] = Counter()
        self._noted = 0
        """How many Deployments rolled at the event of this act."""

    async def run(self) -> None:
        await self.share()
        await self.kill()
        await self.join()
        await self.scale()

    async def share(self) -> None:
        fleet, number = self._fleet, len(self._names)
        self._screen.act(
            "1. Three kube-controller-managers share", f"a sharder, three proxies, {number} Deployments"
        )
        async with self._act("share"):
            await fleet.start_sharder()
            members = {await fleet.add() for _ in range(_MANAGERS)}
            await fleet.wait_for("the proxies are up", lambda: fleet.workloads.synced >= members)
            await fleet.create_deployments(self._names, replicas=PODS_EACH)
            await fleet.wait_for("all members have Deployments", fleet.is_shared)

    async def kill(self) -> None:
        fleet, victim = self._fleet, self._fleet.wanted()[1]
        self._screen.act("2. kill -9 while all roll", f"{victim} dies; its Deployments wait for a new owner")
        async with self._act("kill", rolls=True):
            await fleet.wait_for("rollouts are under way", lambda: len(self._names_that_roll()) >= _ROLLING)
            fleet.kill(victim)
            self._screen.say(f"{victim} killed", weight="bad")
            self._note_rolling()
            await fleet.wait_for("others own its Deployments", fleet.is_shared)

    async def join(self) -> None:
        fleet = self._fleet
        self._screen.act("3. One joins while all roll", "its share moves between two runs of the controllers")
        async with self._act("join", rolls=True):
            name = await fleet.add()
            await fleet.wait_for(f"{name} has a Deployment", lambda: fleet.owners()[name] > 0)
            self._note_rolling()
            await fleet.wait_for(f"{name} has its share", fleet.is_shared)

    async def scale(self) -> None:
        self._screen.act("4. One pod more each", "every Deployment is worked on, by one owner")
        async with self._act("scale"):
            for name in self._names:
                await self._fleet.patch_deployment(name, {"replicas": PODS_EACH + 1})
            wanted = len(self._names) * (PODS_EACH + 1)
            await self._fleet.wait_for("more pods", lambda: self._live() >= wanted)

    def _live(self) -> int:
        return sum(count.live for count in self._fleet.workloads.deployments.replica_sets.values())

    @asynccontextmanager
    async def _act(self, what: Act, *, rolls: bool = False) -> AsyncIterator[None]:
        """Measure one act until all is at rest; with *rolls* Deployments roll to new templates meanwhile."""
        fleet, workloads = self._fleet, self._fleet.workloads
        began, made = fleet.clock.now(), workloads.pods_made
        before, self._noted = self._owner_of(), 0
        async with background(self._roll(), name="rollouts") if rolls else contextlib.nullcontext():
            yield
        await fleet.wait_settled()
        moved = sum(before.get(name, owner) != owner for name, owner in self._owner_of().items())
        took_s = round(fleet.clock.now() - began, 3)
        result = ActResult(what, took_s, moved, self._noted, workloads.pods_made - made)
        self.results.append(result)
        self._screen.say(
            f"{what}: {took_s:.1f} s, {moved} Deployments moved, {result.pods_made} pods made", weight="good"
        )

    async def _roll(self) -> Never:
        """Roll one Deployment after the other. One that still rolls is left out: each ReplicaSet gets all its pods."""
        for name in itertools.cycle(self._names):
            await asyncio.sleep(_ROLL_EVERY_S)
            if name not in self._names_that_roll():
                self._versions[name] += 1
                made_of = template(name, version=self._versions[name])
                await self._fleet.patch_deployment(name, {"template": made_of})
        raise AssertionError("a cycle ends only without Deployments")

    def _names_that_roll(self) -> set[str]:
        counts = self._fleet.workloads.deployments.deployments.values()
        return {count.now.name for count in counts if unsettled(count)}

    def _note_rolling(self) -> None:
        """Note how many Deployments roll now."""
        self._noted = len(self._names_that_roll())
        self._screen.say(f"{self._noted} Deployments roll")

    def _owner_of(self) -> dict[str, str]:
        """The member of each Deployment."""
        workloads, keys = self._fleet.workloads, self._fleet.spec.ring.keys
        return {
            count.now.name: workloads.members.get(count.now.metadata.labels.get(keys.shard, ""), "")
            for count in workloads.deployments.deployments.values()
        }
