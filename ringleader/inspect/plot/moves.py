"""What moves as a picture: on the left who gives, on the right who gets, and between them how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringleader.inspect.plot.canvas import ROW, SMALL, labels, paper, sheet, short, title, width_of
from ringleader.inspect.plot.palette import FAINT, colours
from ringleader.inspect.simulate.change import in_order
from ringleader.inspect.simulate.simulation import MemberChange, Simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SHOWN: Final = 120
"""Members on one side; what is less is one block."""
MOST_TRIFLES: Final = 3
"""Members that give or get less than a tenth of the mean have blocks of their own, if they are no more than these."""
OTHERS: Final = "all others"
_BLOCK: Final = 0.16
_BETWEEN: Final = 3.6
_PITCH: Final = ROW + 0.03
Flows = Mapping[tuple[str, str], int]


@dataclass(slots=True)
class _Block:
    """A member on one side, in inches; *used* is how much of it already has its ribbons, from above."""

    top: float
    height: float
    used: float = 0.0

    def take(self, height: float) -> tuple[float, float]:
        """The next part of it: top and bottom."""
        top = self.top - self.used
        self.used += height
        return top, top - height


def draw_moves(found: Simulation) -> Figure:
    """The picture of *found*, in which something moves."""
    flows = gathered({(flow.from_member, flow.to_member): flow.objects for flow in found.flows})
    gives, gets = _sums(flows, 0), _sums(flows, 1)
    changes = {change.member: change for change in found.members}
    called = labels(list(changes))
    left_texts = {
        name: _told(called.get(name, name), changes.get(name), f"−{number:,}")
        for name, number in gives.items()
    }
    right_texts = {
        name: _told(called.get(name, name), changes.get(name), f"+{number:,}")
        for name, number in gets.items()
    }
    rows = max(len(gives), len(gets))
    tall = max(3.4, rows * _PITCH + 2.4)
    scale = (tall - rows * _PITCH) / found.moved
    left_width, right_width = (
        max(2.6, width_of(list(texts.values())) + 0.35) for texts in (left_texts, right_texts)
    )
    figure = paper(left_width + _BETWEEN + right_width, tall + 1.35)
    title(figure, _heading(found), _remark(found))
    axes = sheet(figure)
    left, right = left_width, left_width + _BETWEEN
    givers, takers = _column(gives, scale, tall), _column(gets, scale, tall)
    paint = colours(changes)
    _draw_ribbons(axes, flows, givers, takers, paint, scale=scale, span=(left + _BLOCK, right - _BLOCK))
    _draw_blocks(axes, givers, paint, left_texts, edge=left, side=-1)
    _draw_blocks(axes, takers, paint, right_texts, edge=right, side=1)
    for x, text, side in ((left - 0.1, "gives", "right"), (right + 0.1, "gets", "left")):
        axes.text(
            x, tall + 0.42, f"{text}: share before → after, objects", fontsize=SMALL, ha=side, va="center"
        )
    return figure


def gathered(flows: Flows) -> dict[tuple[str, str], int]:
    """*flows* with at most `MOST_SHOWN` names on either side; the smaller ones, and several trifles, are `OTHERS`."""
    kept = [_kept(_sums(flows, side)) for side in (0, 1)]
    found: Counter[tuple[str, str]] = Counter()
    for (old, new), number in flows.items():
        found[old if old in kept[0] else OTHERS, new if new in kept[1] else OTHERS] += number
    return dict(found)


def _kept(sums: Counter[str]) -> set[str]:
    """The members of one side that have a block of their own."""
    most = sums.most_common(MOST_SHOWN)
    trifle = sums.total() / len(sums) / 10
    trifles = [name for name, number in most if number < trifle]
    return {name for name, _ in most} - (set(trifles) if len(trifles) > MOST_TRIFLES else set())


def _sums(flows: Flows, side: int) -> Counter[str]:
    """What each member gives (0) or gets (1), in the order in which people count them."""
    found: Counter[str] = Counter()
    for pair, number in flows.items():
        found[pair[side]] += number
    ordered = sorted(in_order(list(found)), key=lambda name: name == OTHERS)
    return Counter({name: found[name] for name in ordered})


def _told(name: str, change: MemberChange | None, number: str) -> str:
    if change is None:
        return f"{name}   {number}"
    return f"{name}   {_share(change.share_before)} → {_share(change.share_after)}   {number}"


def _share(share: float) -> str:
    return f"{share:.2%}" if share else "–"


def _heading(found: Simulation) -> str:
    told = f"{found.members_before:,} → {found.members_after:,} members"
    return f"What moves in ring {short(found.ring)}: {told}" if found.ring else f"What moves: {told}"


def _remark(found: Simulation) -> str:
    change = (
        ", ".join(found.change)
        if len(found.change) <= 2
        else f"{found.change[0]} and {len(found.change) - 1} more"
    )
    return f"{change[:60]}: {found.moved:,} of {found.objects:,} objects move ({found.moved / found.objects:.1%})"


def _column(sums: Mapping[str, int], scale: float, tall: float) -> dict[str, _Block]:
    """One block per member from above, the whole of them in the middle of *tall* inches."""
    heights = {name: number * scale for name, number in sums.items()}
    free = tall - sum(heights.values())
    gap = min(free / len(heights), 0.5)
    y = 0.3 + tall - (free - gap * (len(heights) - 1)) / 2
    blocks = {}
    for name, height in heights.items():
        blocks[name] = _Block(y, height)
        y -= height + gap
    return blocks


def _draw_ribbons(
    axes: Axes,
    flows: Flows,
    givers: Mapping[str, _Block],
    takers: Mapping[str, _Block],
    paint: Mapping[str, str],
    *,
    scale: float,
    span: tuple[float, float],
) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    order = {name: index for side in (givers, takers) for index, name in enumerate(side)}
    left, right = span
    middle = (left + right) / 2
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    for old, new in sorted(flows, key=lambda pair: (order[pair[0]], order[pair[1]])):
        height = flows[old, new] * scale
        (top, low), (new_top, new_low) = givers[old].take(height), takers[new].take(height)
        points = [
            (left, top),
            (middle, top),
            (middle, new_top),
            (right, new_top),
            (right, new_low),
            (middle, new_low),
            (middle, low),
            (left, low),
            (left, top),
        ]
        colour = FAINT if old == OTHERS else paint[old]
        axes.add_patch(
            PathPatch(Path(points, codes), facecolor=colour, alpha=0.5, edgecolor=colour, linewidth=0.3)
        )


def _draw_blocks(
    axes: Axes,
    blocks: Mapping[str, _Block],
    paint: Mapping[str, str],
    texts: Mapping[str, str],
    *,
    edge: float,
    side: int,
) -> None:
    """Blocks at *edge*, each with its text beyond it (*side* -1: to the left)."""
    from matplotlib.patches import Rectangle

    for name, block in blocks.items():
        low = block.top - block.height
        x = edge if side < 0 else edge - _BLOCK
        colour = FAINT if name == OTHERS else paint[name]
        axes.add_patch(Rectangle((x, low), _BLOCK, max(block.height, 0.01), color=colour, linewidth=0))
        beyond = "right" if side < 0 else "left"
        axes.text(
            edge + side * 0.1, low + block.height / 2, texts[name], fontsize=SMALL, ha=beyond, va="center"
        )


__all__: Sequence[str] = ("MOST_SHOWN", "OTHERS", "draw_moves", "gathered")
