"""The highest rate that keeps the service level, for each number of replicas.

One control plane, one stock of objects: the fleet is scaled from one number to the next. Each number gets one load
after the other until the limit is known. The verdict of `ringleader loadtest run` judges each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from kubeio.program.failures import FAILED
from loadtest.capacity.document import Capacity, CapacityDocument, Trial, draw
from loadtest.capacity.search import RateSearch
from loadtest.inputs.scenario import read_scenario
from loadtest.inputs.slo import has_passed, judge
from loadtest.measuring.machine import read_machine
from loadtest.progress import Console
from loadtest.reporting.figures import measured
from loadtest.run import Found, Prepared, Run
from loadtest.session import Session, named_server, opened, removal, reported
from loadtest.targets.own import OwnOptions
from ringleader.output import print_document, print_line, print_table
from ringleader.testing.commands import Mode

_WITNESSED: Final = ("overlaps", "foreignWrites", "unowned", "unready")
"""Lines of the end of a run; a trial is in its middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions:
    """What is asked for beside the session of a single run."""

    replicas: Sequence[int]
    scenario: str
    trial_s: float
    first_per_s: float
    """Rate that is tried first, for one replica."""
    precision: float
    """Part of the rate by which the limit may be missed."""
    reconcile_wait_ms: int | None
    """Of the example's controller; None: another one runs."""
    baseline: bool
    """Measure the controller with leader election too."""


async def run_capacity(session: Session, options: CapacityOptions) -> int:
    """The whole command: 0 if each number of replicas carries something, 1 if not."""
    return await reported(_search(session, options, Console()))


async def _search(session: Session, options: CapacityOptions, console: Console) -> int:
    machine = read_machine()
    found: list[Capacity] = []
    notices: list[str] = []
    surroundings: dict[str, Any] = {}
    for mode in _modes(session, options):
        async with opened(_of_mode(session, mode), console) as opening:
            search = _Search(opening.run, session, options, mode)
            work = search.run(removal(session, opening.run.target, console), console)
            found += await named_server(work, opening.server)
            notices += search.notices
            surroundings = surroundings or await opening.surroundings()
    document = CapacityDocument(
        run=session.run,
        objects=session.objects,
        reconcile_wait_ms=options.reconcile_wait_ms,
        trial_s=options.trial_s,
        slo=dict(_limits(session.limits)),
        capacities=found,
        machine=msgspec.to_builtins(machine),
        notices=notices,
        **surroundings,
    )
    out = session.locust.out
    (out / "capacity.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    draw(document, out / "capacity.png")
    _print(document, session)
    console.say(f"written: {out / 'capacity.json'}, {out / 'capacity.png'}")
    return 0 if document.passed else FAILED


def _modes(session: Session, options: CapacityOptions) -> list[Mode]:
    """The sharded fleet, and the leader-elected one if it is ours to start."""
    has_baseline = options.baseline and isinstance(session.target, OwnOptions)
    return [Mode.SHARDED, *[Mode.LEADER_ELECTED] * has_baseline]


def _of_mode(session: Session, mode: Mode) -> Session:
    if not isinstance(session.target, OwnOptions):
        return session
    return replace(session, target=replace(session.target, mode=mode))


def _limits(limits: Mapping[str, float]) -> dict[str, float]:
    return {name: limit for name, limit in limits.items() if name not in _WITNESSED}


class _Search:
    """All numbers of replicas of one mode, one after the other."""

    def __init__(self, run: Run, session: Session, options: CapacityOptions, mode: Mode) -> None:
        self._run = run
        self._session = session
        self._options = options
        self._mode = mode
        self._per_replica = options.first_per_s
        self._scenario = read_scenario(options.scenario)
        self.notices: list[str] = []

    async def run(self, removal: AbstractAsyncContextManager[None], console: Console) -> list[Capacity]:
        """Raises: LoadFailed, ActionFailed, KubeError."""
        found: list[Capacity] = []
        numbers = self._options.replicas if self._mode is Mode.SHARDED else self._options.replicas[-1:]
        async with self._run.prepared(removal) as prepared:
            for replicas in numbers:
                await self._run.target.scale(replicas)
                await self._run.wait_calm(prepared)
                found.append(await self._capacity(replicas, prepared, console))
                console.say(
                    f"{self._mode.value}, replicas: {replicas}: {found[-1].rate_per_s:.1f} operations/s"
                )
            whole = Found(prepared, self._session.schedules[0])
            await self._run.audit(whole)
        self.notices += whole.notices
        if whole.unowned:
            self.notices.append(f"{whole.unowned:,} objects had no live owner at the end")
        if self._mode is Mode.SHARDED:  # without a ring no write bears a shard's name
            self.notices += whole.testimony.named
        return found

    async def _capacity(self, replicas: int, prepared: Prepared, console: Console) -> Capacity:
        working = replicas if self._run.target.shares else 1
        search = RateSearch(self._per_replica * working, precision=self._options.precision)
        trials: list[Trial] = []
        while (rate := search.rate) is not None:
            trials.append(await self._trial(rate, prepared))
            search.note(passed=trials[-1].passed)
            said = "held" if trials[-1].passed else "; ".join(trials[-1].failed_lines)
            console.say(f"{self._mode.value}, replicas: {replicas}, {rate:.1f} operations/s: {said}")
        if search.best:
            self._per_replica = search.best / working
        best = round(search.best, 2)
        at_best = [trial.cores for trial in trials if trial.passed and trial.rate_per_s == best]
        return Capacity(self._mode.value, replicas, best, (at_best or [{}])[-1], trials)

    async def _trial(self, rate: float, prepared: Prepared) -> Trial:
        schedule = self._scenario.schedule(duration_s=self._options.trial_s, rate=rate)
        found = Found(prepared, schedule)
        await self._run.load(found)
        figures = measured(
            found,
            self._run.observer.waits,
            self._run.sampler.window,
            changes_spec=self._session.template.changes_spec,
        )
        limits = _limits(self._session.limits)
        if not self._run.target.shares:
            limits.pop("assigned", None)
        lines = judge(limits, figures)
        return Trial(
            rate_per_s=round(rate, 2),
            passed=has_passed(lines),
            failed_lines=[str(line) for line in lines if line.passed is False],
            cores=_grouped({peak.name: peak.cores for peak in self._run.sampler.peaks()}),
            ready_p99_s=figures["changed"].value,
            queue_p99_s=figures["queueWait"].value,
        )


def _grouped(cores: Mapping[str, float]) -> dict[str, float]:
    """Cores of replicas and sharders in sum, of the rest by name."""
    found: dict[str, float] = {}
    for name, used in cores.items():
        group = next((group for group in ("replica", "sharder") if name.startswith(group)), name)
        found[group] = round(found.get(group, 0.0) + used, 3)
    return found


def _print(document: CapacityDocument, session: Session) -> None:
    if session.form is not None and session.form.value in ("json", "yaml"):
        print_document(msgspec.to_builtins(document), form=session.form)
        return
    print_table(document.table(), form=session.form)
    for notice in document.notices:
        print_line(f"note: {notice}")
