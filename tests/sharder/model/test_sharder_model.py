"""Every order of events of a small world: nobody works on the object at the same time as somebody else, no write of
a former owner is accepted, and no object is left for ever without a worker. What is too large for every day is begun
here and explored to its end by `make model`; docs/protocol.md shows its last result."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.sharder.model.document import read_rows
from tests.sharder.model.exploration import explore
from tests.sharder.model.settings import BEHIND_THE_TURN, BREAKING, HOLES, SETTINGS, STRANDING
from tests.sharder.model.world import Rules, Setting

pytestmark = pytest.mark.timeout(
    600
)  # computes all the time: ten seconds alone, minutes on a crowded machine
WHOLE = {
    "no fault": 200,
    "two lost answers, a stale list": 1_000,
    "the object created anew, a lost answer": 5_000,
    "a crash": 50_000,
    "a life whose caches never become full": 250,
    "a namespace deselected, an unowned object": 10_000,
    "a resource removed, a sharder ends": 10_000,
    "a label forged, the CREATE of its name on its way": 100,
}
"""Small enough for every day, and how many worlds there are at least."""
BEGINNING = 8_000


@pytest.mark.parametrize(("name", "at_least"), WHOLE.items())
def test_no_order_of_events_breaks_anything_and_each_can_still_end_well(name: str, at_least: int) -> None:
    explored = explore(SETTINGS[name], backwards=True)
    assert explored.broken is None, explored.tell()
    assert explored.is_complete
    assert len(explored.came_from) > at_least
    stuck = explored.stuck()
    assert stuck is None, "\n".join([*explored.run_to(stuck), str(stuck)])


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in WHOLE])
def test_the_shortest_orders_of_two_faults_break_nothing(name: str) -> None:
    explored = explore(SETTINGS[name], at_most=BEGINNING)
    assert explored.broken is None, explored.tell()
    assert len(explored.came_from) >= BEGINNING


@pytest.mark.parametrize(("rule", "setting"), BREAKING.items(), ids=list(BREAKING))
def test_without_one_rule_some_order_of_events_breaks_something(rule: str, setting: Setting) -> None:
    off = {rule, "writes_test_the_turn"} if rule in BEHIND_THE_TURN else {rule}
    assert explore(setting, Rules(**dict.fromkeys(off, False))).broken is not None


@pytest.mark.parametrize(("rule", "setting"), STRANDING.items(), ids=list(STRANDING))
def test_without_one_rule_some_order_of_events_leaves_the_object_without_work(
    rule: str, setting: Setting
) -> None:
    explored = explore(setting, Rules(**{rule: False}), backwards=True)
    assert explored.broken is None, explored.tell()
    assert explored.stuck() is not None


def test_a_ring_that_goes_while_a_lease_is_held_meets_a_life_whose_name_was_forged() -> None:
    forged = SETTINGS["the ring given up, a label forged"]
    explored = explore(forged, Rules(given_back_after_the_last_life=False))
    assert explored.broken is not None


def test_every_rule_of_the_model_is_switched_off_once() -> None:
    assert {field.name for field in fields(Rules)} == BREAKING.keys() | STRANDING.keys()


@pytest.mark.parametrize("setting", HOLES.values(), ids=list(HOLES))
def test_the_holes_that_the_document_names_are_found(setting: Setting) -> None:
    broken = explore(setting).broken
    assert broken is not None
    assert broken.outsider


def test_the_document_shows_every_setting_and_that_nothing_broke() -> None:
    rows = read_rows()
    assert list(rows) == list(SETTINGS)
    assert {cells[2] for cells in rows.values()} == {"nothing"}
