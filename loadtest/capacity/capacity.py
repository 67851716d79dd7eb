"""The highest rate that keeps the service level, for each number of replicas.

One control plane, one stock of objects: the fleet is scaled from one number to the next. Each number gets one load
after the other until the limit is known. The verdict of `ringleader loadtest run` judges each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeio.program.failures import FAILED
from loadtest.capacity.document import Capacity, CapacityDocument, Trial, draw
from loadtest.capacity.search import SMALL_STEP, STEP, RateSearch
from loadtest.inputs.scenario import read_scenario
from loadtest.inputs.slo import has_failed_clearly, has_passed, judge
from loadtest.machine import Machine, read_machine
from loadtest.progress import Console
from loadtest.reporting.figures import measured
from loadtest.run import Found, Prepared, Run
from loadtest.session import Session, named_server, opened, removal, reported
from loadtest.targets.target import Way
from ringleader.output import print_document, print_line, print_table

_CALM_S: Final = 3.0
"""Between two trials; no replica came or went."""
_UNMEASURED: Final = {
    Way.SHARDED: (),
    Way.LEADER_ELECTED: ("assigned",),
    Way.KOPF: ("assigned", "queueWait", "reconcile"),  # kopf has no metrics
}
_AT_END: Final = ("overlaps", "foreignWrites", "unowned", "unready")
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
    baselines: Sequence[Way]
    """Other ways to work the same objects, measured after the sharded fleet."""


async def run_capacity(session: Session, options: CapacityOptions) -> int:
    """The whole command: 0 if each number of replicas carries something, 1 if not."""
    return await reported(_search(session, options, Console()))


async def _search(session: Session, options: CapacityOptions, console: Console) -> int:
    machine = read_machine()
    async with opened(session, console) as opening:
        surroundings = await opening.surroundings()
        search = _Search(opening.run, session, options, console)
        try:
            await named_server(search.run(removal(session, opening.run.target, console)), opening.server)
        except Exception as error:
            if not search.found:
                raise
            search.notices.append(f"the search ended early: {error}")
            _write(_document(session, options, search, machine, surroundings), session, console)
            raise
    document = _document(session, options, search, machine, surroundings)
    _write(document, session, console)
    _print(document, session)
    return 0 if document.passed else FAILED


def _document(
    session: Session,
    options: CapacityOptions,
    search: _Search,
    machine: Machine,
    surroundings: Mapping[str, Any],
) -> CapacityDocument:
    return CapacityDocument(
        run=session.run,
        objects=session.objects,
        reconcile_wait_ms=options.reconcile_wait_ms,
        trial_s=options.trial_s,
        slo=dict(_limits(session.limits)),
        capacities=search.found,
        machine=msgspec.to_builtins(machine),
        notices=search.notices,
        **surroundings,
    )


def _write(document: CapacityDocument, session: Session, console: Console) -> None:
    out = session.locust.out
    (out / "capacity.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    draw(document, out / "capacity.png")
    console.say(f"written: {out / 'capacity.json'}, {out / 'capacity.png'}")


def _limits(limits: Mapping[str, float]) -> dict[str, float]:
    return {name: limit for name, limit in limits.items() if name not in _AT_END}


class _Search:
    """All numbers of replicas, one after the other, and then the baselines with the last of them."""

    def __init__(self, run: Run, session: Session, options: CapacityOptions, console: Console) -> None:
        self._run = run
        self._session = session
        self._options = options
        self._console = console
        self._per_replica = 0.0
        self._scenario = read_scenario(options.scenario)
        self.found: list[Capacity] = []
        self.notices: list[str] = []

    async def run(self, removal: AbstractAsyncContextManager[None]) -> None:
        """Raises: LoadFailed, ActionFailed, KubeError."""
        target, numbers = self._run.target, self._options.replicas
        async with self._run.prepared(removal) as prepared:
            for replicas in numbers:
                await self._measure(Way.SHARDED, replicas, prepared)
            await self._audit(prepared)
            for way in self._options.baselines:
                await target.change_to(way)
                await self._measure(way, 1 if way is Way.KOPF else numbers[-1], prepared)

    async def _audit(self, prepared: Prepared) -> None:
        whole = Found(prepared, self._session.schedules[0])
        await self._run.audit(whole)
        self.notices += whole.testimony.named
        if whole.unowned:
            self.notices.append(f"{whole.unowned:,} objects had no live owner at the end")

    async def _measure(self, way: Way, replicas: int, prepared: Prepared) -> None:
        working = replicas if way is Way.SHARDED else 1
        known = self._per_replica
        search = RateSearch(
            (known or self._options.first_per_s) * working,
            step=SMALL_STEP if known and way is Way.SHARDED else STEP,
            precision=self._options.precision,
        )
        trials: list[Trial] = []
        while (rate := search.rate) is not None:
            if not trials or self._session.schedules[0].fleet_actions:
                await self._run.restore(prepared, replicas)
            elif not trials[-1].passed:  # what it left behind must not wait in the next trial
                await self._run.restore(prepared, replicas, calm_s=_CALM_S)
            trials.append(await self._trial(rate, way, prepared))
            search.note(passed=trials[-1].passed, is_clear=trials[-1].is_clear)
            said = "held" if trials[-1].passed else "; ".join(trials[-1].failed_lines)
            self._console.say(f"{way.value}, replicas: {replicas}, {rate:.1f} operations/s: {said}")
        if search.best and way is Way.SHARDED:
            self._per_replica = search.best / working
        best = round(search.best, 2)
        at_best = [trial.cores for trial in trials if trial.passed and trial.rate_per_s == best]
        share = self._largest_share() if way is Way.SHARDED else None
        self.found.append(Capacity(way.value, replicas, best, (at_best or [{}])[-1], trials, share))
        self._console.say(f"{way.value}, replicas: {replicas}: {best:.1f} operations/s")
        if not search.is_met:
            self.notices.append(
                f"{way.value}, replicas: {replicas}: {len(trials)} trials did not find the limit;"
                " give a --rate that is nearer to it"
            )

    def _largest_share(self) -> float | None:
        """Part of the objects that the replica with the most has."""
        owners = self._run.observer.owners()
        return round(max(owners.values()) / owners.total(), 4) if owners else None

    async def _trial(self, rate: float, way: Way, prepared: Prepared) -> Trial:
        schedule = self._scenario.schedule(duration_s=self._options.trial_s, rate=rate)
        found = Found(prepared, schedule)
        await self._run.load(found)
        figures = measured(
            found,
            found.waits,
            self._run.sampler.window,
            changes_spec=self._session.template.changes_spec,
        )
        limits = _limits(self._session.limits)
        for unmeasured in _UNMEASURED[way]:
            limits.pop(unmeasured, None)
        lines = judge(limits, figures)
        failed = [f"{action.action}: {action.text}" for action in found.happened if action.has_failed]
        self.notices += [notice for notice in found.notices if notice not in self.notices]
        return Trial(
            rate_per_s=round(rate, 2),
            passed=has_passed(lines) and not failed,
            failed_lines=[*(str(line) for line in lines if line.passed is False), *failed],
            is_clear=has_failed_clearly(lines),
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
