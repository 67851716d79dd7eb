"""A rebalance over time as a picture: objects per member, what is on its way, what has moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ringleader.inspect.plot.canvas import ROW, SMALL, labels, paper, place, short, spread, title, width_of
from ringleader.inspect.plot.palette import FAINT, INK, WARNING, colours
from ringleader.inspect.plot.record import Moment
from ringleader.inspect.simulate.change import in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NAMED: Final = 240
_LEFT: Final = 0.85
_WIDTH: Final = 7.2
_LOW: Final = 1.25
_MOST_LED: Final = 30
"""Names to which lines lead from the ends of theirs; more would be one grey field."""
_BETWEEN: Final = 0.3
_ON_THE_WAY: Final = "being handed over"


def draw_timeline(moments: Sequence[Moment], *, name: str = "") -> Figure:
    """The picture of *moments*, at least two, in order of time."""
    members = in_order(list({member for moment in moments for member in moment.members}))
    last = moments[-1].members
    named = sorted(members, key=lambda member: -last.get(member, 0))[:MOST_NAMED]
    called = labels(members)
    texts = {member: f"{called[member]}  {_ending(last, member)}" for member in named}
    high = max(2.6, (len(named) + 1) * ROW)
    width = _LEFT + _WIDTH + 0.7 + width_of([*texts.values(), _ON_THE_WAY])
    figure = paper(width, 0.6 + 2 * (_LOW + _BETWEEN) + high + 0.9)
    heading = f"Ring {short(name)} over time" if name else "A rebalance over time"
    title(figure, heading, _remark(moments, len(members) - len(named)))
    seconds = [(moment.time - moments[0].time).total_seconds() for moment in moments]
    moved = place(figure, _LEFT, 0.6, _WIDTH, _LOW)
    flight = place(figure, _LEFT, 0.6 + _LOW + _BETWEEN, _WIDTH, _LOW, sharex=moved)
    objects = place(figure, _LEFT, 0.6 + 2 * (_LOW + _BETWEEN), _WIDTH, high, sharex=moved)
    _draw_members(objects, seconds, moments, members)
    _draw_names(objects, members, texts, last, high=high)
    _draw_flight(flight, seconds, moments)
    _draw_moved(moved, seconds, moments)
    for axes in (objects, flight, moved):
        _finish(axes, seconds)
    for axes in (flight, moved):
        axes.set_ylim(bottom=0)
    for axes in (objects, flight):
        axes.tick_params(labelbottom=False)
    moved.set_xlabel(f"seconds since {moments[0].time:%Y-%m-%d %H:%M:%S} UTC", fontsize=SMALL)
    return figure


def _ending(last: dict[str, int], member: str) -> str:
    return f"{last[member]:,}" if member in last else "gone"


def _remark(moments: Sequence[Moment], unnamed: int) -> str:
    took = (moments[-1].time - moments[0].time).total_seconds()
    moved = moments[-1].moved - moments[0].moved
    told = f"{len(moments):,} moments in {took:,.0f} s; {moved:,} objects moved"
    return f"{told}; the {unnamed:,} with the fewest objects are not named" if unnamed else told


def _draw_members(
    axes: Axes, seconds: Sequence[float], moments: Sequence[Moment], members: Sequence[str]
) -> None:
    """A line per member, and a mark where it came or went."""
    paint = colours(members)
    for member in members:
        known = [
            (at, moment.members[member])
            for at, moment in zip(seconds, moments, strict=True)
            if member in moment.members
        ]
        ats, counts = zip(*known, strict=True)
        axes.plot(ats, counts, color=paint[member], linewidth=1.5)
        if ats[0] > seconds[0]:
            axes.plot(ats[0], counts[0], marker="^", markersize=6, color=paint[member], markeredgecolor=INK)
        if ats[-1] < seconds[-1]:
            axes.plot(ats[-1], counts[-1], marker="X", markersize=7, color=paint[member], markeredgecolor=INK)
    axes.set_ylabel("objects", fontsize=SMALL)


def _draw_names(
    axes: Axes, members: Sequence[str], texts: dict[str, str], last: dict[str, int], *, high: float
) -> None:
    """Names beside the ends of their lines, in their colours; who is gone stands at the bottom."""
    paint = colours(members)
    low, top = axes.get_ylim()
    low = max(0.0, low) if low > top / 2 else 0.0  # lines that lie together are seen apart
    axes.set_ylim(low, top)
    upward = sorted(texts, key=lambda member: (last.get(member, -1), member))
    ends = [max(0.0, last.get(member, 0) - low) / (top - low) * high for member in upward]
    transform = axes.get_yaxis_transform()  # over: part of the axes, up: objects
    for member, end, y in zip(upward, ends, spread(ends, ROW, 0.0, high), strict=True):
        at = low + y / high * (top - low)
        if member in last and len(texts) <= _MOST_LED:
            axes.plot(
                [1.003, 1.03],
                [low + end / high * (top - low), at],
                transform=transform,
                color=FAINT,
                linewidth=0.6,
                clip_on=False,
            )
        axes.plot(
            [1.033, 1.043], [at, at], transform=transform, color=paint[member], linewidth=3, clip_on=False
        )
        axes.text(1.052, at, texts[member], transform=transform, fontsize=SMALL, va="center")


def _draw_flight(axes: Axes, seconds: Sequence[float], moments: Sequence[Moment]) -> None:
    on_the_way = [moment.in_flight for moment in moments]
    axes.fill_between(seconds, on_the_way, color="#4b6996", alpha=0.35, linewidth=0)
    axes.plot(seconds, on_the_way, color="#4b6996", linewidth=1.4, label=_ON_THE_WAY)
    axes.plot(
        seconds,
        [m.unowned for m in moments],
        color=WARNING,
        linewidth=1.4,
        linestyle=(0, (3, 1.5)),
        label="without an owner",
    )
    axes.set_ylabel("objects", fontsize=SMALL)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=SMALL, frameon=False, handlelength=1.6
    )


def _draw_moved(axes: Axes, seconds: Sequence[float], moments: Sequence[Moment]) -> None:
    begin = moments[0].moved
    axes.plot(
        seconds, [moment.moved - begin for moment in moments], color=INK, linewidth=1.5, label="moved so far"
    )
    axes.set_ylabel("objects", fontsize=SMALL)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=SMALL, frameon=False, handlelength=1.6
    )


def _finish(axes: Axes, seconds: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(seconds[0], max(seconds[-1], seconds[0] + 1e-3))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(labelsize=SMALL)
    axes.grid(color=FAINT, alpha=0.25, linewidth=0.6)
