"""The rate at which objects come to their places, and the time left."""

from __future__ import annotations

import pytest

from sharder.rings.settling_pace import LOOKS, SettlingPace


def test_the_pace_is_what_was_done_between_the_looks_and_gives_the_time_left() -> None:
    pace = SettlingPace()
    pace.look(100.0, 1000)
    assert (pace.per_s, pace.left_s) == (None, None)
    pace.look(102.0, 800)
    assert (pace.per_s, pace.left_s) == (100.0, 8.0)
    pace.look(104.0, 700)
    assert pace.per_s == 75.0
    assert pace.left_s == pytest.approx(700 / 75)
    pace.look(106.0, 0)
    assert pace.left_s == 0.0


def test_only_the_last_looks_count_and_none_before_a_new_change() -> None:
    pace = SettlingPace()
    for number in range(20):
        pace.look(float(number), 1000 - number if number < 10 else 990 - 50 * (number - 10))
    assert pace.per_s == 50.0
    assert LOOKS < 10
    pace.look(20.0, 5000)
    assert pace.per_s is None


def test_the_time_before_it_began_to_move_is_no_part_of_the_pace() -> None:
    pace = SettlingPace()
    for at in (0.0, 2.0, 4.0):
        pace.look(at, 1000)
    pace.look(6.0, 800)
    assert (pace.per_s, pace.left_s) == (100.0, 8.0)


def test_what_does_not_move_has_no_time_left() -> None:
    pace = SettlingPace()
    pace.look(0.0, 10)
    pace.look(2.0, 10)
    assert (pace.per_s, pace.left_s) == (0.0, None)
