"""The ring as a picture: outside what each member has, inside who owns the hash space where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ring import HASH_SPACE, HashRing
from ringleader.inspect.plot.canvas import ROW, SMALL, labels, paper, sheet, short, spread, title, width_of
from ringleader.inspect.plot.palette import FAINT, colours
from ringleader.inspect.simulate.change import in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NAMED: Final = 240
PLACES: Final = 1440
"""Places of the hash space whose owner is shown; there may be a hundred arcs between two."""


@dataclass(frozen=True, slots=True)
class _Disc:
    """Where the circle stands, in inches."""

    x: float
    y: float
    radius: float

    def at(self, turn: float, reach: float) -> tuple[float, float]:
        """The point at *turn* (0: top, clockwise, 1: once round) that is *reach* radii from the centre."""
        angle = math.pi / 2 - 2 * math.pi * turn
        return self.x + reach * self.radius * math.cos(angle), self.y + reach * self.radius * math.sin(angle)


def draw_ring(ring: HashRing, *, name: str = "", of: str = "") -> Figure:
    """The picture of *ring*, which has members; *of*: of which main resources, if there are other rings."""
    shares = {member: float(share) for member, share in ring.shares().items()}
    members = in_order(list(shares))
    named = set(sorted(members, key=lambda member: -shares[member])[:MOST_NAMED])
    called = labels(members)
    texts = {member: f"{called[member]}  {shares[member]:.2%}" for member in members if member in named}
    beside = width_of(list(texts.values())) + 0.75
    height = max(5.6, ROW * (len(named) / 2 + 4) + 1.5)
    radius = (height - 1.35) / 2
    width = 2 * (radius + beside)
    figure = paper(width, height)
    title(
        figure,
        f"Ring {short(name)}" if name else "Ring",
        _remark(ring, len(members) - len(named)) + (f"; of {short(of)}" if of else ""),
    )
    axes = sheet(figure)
    disc = _Disc(width / 2, radius + 0.3, radius)
    paint = colours(members)
    _draw_shares(axes, disc, members, shares, paint)
    _draw_places(axes, disc, ring, paint)
    _draw_names(axes, disc, members, shares, texts)
    _draw_middle(axes, disc, ring)
    return figure


def _remark(ring: HashRing, unnamed: int) -> str:
    arcs = sum(1 for _ in ring.arcs())
    told = (
        f"outside: the members' shares; inside: whose the hash space is ({arcs:,} arcs, at {PLACES:,} places)"
    )
    return f"{told}; the {unnamed:,} smallest are not named" if unnamed else told


def _wedges(
    axes: Axes, disc: _Disc, pieces: Sequence[tuple[float, float, str]], *, outer: float, inner: float
) -> None:
    """Pieces (begin, end, colour) of a band; begin and end in turns."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Wedge

    wedges = [
        Wedge(
            (disc.x, disc.y),
            disc.radius * outer,
            90 - 360 * end,
            90 - 360 * begin,
            width=disc.radius * (outer - inner),
        )
        for begin, end, _ in pieces
    ]
    drawn = [colour for _, _, colour in pieces]
    axes.add_collection(PatchCollection(wedges, facecolors=drawn, edgecolors=drawn, linewidths=0.1))


def _draw_shares(
    axes: Axes, disc: _Disc, members: Sequence[str], shares: dict[str, float], paint: dict[str, str]
) -> None:
    pieces, begin = [], 0.0
    for member in members:
        pieces.append((begin, begin + shares[member], paint[member]))
        begin += shares[member]
    _wedges(axes, disc, pieces, outer=1.0, inner=0.84)


def _draw_places(axes: Axes, disc: _Disc, ring: HashRing, paint: dict[str, str]) -> None:
    step = HASH_SPACE // PLACES
    owners = [ring.owner_of_hash(index * step + step // 2) for index in range(PLACES)]
    pieces, begin = [], 0
    for owner, group in groupby(owners):
        end = begin + sum(1 for _ in group)
        pieces.append((begin / PLACES, end / PLACES, paint[owner]))
        begin = end
    _wedges(axes, disc, pieces, outer=0.80, inner=0.56)


def _draw_names(
    axes: Axes, disc: _Disc, members: Sequence[str], shares: dict[str, float], texts: dict[str, str]
) -> None:
    """Names in two columns beside the circle, each led to from the middle of its wedge."""
    middles, begin = {}, 0.0
    for member in members:
        middles[member] = begin + shares[member] / 2
        begin += shares[member]
    right = [member for member in texts if middles[member] < 0.5]
    left = [member for member in texts if middles[member] >= 0.5]
    _draw_column(axes, disc, right[::-1], middles, texts, side=1)
    _draw_column(axes, disc, left, middles, texts, side=-1)


def _draw_column(
    axes: Axes,
    disc: _Disc,
    upward: Sequence[str],
    middles: dict[str, float],
    texts: dict[str, str],
    *,
    side: int,
) -> None:
    """*upward*: the members of this side, from below."""
    wanted = [disc.at(middles[member], 1.08)[1] for member in upward]
    heights = spread(wanted, ROW, 0.2, axes.get_ylim()[1] - 0.85)
    x = disc.x + side * (disc.radius * 1.08 + 0.3)
    for member, y in zip(upward, heights, strict=True):
        begin, bend = disc.at(middles[member], 1.01), disc.at(middles[member], 1.05)
        axes.plot(
            [begin[0], bend[0], x - side * 0.12, x - side * 0.04],
            [begin[1], bend[1], y, y],
            color=FAINT,
            linewidth=0.6,
        )
        axes.text(x, y, texts[member], fontsize=SMALL, va="center", ha="left" if side > 0 else "right")


def _draw_middle(axes: Axes, disc: _Disc, ring: HashRing) -> None:
    fair = ring.fair_shares()
    most = max(float(share / fair[member]) for member, share in ring.shares().items())
    lines = [
        (f"{len(ring):,} members" if len(ring) > 1 else "one member", 11.0),
        (f"{ring.virtual_nodes:,} virtual nodes each", 8.0),
        (f"fullest: {most:.3f} of its even share", 8.0),
        (f"bound: {1 + float(ring.eps):g}", 8.0),
    ]
    for index, (text, size) in enumerate(lines):
        y = disc.y + 0.3 - 0.2 * index
        axes.text(disc.x, y, text, fontsize=size, ha="center", va="center")
