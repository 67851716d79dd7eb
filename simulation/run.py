"""One run of one seed: a fleet, its users, its faults, and the judgement."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import structlog

from simulation.coverage import note_log, watch_decisions
from simulation.faults import KINDS, MOMENTS, Fault, Faults, draw, draw_moments
from simulation.fleet import Fleet
from simulation.knobs import turn
from simulation.process import present
from simulation.record import describe_log
from simulation.scale import SHORT_AUDIT_S, Scale, draw_large_scale, draw_scale
from simulation.settled import unsettled
from simulation.users import Users
from simulation.world import RECENT, Violation, World

FAULTS_FROM_S: Final = 20.0
SETTLE_S: Final = 600.0
"""So long after the last fault everything is at its place, at the latest."""
SETTLED_S: Final = 10.0
"""So long after the last change a fleet is at rest."""
_SHORT_SELECTORS: Final = "sharder.unowned.selector.LONGEST_BYTES"
"""With this knob turned, only the audit may find a name that never had a Lease (ADR 29)."""
_kept: Final[list[object]] = []
"""What ran, until this process ends: destroying it would run code of the dead."""
_BY_USERS: Final = frozenset(
    {"map function failed: nothing enqueued", "predicate failed: object enqueued anyway"}
)
"""Lines about exceptions of a user's functions: the simulated ones raise on purpose."""


class Plan(msgspec.Struct, frozen=True):
    """What to run. *faults*: as `str` writes them; None: drawn from the seed, of *kinds* only, if any are given."""

    seed: int
    faults: tuple[str, ...] | None = None
    kinds: tuple[str, ...] = ()
    keeps: int = RECENT
    hours: float = 0.0
    """A large world with so many hours of faults; 0: a small one."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run. *rule* is empty if no judge found anything."""

    seed: int
    digest: str
    faults: tuple[str, ...]
    seconds: float
    events: int
    reconciles: int
    requests: int
    rule: str = ""
    what: str = ""
    record: tuple[str, ...] = ()
    reached: dict[str, int] = {}
    """How often each fault, exit, log line and outcome came about."""


def run(plan: Plan) -> Result:
    """Run *plan* to its end. One run per process: it keeps all that it made."""
    if not plan.hours:
        gc.disable()  # a small world ends before that pays
    world = World(plan.seed, keeps=plan.keeps)
    rng = world.rng("scale")
    scale = draw_large_scale(rng, hours=plan.hours) if plan.hours else draw_scale(rng)
    world.expect_objects(scale.objects)
    reached: Counter[str] = Counter()
    _log_into(world, reached)
    watch_decisions(reached)
    knobs = turn(world.rng("knobs"))
    if any(knob.startswith(_SHORT_SELECTORS) for knob in knobs):
        scale = replace(scale, audit_s=SHORT_AUDIT_S)
    faults = _faults(plan, world, scale)
    fleet = Fleet(world, scale)
    _kept.append(fleet)
    rule = what = ""
    try:
        world.note(f"{scale} {' '.join(knobs)}")
        _play(world, fleet, faults)
    except Violation as violation:
        rule, what = violation.rule, violation.what
        world.note(f"VIOLATION {violation}")
    for fault in faults:
        if fault.at <= world.now:
            reached[f"fault {fault.kind}"] += 1
    for name, number in fleet.exits.items():
        reached[f"exit {name}"] += number
    return Result(
        seed=plan.seed,
        digest=world.digest,
        faults=tuple(str(fault) for fault in faults),
        seconds=world.now,
        events=world.events,
        reconciles=fleet.judges.reconciles,
        requests=fleet.network.requests,
        rule=rule,
        what=what,
        record=tuple(world.record) if rule or not plan.keeps else (),
        reached=dict(reached),
    )


def _faults(plan: Plan, world: World, scale: Scale) -> list[Fault]:
    if plan.faults is not None:
        return [Fault.parse(text) for text in plan.faults]
    end = scale.faults_until_s
    if plan.kinds:
        return draw(world.rng("faults"), begin=FAULTS_FROM_S, end=end, kinds=plan.kinds)
    usual = [kind for kind in KINDS if kind not in MOMENTS]
    faults = draw(world.rng("faults"), begin=FAULTS_FROM_S, end=end, kinds=usual)
    faults += draw_moments(world.rng, begin=FAULTS_FROM_S, end=end)
    return sorted(faults, key=lambda fault: fault.at)


def _play(world: World, fleet: Fleet, planned: list[Fault]) -> None:
    """Raises Violation."""
    fleet.start()
    users = Users(fleet)
    users.start()
    faults = Faults(fleet, users, planned)
    world.run(fleet.scale.faults_until_s)
    users.stop()
    fleet.is_settling = True
    faults.heal()
    world.note("every fault is healed")
    last = max((fault.at for fault in planned), default=0.0)
    limit = max(world.now, last) + SETTLE_S
    while (why := unsettled(fleet)) or world.now <= last:
        if world.now >= limit:
            raise Violation("no orphan", f"{why}, {SETTLE_S:g} s after the last fault")
        fleet.repair()
        world.run(world.now + 1)
    _judge_rest(world, fleet)
    fleet.judges.judge_all_writes()
    if world.violation is not None:
        raise world.violation


def _judge_rest(world: World, fleet: Fleet) -> None:
    """Nothing changes any more: requests are few."""
    world.run(world.now + SETTLED_S)
    before, most = fleet.network.requests, fleet.scale.requests_at_rest
    world.run(world.now + 60)
    sent = fleet.network.requests - before
    if sent > most:
        world.violate("rest", f"{sent:,} requests in a minute without changes, more than {most:,.0f}")
    while world.now < fleet.changed_at + SETTLED_S:
        world.run(fleet.changed_at + SETTLED_S)
    if why := unsettled(fleet):
        world.violate("no orphan", f"{why}, at rest")


def _log_into(world: World, reached: Counter[str]) -> None:
    """Have log lines of every process go into the record."""

    def keep(logger: object, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        note_log(reached, event)
        if event.get("exc_info") and event["event"] not in _BY_USERS:
            world.violate(
                "exceptions are foreseen", f"{present.get()} logs {event['event']!r}: {_exception(event)!r}"
            )
        world.note(describe_log(present.get(), {**event, "level": method}))
        raise structlog.DropEvent

    structlog.configure(
        processors=[keep],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=False,
    )


def _exception(event: Mapping[str, Any]) -> object:
    given = event["exc_info"]
    return given if isinstance(given, BaseException) else sys.exception()
