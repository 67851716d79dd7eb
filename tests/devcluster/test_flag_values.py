"""Numbers that programs take as flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from devcluster.flag_values import amount, count


@pytest.mark.parametrize(
    ("kind", "text"),
    [(count, "0"), (count, "-1"), (count, "many"), (amount, "0"), (amount, "inf"), (amount, "x")],
)
def test_numbers_that_are_not_above_zero_are_refused(kind: Callable[[str], float], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="above 0"):
        kind(text)
