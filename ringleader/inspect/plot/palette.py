"""Colours of members: told apart by everybody, also without red and green (deuteranopia). Pure.

Twelve colours in a circle. Seen without the green receptor any two of them differ, and neighbours in the circle by far:
the distances stand in tests/ringleader/test_ringleader_plot_palette.py. More than twelve members begin the circle anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PALETTE: Final = (
    "#1e3c87",
    "#69b4ff",
    "#784b00",
    "#0fb4a5",
    "#781e5a",
    "#e1c3ff",
    "#2d875a",
    "#c3e169",
    "#9678d2",
    "#c3780f",
    "#4b6996",
    "#f09687",
)
INK: Final = "#1f2430"
FAINT: Final = "#8a90a0"
"""Lines that lead, grids, remarks."""
WARNING: Final = "#b3261e"
"""The bound: the one line that nothing may cross."""
_BEGINS: Final = {5: 5, 11: 2}
"""Where in the circle to begin if the last member would else be too much like the first, by members modulo twelve."""
_CLOSING: Final = 2
"""The last member's colour where the circle would end on the first one's."""


def colours(members: Iterable[str]) -> dict[str, str]:
    """A colour for each of *members*; neighbours differ, and so do the last and the first."""
    names, size = list(members), len(PALETTE)
    begin = _BEGINS.get(len(names) % size, 0)
    found = {name: PALETTE[(begin + index) % size] for index, name in enumerate(names)}
    if len(names) > size and len(names) % size == 1:
        found[names[-1]] = PALETTE[_CLOSING]
    return found
