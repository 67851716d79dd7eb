"""The order of work when much waits, and what an evidence read covers: `sharder.unowned.assignment_queue`."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeio.models import Meta, ObjectKey
from sharder.unowned.assignment_queue import FIRST_RETRY_S, LONGEST_RETRY_S, SHARE, AssignmentQueue
from sharder.unowned.pending import Lane, ObjectRef, PendingObjects


class Desk:
    """A waiting room and its agenda; objects by a letter or two."""

    def __init__(self) -> None:
        self.pending = PendingObjects()
        self.queue = AssignmentQueue(self.pending, rng=random.Random(1))

    def name(self, name: str) -> str:
        return self.pending.name(ObjectRef("websites.example.com", ObjectKey("ns", name)))

    def see(self, *names: str, lane: Lane = Lane.NEW, version: int = 1, uid: str = "") -> None:
        for name in names:
            seen = Meta(name=name, namespace="ns", uid=uid or name, resource_version=str(version))
            self.pending.put_named(self.name(name), seen, at=0.0, lane=lane)
            self.queue.add(self.name(name))

    def take(self) -> str | None:
        found = self.queue.take(self.queue.covered())
        return found.partition("/")[2] if found is not None else None

    def take_all(self) -> list[str]:
        return list(iter(self.take, None))

    def done(self, name: str) -> None:
        self.queue.done(self.name(name))


def test_new_objects_go_before_those_of_the_dead_and_both_before_a_backlog() -> None:
    desk = Desk()
    desk.see("b1", "b2", lane=Lane.BACKLOG)
    desk.see("o1", "o2", lane=Lane.ORPHANED)
    desk.see("n1", "n2")
    assert desk.take_all() == ["n1", "n2", "o1", "o2", "b1", "b2"]


def test_every_eighth_turn_goes_below_so_that_nobody_starves() -> None:
    desk = Desk()
    desk.see(*(f"b{n}" for n in range(100)), lane=Lane.BACKLOG)
    desk.see(*(f"o{n}" for n in range(100)), lane=Lane.ORPHANED)
    desk.see(*(f"n{n}" for n in range(200)))
    first = [name[0] for name in islice(iter(desk.take, None), SHARE * SHARE)]
    assert first.count("n") == SHARE * SHARE - SHARE
    assert first.count("o") == SHARE - 1
    assert first.count("b") == 1
    assert first[:SHARE] == ["n"] * (SHARE - 1) + ["o"]


def test_what_is_wanted_goes_first_and_is_given_out_once() -> None:
    desk = Desk()
    desk.see("o1", "o2", "o3", lane=Lane.ORPHANED)
    covered = desk.queue.covered()
    desk.see("o4", lane=Lane.ORPHANED)
    desk.queue.hurry(desk.name("o3"))
    desk.queue.add(desk.name("o3"))
    assert desk.take() == "o3"
    desk.done("o3")
    taken = [desk.queue.take(covered) for _ in range(3)]
    assert [name and name[-2:] for name in taken] == ["o1", "o2", None], "o4 came after that read"
    assert desk.take_all() == ["o4"]


def test_in_a_lane_first_come_first_served_however_often_it_is_asked_for() -> None:
    desk = Desk()
    desk.see("a", "b", "c")
    desk.see("a", "b", version=2)
    for name in tuple(desk.pending.names()):
        desk.queue.add(name)
    assert desk.take_all() == ["a", "b", "c"]


def test_what_is_being_worked_is_given_to_nobody_else_and_once_more_if_it_changed_meanwhile() -> None:
    desk = Desk()
    desk.see("a")
    assert desk.take() == "a"
    desk.see("a", version=2)
    desk.queue.add(desk.name("a"))
    assert desk.take() is None
    desk.done("a")
    assert desk.take_all() == ["a"]
    desk.done("a")
    assert desk.take() is None


def test_what_waits_no_more_is_passed_over() -> None:
    desk = Desk()
    desk.see("a", "b")
    desk.pending.drop_named(desk.name("a"))
    assert desk.take_all() == ["b"]
    desk.queue.add(desk.name("a"))
    assert desk.take() is None


# ---- evidence -------------------------------------------------------------------------------------------------


def test_a_read_covers_what_was_on_the_agenda_when_it_began_and_nothing_later() -> None:
    desk = Desk()
    desk.see("a", lane=Lane.BACKLOG)
    covered = desk.queue.covered()
    desk.see("b", lane=Lane.BACKLOG)
    desk.see("c")
    assert desk.queue.covers(covered)
    assert not desk.queue.covers(covered, (Lane.NEW,))
    assert desk.queue.take(covered) == desk.name("a")
    assert not desk.queue.covers(covered)
    assert desk.queue.take(covered) is None
    assert desk.take_all() == ["c", "b"]


def test_a_version_that_came_after_the_read_began_is_not_covered_though_the_object_was() -> None:
    desk = Desk()
    desk.see("a", "b")
    covered = desk.queue.covered()
    desk.see("a", version=2)
    assert desk.queue.take(covered) == desk.name("b")
    assert desk.queue.take(covered) is None
    assert desk.take() == "a"


def test_an_object_that_went_and_came_again_is_covered_by_a_later_read_only() -> None:
    desk = Desk()
    desk.see("a")
    covered = desk.queue.covered()
    desk.pending.drop_named(desk.name("a"))
    desk.see("a", version=5)
    assert desk.queue.take(covered) is None
    assert desk.take_all() == ["a"]


@pytest.mark.parametrize("uid", ["", "another"])
def test_what_comes_again_keeps_its_turn_and_can_be_raised(uid: str) -> None:
    desk = Desk()
    desk.see("a", lane=Lane.BACKLOG)
    if not uid:
        desk.pending.drop_named(desk.name("a"))
    desk.see("a", lane=Lane.ORPHANED, version=2, uid=uid)
    desk.queue.hurry(desk.name("a"))
    desk.queue.add(desk.name("a"))
    assert desk.queue.count(Lane.NEW) == len(desk.queue) == 1
    assert desk.take_all() == ["a"]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["see", "drop", "again", "hurry", "read", "take", "done"]),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=80,
)


@settings(max_examples=500)
@given(ACTIONS)
def test_nothing_is_given_out_on_a_read_that_began_before_its_version_was_known(
    actions: list[tuple[str, int, int]],
) -> None:
    """Against a model that notes for each version how many reads had begun when it came."""
    desk, version, reads = Desk(), 0, 0
    known: dict[str, int] = {}
    covered = [desk.queue.covered()]
    busy: list[str] = []
    for action, number, lane in actions:
        name = f"o{number}"
        match action:
            case "see":
                version += 1
                desk.see(name, lane=Lane(lane), version=version)
                known[name] = reads
            case "again":
                version += 1
                desk.see(name, lane=Lane(lane), version=version, uid=str(version))
                known[name] = reads
            case "hurry" if desk.pending.knows(desk.name(name)):
                desk.queue.hurry(desk.name(name))
                desk.queue.add(desk.name(name))
            case "drop":
                desk.pending.drop_named(desk.name(name))
            case "read":
                reads += 1
                covered.append(desk.queue.covered())
            case "take":
                taken = desk.queue.take(covered[-1 - number % len(covered)])
                if taken is not None:
                    taken = taken.partition("/")[2]
                    assert taken not in busy
                    assert known[taken] < len(covered) - number % len(covered)
                    busy.append(taken)
            case "done" if busy:
                desk.done(busy.pop())
    for name in busy:
        desk.done(name)
    waits = {found.work.key.name for found in desk.pending}
    for name in tuple(desk.pending.names()):
        desk.queue.add(name)
    assert set(desk.take_all()) == waits


# ---- later ----------------------------------------------------------------------------------------------------


def test_what_is_due_later_gets_its_turn_then_or_when_it_changes() -> None:
    desk = Desk()
    desk.see("a", "b")
    assert desk.take_all() == ["a", "b"]
    desk.queue.done_until(desk.name("a"), 10.0)
    desk.queue.done_until(desk.name("b"), 20.0)
    assert desk.queue.next_due_at == 10.0
    desk.queue.wake(9.9)
    assert desk.take() is None
    desk.queue.wake(10.0)
    assert desk.take_all() == ["a"]
    desk.queue.add(desk.name("b"))
    assert desk.take_all() == ["b"]


def test_looking_again_and_again_leaves_one_date() -> None:
    desk = Desk()
    desk.see("a")
    for _ in range(50):
        assert desk.take() == "a"
        desk.queue.done_until(desk.name("a"), 10.0)
        desk.queue.add(desk.name("a"))
    desk.take()
    desk.done("a")
    desk.queue.wake(10.0)
    assert desk.take_all() == ["a"]
    assert desk.queue.next_due_at is None


def test_failures_in_a_row_wait_longer_and_a_success_begins_anew() -> None:
    desk = Desk()
    desk.see("a")
    delays, now = [], 0.0
    for _ in range(12):
        desk.take()
        desk.queue.failed(desk.name("a"), now=now)
        due_at = desk.queue.next_due_at
        assert due_at is not None
        delays.append(due_at - now)
        now = due_at
        desk.queue.wake(now)
    assert delays[0] == pytest.approx(FIRST_RETRY_S, rel=0.21)
    assert delays[3] == pytest.approx(8 * FIRST_RETRY_S, rel=0.21)
    assert delays[-1] == pytest.approx(LONGEST_RETRY_S, rel=0.21)
    desk.take()
    desk.done("a")
    desk.queue.add(desk.name("a"))
    desk.take()
    desk.queue.failed(desk.name("a"), now=now)
    assert desk.queue.next_due_at == pytest.approx(now + FIRST_RETRY_S, abs=0.011)
