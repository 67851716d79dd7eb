"""How far a release is: the arithmetic, the words, and how often they are said."""

from __future__ import annotations

from collections import Counter

import pytest

from ringleader.cluster.ring import ring_of
from ringleader.inspect.edit.delete import Labelled, consequence
from ringleader.inspect.edit.release_progress import ProgressLines, ReleaseProgress


def release(total: int = 1000, counter: int | None = None) -> ReleaseProgress:
    return ReleaseProgress(total, counter, began_at=100.0)


@pytest.mark.parametrize(
    ("counter", "looks", "done"),
    [
        (None, [None, 0, 10, 40], 40),
        (None, [10, 40], 40),
        (300, [300, 340], 40),
        (300, [340, 0, 5], 45),
        (300, [7, 9], 9),
        (None, [500, 20, 20, None, 60], 560),
        (None, [None, None], 0),
    ],
)
def test_what_was_given_up_is_what_the_counter_grew_by_over_its_new_beginnings(
    counter: int | None, looks: list[int | None], done: int
) -> None:
    found = release(counter=counter)
    for at, look in enumerate(looks):
        found.look(100.0 + at, look)
    assert (found.done, found.total) == (done, 1000)


def test_more_given_up_than_counted_is_all() -> None:
    found = release(total=10)
    found.look(100.0, 12)
    assert found.text(100.0).startswith("12 of 12 objects given up")


def test_the_rate_is_that_of_the_last_minute_and_tells_how_long_it_takes() -> None:
    found = release(total=100_000)
    found.look(100.0, 0)
    assert found.text(100.0) == "0 of 100,000 objects given up"
    for second in range(1, 201):
        found.look(100.0 + second, 230 * second)
    assert found.text(300.0) == "46,000 of 100,000 objects given up (230/s, about 4 min left)"
    for second in range(1, 81):
        found.look(300.0 + second, 46_000 + 150 * second)
    assert found.text(380.0) == "58,000 of 100,000 objects given up (150/s, about 5 min left)"
    for second in range(1, 81):
        found.look(380.0 + second, 58_000 + second // 2)
    assert "(0.5/s, about " in found.text(460.0)


def test_a_sharder_that_stands_still_promises_no_end() -> None:
    found = release()
    for second in range(100):
        found.look(100.0 + second, 40)
    assert found.text(200.0) == "40 of 1,000 objects given up"


def test_when_all_is_given_up_it_says_what_the_ring_still_waits_for() -> None:
    found = release()
    found.look(100.0, 1000)
    assert found.text(100.0) == (
        "1,000 of 1,000 objects given up; the ring goes when no replica holds a Lease"
    )


def test_an_older_sharder_that_does_not_tell_is_waited_for_in_words() -> None:
    found = release()
    found.look(100.0, None)
    assert found.text(104.0) == "", "a newer one begins to tell within seconds"
    assert found.text(145.0) == "waiting for 45 s; the sharder does not report its progress"


def test_a_line_comes_every_ten_seconds_at_most_and_none_while_nothing_changes() -> None:
    said: list[str] = []
    lines, found = ProgressLines(said.append), release()
    for second in range(31):
        found.look(100.0 + second, 5 * second)
        lines.show(found, 100.0 + second)
    assert [line.split()[0] for line in said] == ["0", "50", "100", "150"]
    for second in range(31, 90):
        found.look(100.0 + second, 151)
        lines.show(found, 100.0 + second)
    assert [line.split()[0] for line in said[4:]] == ["151"]


def test_while_nothing_is_told_a_line_says_how_long_it_waits() -> None:
    said: list[str] = []
    lines, found = ProgressLines(said.append), release()
    for second in range(26):
        lines.show(found, 100.0 + second)
    assert [line.split(";")[0] for line in said] == ["waiting for 10 s", "waiting for 20 s"]


def test_the_question_tells_objects_from_what_follows_them() -> None:
    ring = ring_of({"metadata": {"name": "websites"}})
    labelled = Labelled(Counter({"a-1": 3000, "b-1": 500}), controlled=1500)
    assert consequence(ring, labelled).startswith(
        "2,000 objects of ring websites, and 1,500 that they control, are given up by 2 replicas"
    )
    assert consequence(ring, Labelled(Counter({"a-1": 2}))).startswith(
        "2 objects of ring websites are given up"
    )
