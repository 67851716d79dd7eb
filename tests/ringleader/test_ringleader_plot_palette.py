"""The colours of members are told apart by everybody: also by who sees without the green receptor (deuteranopia).

Deuteranopia is simulated (Machado, Oliveira and Fernandes 2009, severity 1), distances are those of OKLab (Ottosson
2020), where black and white are 1 apart and 0.02 is a difference that is just seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest

from ringleader.inspect.plot.palette import FAINT, INK, PALETTE, WARNING, colours

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]

DEUTERANOPIA: Matrix = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
TO_CONES: Matrix = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
TO_LAB: Matrix = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
FAR = 0.2
"""Of neighbours."""
APART = 0.08
"""Of any two."""


def times(matrix: Matrix, vector: Sequence[float]) -> Vector:
    a, b, c = (sum(x * y for x, y in zip(row, vector, strict=True)) for row in matrix)
    return a, b, c


def linear(colour: str) -> Vector:
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return light(r), light(g), light(b)


def light(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def oklab(rgb: Vector) -> Vector:
    l, m, s = (math.cbrt(cone) for cone in times(TO_CONES, rgb))  # noqa: E741 - the cones' own names
    return times(TO_LAB, (l, m, s))


def distance(one: str, other: str, *, deuteranopic: bool) -> float:
    seen = [linear(one), linear(other)]
    if deuteranopic:
        simulated = [times(DEUTERANOPIA, rgb) for rgb in seen]
        seen = [(max(r, 0.0), max(g, 0.0), max(b, 0.0)) for r, g, b in simulated]
    return math.dist(oklab(seen[0]), oklab(seen[1]))


@pytest.mark.parametrize("deuteranopic", [False, True])
@pytest.mark.parametrize("count", [*range(2, 38), 100, 240])
def test_neighbours_are_told_apart_and_so_are_the_last_and_the_first(count: int, deuteranopic: bool) -> None:
    painted = list(colours(f"web-{index}" for index in range(count)).values())
    pairs = [*pairwise(painted), (painted[-1], painted[0])]
    assert min(distance(one, other, deuteranopic=deuteranopic) for one, other in pairs) >= FAR


@pytest.mark.parametrize("deuteranopic", [False, True])
def test_any_two_of_twelve_members_are_told_apart(deuteranopic: bool) -> None:
    found = {pair: distance(*pair, deuteranopic=deuteranopic) for pair in combinations(PALETTE, 2)}
    assert min(found.values()) >= APART, min(found, key=lambda pair: found[pair])


@pytest.mark.parametrize("deuteranopic", [False, True])
def test_colours_are_seen_on_white(deuteranopic: bool) -> None:
    for colour in (*PALETTE, INK, FAINT, WARNING):
        assert distance(colour, "#ffffff", deuteranopic=deuteranopic) >= 0.12, colour
    assert distance(WARNING, INK, deuteranopic=deuteranopic) >= 0.15


def test_red_and_green_would_be_noticed() -> None:
    """The simulation simulates: a pair that everybody else tells apart is one colour to a deuteranope."""
    red, green = "#b87a50", "#949b4c"
    assert distance(red, green, deuteranopic=False) > 2 * distance(red, green, deuteranopic=True)
    assert distance(red, green, deuteranopic=True) < APART
    assert distance("#000000", "#ffffff", deuteranopic=True) == pytest.approx(1, abs=0.01)
