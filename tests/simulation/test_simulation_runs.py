"""Runs of the simulation: a seed gives one run, a broken rule is found and its faults are made few."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from kubeio.models import Object
from kubeio.shard.lease_validity import LeaseValidity
from scripts.mutants import ROOT, mutated
from scripts.simulation_mutants import PAGE, REASONS, RESULTS, known_mutants, table
from shard_controller.api.session import ReconcileSession
from shard_controller.reconcile.event_handlers import EventHandlers
from sharder.membership.activation import Activation
from sharder.planning import planner
from sharder.planning.decisions import NOTHING
from sharder.rings import acting
from sharder.rings.store import RingStore
from simulation.coverage import expected
from simulation.faults import KINDS, MOMENTS, Fault
from simulation.knobs import KNOBS, turn
from simulation.run import Plan, Result
from simulation.runs import run_all, run_one, shrink
from simulation.world import World
from tests.simulation.command import simulate

DIGEST = re.compile(r"digest ([0-9a-f]{24})")


@pytest.mark.parametrize("arguments", [("3",), ("7",), ("11", "--kinds", "labels_forged,member_joined")])
def test_a_seed_gives_one_run(arguments: tuple[str, ...]) -> None:
    """Each in an interpreter of its own: hashes of structs follow addresses, and these are others each time."""
    with ThreadPoolExecutor(2) as side_by_side:
        runs = [side_by_side.submit(simulate, "--seed", *arguments, "--no-shrink") for _ in range(2)]
    first, second = (each.result().stdout for each in runs)
    found = DIGEST.search(first)
    assert found is not None, first
    assert first == second


def test_another_seed_gives_another_run() -> None:
    first, second = run_all([Plan(3), Plan(4)], workers=2)
    assert first.digest != second.digest


def first_failure(plans: range) -> Result:
    return next(result for result in run_all(map(Plan, plans), workers=os.cpu_count() or 1) if result.rule)


@pytest.mark.timeout(300)
def test_a_broken_rule_is_found_and_its_faults_are_made_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 5.1: from two thirds of the duration on nothing starts. Runs are forks, so they have the broken rule."""
    monkeypatch.setattr(LeaseValidity, "holds", lambda self, now: True)
    failed = first_failure(range(1, 100))
    shrunk = shrink(failed, workers=2, most=60)
    assert shrunk.rule == failed.rule
    assert len(shrunk.faults) <= min(len(failed.faults), 4)
    again = run_one(Plan(shrunk.seed, shrunk.faults))
    assert (again.rule, again.what, again.digest) == (shrunk.rule, shrunk.what, shrunk.digest)


async def _unchanged(session: ReconcileSession, kind: object, known: Object, body: object) -> Object:
    return known


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("broken", "name", "replacement", "found"),
    [
        (planner, "_plan_move", lambda *_, **__: NOTHING, "not to a shard of"),
        (ReconcileSession, "apply", _unchanged, "made"),
    ],
    ids=["nothing moves", "children stay as they are"],
)
def test_what_does_not_come_to_its_end_is_found(
    monkeypatch: pytest.MonkeyPatch, broken: object, name: str, replacement: object, found: str
) -> None:
    monkeypatch.setattr(broken, name, replacement)
    failed = first_failure(range(1, 4))
    assert (failed.rule, found in failed.what) == ("no orphan", True)


async def _nothing(*_: object) -> None:
    pass


async def _let_go(store: RingStore, *_: object, **__: object) -> None:
    await store.leave()


@pytest.mark.parametrize(
    ("broken", "name", "replacement", "plan", "found"),
    [
        (
            acting,
            "finalize",
            _let_go,
            Plan(1, kinds=("ring_deleted",)),
            ("a gone ring leaves nothing", "belongs to"),
        ),
        (
            Activation,
            "give_back",
            _nothing,
            Plan(53, kinds=("ring_deleted",)),
            ("a gone ring leaves nothing", "keeps the Lease"),
        ),
        (
            Activation,
            "_is_free",
            lambda *_: True,
            Plan(29, kinds=("former_returns",)),
            ("the former controller has ended", "of its-pod after"),
        ),
    ],
    ids=["labels stay", "its Lease is kept", "its Lease is taken"],
)
def test_what_is_taken_or_kept_from_the_former_controller_is_found(
    monkeypatch: pytest.MonkeyPatch,
    broken: object,
    name: str,
    replacement: object,
    plan: Plan,
    found: tuple[str, str],
) -> None:
    monkeypatch.setattr(broken, name, replacement)
    failed = run_one(plan)
    assert (failed.rule, found[1] in failed.what) == (found[0], True)


@pytest.mark.timeout(300)
def test_a_line_about_an_exception_that_is_not_foreseen_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventHandlers, "_passes", lambda *_: 1 // 0)
    failed = first_failure(range(1, 4))
    assert failed.rule == "exceptions are foreseen"
    assert "could not be stored in the cache': ZeroDivisionError" in failed.what


def test_every_fault_can_be_written_and_read() -> None:
    for kind in KINDS:
        fault = Fault(12.34, kind, 56)
        assert Fault.parse(str(fault)) == fault


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_one_more_fault_at_a_moment_changes_only_the_runs_in_which_it_strikes(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run_one(Plan(4))
    monkeypatch.setitem(KINDS, "another", lambda strike: strike.note("another"))
    monkeypatch.setitem(MOMENTS, "another", share)
    after = run_one(Plan(4))
    assert (after.digest == before.digest) is (share == 0.0)
    assert [each for each in after.faults if "another" not in each] == list(before.faults)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--kinds", "process_killled"),
            "error: --kinds process_killled: is no fault; did you mean process_killed",
        ),
        (("--seed", "1", "--faults", "nonsense@1#2"), "error: --faults: 'nonsense' is no fault"),
        (("--faults", "partition@30.00#1"), "error: --faults: they belong to one run; add --seed"),
        (("--workers", "0"), "error: --workers: '0' is not a whole number above 0"),
    ],
)
def test_bad_input_is_named_with_the_remedy(arguments: tuple[str, ...], message: str) -> None:
    done = simulate(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr


def test_every_knob_is_a_constant_of_the_product() -> None:
    import importlib

    for knob in KNOBS:
        module = importlib.import_module(knob.module)
        assert hasattr(module, knob.name), knob
        assert getattr(module, knob.name) not in knob.values, knob
    assert callable(turn)


def test_what_could_be_reached_is_read_from_the_code() -> None:
    found = expected()
    assert {"log shard changed state", "decision Assign", "state contested", "fault partition"} <= found
    assert len(found) > 100


def test_the_record_keeps_its_last_lines() -> None:
    world = World(1, keeps=2)
    for number in range(5):
        world.note(str(number))
    assert [line.split()[-1] for line in world.record] == ["3", "4"]


def test_the_table_of_mutants_is_that_of_the_patches() -> None:
    known = {mutant.name: mutant for mutant in known_mutants()}
    results = json.loads(RESULTS.read_text())
    assert results.keys() <= known.keys()
    assert table(results) in PAGE.read_text()
    for name in (*results, *REASONS):
        assert mutated(known[name], ROOT)
