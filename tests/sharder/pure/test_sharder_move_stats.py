"""Within which time objects moved."""

from __future__ import annotations

from sharder.writing.move_stats import MoveStats


def test_moves_last_from_the_first_to_the_last_answer() -> None:
    moves = MoveStats()
    for at in (10.0, 11.0, 14.0):
        moves.note(at=at)
    assert moves.count == 3
    assert moves.took_s(answered_at=16.5) == 6.5
    assert moves.took_s(answered_at=3.0) == 4.0, "that answer was of an earlier change"


def test_what_moved_before_the_ring_changed_does_not_count() -> None:
    moves = MoveStats()
    moves.note(at=10.0)
    moves.begin_anew()
    assert (moves.count, moves.took_s(answered_at=12.0)) == (0, 0.0)
    moves.note(at=50.0)
    assert (moves.count, moves.took_s(answered_at=51.0)) == (1, 1.0)
