"""Availability and movement, measured on made-up write logs and beside a naive reading second by second."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from devcluster.plane import Write
from kubeio.protocol import RingKeys
from ringleader.testing.availability import (
    Demand,
    History,
    Movement,
    histories,
    movement,
    unattended,
    waiting,
)
from ringleader.testing.journal import Begin, End, Record

KEYS = RingKeys("websites")
SITES = "websites.example.com"
FOREVER = math.inf


def labelled(t: float, label: str | None, *, verb: str = "patch", code: int = 200) -> Write:
    labels = {KEYS.shard: label} if label else {}
    return Write(
        seq=int(t),
        t=t,
        user="x",
        verb=verb,
        resource=SITES,
        namespace="default",
        name="blog",
        uid="u1",
        code=code,
        labels_after=None if verb == "delete" else labels,
    )


def history(*changes: tuple[float, str], deleted_at: float = FOREVER) -> History:
    return History("u1", "default/blog", changes[0][0], deleted_at, list(changes))


def test_a_history_keeps_changes_of_the_label_only_and_skips_refused_writes() -> None:
    log = [labelled(1, None, verb="create"), labelled(2, "a"), labelled(3, "a"), labelled(4, "b", code=409)]
    (only,) = histories([*log, labelled(9, None, verb="delete")], keys=KEYS, resource=SITES).values()
    assert only == history((1, ""), (2, "a"), deleted_at=9)


def test_an_object_is_unattended_until_a_working_life_is_named() -> None:
    stretch = unattended([history((1, ""), (4, "a"))], working={"a": [(0, FOREVER)]}, since=0, until=10)
    assert stretch is not None
    assert (stretch.begin, stretch.end, stretch.key) == (1, 4, "default/blog")


def test_an_owner_that_died_does_not_attend_until_another_is_named() -> None:
    working = {"a": [(0.0, 5.0)], "b": [(0.0, FOREVER)]}
    stretch = unattended([history((1, "a"), (7, "b"))], working=working, since=0, until=10)
    assert stretch is not None
    assert (stretch.begin, stretch.end) == (5, 7)


def test_an_object_always_attended_has_no_stretch() -> None:
    assert unattended([history((1, "a"))], working={"a": [(0, FOREVER)]}, since=0, until=10) is None


def test_a_deleted_object_wants_nobody() -> None:
    assert unattended([history((1, "a"), deleted_at=5)], working={"a": [(0, 5)]}, since=0, until=10) is None


OWNERS = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["", "a", "b"])), min_size=1, max_size=6)
WORK = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda span: [tuple(sorted(map(float, span)))]),
)


@given(owners=OWNERS, working=WORK)
def test_the_longest_gap_is_the_one_found_second_by_second(
    owners: list[tuple[int, str]], working: dict[str, list[tuple[float, float]]]
) -> None:
    changes = sorted(dict(owners).items())
    object_ = history(*[(float(t), label) for t, label in changes])
    longest = current = 0
    for second in range(changes[0][0], 25):
        label = object_.label_at(second)
        attended = any(begin <= second < end for begin, end in working.get(label, ()))
        current = 0 if attended else current + 1
        longest = max(longest, current)
    stretch = unattended([object_], working=working, since=0, until=25)
    assert (stretch.length_s if stretch else 0) == longest


def test_an_update_waits_until_its_generation_was_reconciled_well() -> None:
    records: list[Record] = [
        Begin(1, "a", SITES, "default/blog", "u1", "1", 1),
        End(2, "a", SITES, "default/blog", "u1", "done"),
        Begin(3, "a", SITES, "default/blog", "u1", "2", 2),
        End(4, "a", SITES, "default/blog", "u1", "error"),
        Begin(5, "b", SITES, "default/blog", "u1", "2", 2),
        End(6, "b", SITES, "default/blog", "u1", "done"),
    ]
    stretch = waiting([Demand("u1", "default/blog", 2, 2.5)], records, until=20)
    assert stretch is not None
    assert (stretch.begin, stretch.end) == (2.5, 6)


def test_an_update_never_reconciled_waits_to_the_end() -> None:
    stretch = waiting([Demand("u1", "default/blog", 2, 2.5)], [], until=20)
    assert stretch is not None
    assert stretch.length_s == 17.5
    assert stretch.reason == "generation 2 not reconciled"


def test_moved_means_the_member_changed_and_renamed_only_its_life() -> None:
    member_of = {"a-1": "a", "a-2": "a", "b-1": "b"}
    stays = history((1, "a-1"))
    renamed = history((1, "a-1"), (5, ""), (6, "a-2"))
    moved = history((1, "a-1"), (6, "b-1"))
    there_and_back = history((1, "a-1"), (6, "b-1"), (7, "a-1"))
    found = [stays, renamed, moved, there_and_back]
    assert movement(found, member_of=member_of, since=4) == Movement(moved=2, renamed=1)
    assert movement(found, member_of=member_of, since=8) == Movement(moved=0, renamed=0)
    assert movement(found, member_of=member_of, since=0, until=4) == Movement(moved=0, renamed=0)
