"""Shares as a picture: what each member has, beside its even share and the bound that nobody passes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ring import HashRing
from ringleader.inspect.plot.canvas import ROW, SMALL, labels, paper, place, short, title, width_of
from ringleader.inspect.plot.palette import FAINT, INK, WARNING, colours
from ringleader.inspect.simulate.change import in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS: Final = 50
"""Members in one column."""
MOST_SHOWN: Final = 400
_PANEL: Final = 3.4


def draw_shares(ring: HashRing, objects: Mapping[str, int], *, name: str = "", of: str = "") -> Figure:
    """The picture of *ring*'s shares, and of the *objects* that each member has; both may differ a little by chance.

    *of*: of which main resources it is, if there are other rings.
    """
    members = in_order(list(ring.members))
    shown = _most_telling(ring, members)
    columns = math.ceil(len(shown) / MOST_ROWS)
    rows = math.ceil(len(shown) / columns)
    called = labels(members)
    names = width_of([called[member] for member in shown]) + 0.25
    numbers = width_of(["100.00 %"]) + (width_of(["1,000,000"]) if objects else 0) + 0.3
    height = max(2.6, rows * (ROW + 0.04) + 1.9)
    figure = paper(columns * (names + _PANEL + numbers) + 0.3, height)
    title(
        figure,
        f"Shares of ring {short(name)}" if name else "Shares",
        _remark(ring, len(members) - len(shown), has_objects=bool(objects))
        + (f"; of {short(of)}" if of else ""),
    )
    paint = colours(members)
    limit = _limit(ring, objects)
    first: Axes | None = None
    for column in range(columns):
        left = 0.1 + column * (names + _PANEL + numbers) + names
        axes = place(figure, left, 0.75, _PANEL, height - 1.7)
        _draw_column(axes, ring, shown[column * rows :][:rows], objects, paint, rows=rows)
        axes.set_yticklabels([called[member] for member in shown[column * rows :][:rows]], fontsize=SMALL)
        axes.set_xlim(0, limit)
        first = first or axes
    if first is not None:
        figure.legend(
            *first.get_legend_handles_labels(),
            loc="lower left",
            bbox_to_anchor=(0.15 / figure.get_size_inches()[0], 0.08 / height),
            ncols=4,
            fontsize=SMALL,
            frameon=False,
        )
    return figure


def _remark(ring: HashRing, hidden: int, *, has_objects: bool) -> str:
    told = f"{len(ring):,} members; no share is more than {1 + float(ring.eps):g} of what the weight asks for"
    told += "; objects scatter around it by chance" if has_objects else ""
    return f"{told}; {hidden:,} between the extremes are not shown" if hidden else told


def _most_telling(ring: HashRing, members: Sequence[str]) -> list[str]:
    """*members*, or if they are too many those with the largest and the smallest share for their weight."""
    if len(members) <= MOST_SHOWN:
        return list(members)
    shares, fair = ring.shares(), ring.fair_shares()
    ranked = sorted(members, key=lambda member: shares[member] / fair[member])
    kept = {*ranked[: MOST_SHOWN // 2], *ranked[-MOST_SHOWN // 2 :]}
    return [member for member in members if member in kept]


def _limit(ring: HashRing, objects: Mapping[str, int]) -> float:
    total = sum(objects.values())
    bound = max(map(float, ring.fair_shares().values())) * (1 + float(ring.eps))
    largest = max(objects.values(), default=0) / total if total else 0.0
    return max(bound, largest) * 1.06


def _draw_column(
    axes: Axes,
    ring: HashRing,
    members: Sequence[str],
    objects: Mapping[str, int],
    paint: Mapping[str, str],
    *,
    rows: int,
) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    shares, fair = ring.shares(), ring.fair_shares()
    places = range(len(members))
    has = [float(shares[member]) for member in members]
    asks = [float(fair[member]) for member in members]
    axes.barh(
        places, has, height=0.62, color=[paint[member] for member in members], label="share of the hash space"
    )
    _ticks(axes, asks, color=INK, label="even share by weight", style=(0, (1.5, 1.2)))
    _ticks(axes, [ask * (1 + float(ring.eps)) for ask in asks], color=WARNING, label="bound", style="-")
    counts = Counter(objects)
    if total := counts.total():
        parts = [counts[member] / total for member in members]
        axes.plot(
            parts,
            places,
            linestyle="",
            marker="o",
            markersize=3.6,
            color="white",
            markeredgecolor=INK,
            label="objects",
        )
    axes.set_yticks(list(places))
    axes.set_ylim(rows - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    heads = "share" + ("      objects" if counts else "")
    axes.text(1.02, -0.95, heads, transform=axes.get_yaxis_transform(), fontsize=SMALL, va="center")
    for index, member in enumerate(members):
        text = f"{has[index]:.2%}" + (f"  {counts[member]:,}" if counts else "")
        axes.text(1.02, index, text, transform=axes.get_yaxis_transform(), fontsize=SMALL, va="center")


def _ticks(axes: Axes, values: Sequence[float], *, color: str, label: str, style: Any) -> None:
    """An upright stroke at each row's value; where neighbours have the same, one line."""
    axes.vlines(
        values,
        [index - 0.5 for index in range(len(values))],
        [index + 0.5 for index in range(len(values))],
        colors=color,
        linestyles=style,
        linewidth=1.1,
        label=label,
    )
