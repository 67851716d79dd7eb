"""Pictures of a ring as SVG, written by hand: small enough to stand in a file that is mailed. Pure.

Owns geometry and colours. `ringleader plot` draws with matplotlib instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import Final

from ring import HashRing
from sharder.page.facts import SECTORS, sectors_of
from sharder.page.whatif import in_order

_FIRST: Final = ("#3e8ede", "#e69f00", "#00a383", "#cc79a7", "#d55e00", "#7a6ad8", "#56b4e9", "#a8991f")
"""Told apart by colour-blind people, and the live page's; further ones go round by the golden angle."""
_MIDDLE: Final = 200.0
_OUTER: Final = (176.0, 194.0)
_INNER: Final = (118.0, 150.0)
_ROW: Final = 22.0
_LABEL: Final = 150.0
_BARS: Final = 300.0
_MOST_LABELS: Final = 16


def as_text(value: str) -> str:
    """*value* as text of a page: no markup, nothing that cannot be seen or turns the writing round."""
    return escape("".join("·" if _is_hidden(ord(each)) else each for each in str(value)))


def _is_hidden(code: int) -> bool:
    controls = (code < 32 and code != 10) or 127 <= code < 160
    return controls or 0x200B <= code <= 0x200F or 0x2028 <= code <= 0x202E or 0x2060 <= code <= 0x206F


def colour(index: int) -> str:
    """The colour of the member at *index*."""
    if index < len(_FIRST):
        return _FIRST[index]
    hue = round(index * 137.508) % 360
    return f"hsl({hue} {52 + index % 3 * 12}% {46 + index % 4 * 6}%)"


def ring_plot(ring: HashRing) -> str:
    """The circle: who owns which part of the hash space, and what that is together."""
    order = in_order(ring.members)
    paint = {name: colour(index) for index, name in enumerate(order)}
    names = ring.members
    parts = [_band(*_OUTER, start, end, paint[names[owner]]) for owner, start, end in _runs(sectors_of(ring))]
    shares, at = ring.shares(), 0.0
    labels = []
    for name in order:
        part = float(shares[name])
        title = f"{name}: {part:.2%}"
        parts.append(_band(*_INNER, at, at + part, paint[name], title=title))
        if len(order) <= _MOST_LABELS and part > 0:
            labels.append(_label(name, at + part / 2))
        at += part
    title = f"Ring of {len(order)} members"
    middle = (
        f'<text x="200" y="196" text-anchor="middle">{len(order)} member{"s" if len(order) != 1 else ""}</text>'
        f'<text x="200" y="214" text-anchor="middle" class="soft">{ring.virtual_nodes:,} virtual nodes each</text>'
    )
    return _svg(400, 400, title, [*parts, *labels, middle])


def shares_plot(ring: HashRing, counted: Mapping[str, float]) -> str:
    """A bar for each member: its share, beside what its weight asks for and the bound that it cannot pass."""
    order = in_order(ring.members)
    shares, fair = ring.shares(), ring.fair_shares()
    bounds = {name: float(fair[name]) * (1 + float(ring.eps)) for name in order}
    most = max([*bounds.values(), *(counted.get(name, 0.0) for name in order)]) * 1.06
    rows = []
    for index, name in enumerate(order):
        y, share = index * _ROW + 4, float(shares[name])
        rows.append(
            f'<text x="{_LABEL - 8:g}" y="{y + 12:g}" text-anchor="end">{as_text(_short(name))}</text>'
            f'<rect class="track" x="{_LABEL:g}" y="{y + 2:g}" width="{_BARS:g}" height="12" rx="6"/>'
            f'<rect x="{_LABEL:g}" y="{y + 2:g}" width="{share / most * _BARS:.1f}" height="12" rx="6" '
            f'fill="{colour(index)}"><title>{as_text(name)}: {share:.2%}</title></rect>'
            + _mark("line", float(fair[name]) / most, y, 1)
            + _mark("bound", bounds[name] / most, y, 2.5)
            + _dot(counted.get(name), most, y)
            + f'<text x="{_LABEL + _BARS + 8:g}" y="{y + 12:g}" class="soft">{share:.1%}</text>'
        )
    title = f"Shares of {len(order)} members"
    return _svg(_LABEL + _BARS + 60, len(order) * _ROW + 8, title, rows)


def _mark(kind: str, part: float, y: float, width: float) -> str:
    x = _LABEL + part * _BARS
    return f'<path class="{kind}" d="M{x:.1f} {y:g}v16" stroke-width="{width:g}"/>'


def _dot(share: float | None, most: float, y: float) -> str:
    if share is None:
        return ""
    return f'<circle class="dot" cx="{_LABEL + share / most * _BARS:.1f}" cy="{y + 8:g}" r="4"/>'


def _runs(sectors: list[int]) -> Iterator[tuple[int, float, float]]:
    """Neighbouring sectors of one owner as one part of the circle: owner, start, end."""
    start = 0
    for owner, group in groupby(sectors):
        count = len(list(group))
        yield owner, start / SECTORS, (start + count) / SECTORS
        start += count


def _band(inner: float, outer: float, start: float, end: float, paint: str, *, title: str = "") -> str:
    """A part of a ring, from *start* to *end* of a turn, clockwise from the top."""
    end = min(end, start + 0.99999)
    is_large = int(end - start > 0.5)
    (x0, y0), (x1, y1) = _point(outer, start), _point(outer, end)
    (x2, y2), (x3, y3) = _point(inner, end), _point(inner, start)
    path = (
        f"M{x0:.1f} {y0:.1f}A{outer:g} {outer:g} 0 {is_large} 1 {x1:.1f} {y1:.1f}"
        f"L{x2:.1f} {y2:.1f}A{inner:g} {inner:g} 0 {is_large} 0 {x3:.1f} {y3:.1f}Z"
    )
    told = f"<title>{as_text(title)}</title>" if title else ""
    return f'<path d="{path}" fill="{paint}">{told}</path>' if told else f'<path d="{path}" fill="{paint}"/>'


def _point(radius: float, turn: float) -> tuple[float, float]:
    angle = (turn - 0.25) * 2 * math.pi
    return _MIDDLE + math.cos(angle) * radius, _MIDDLE + math.sin(angle) * radius


def _label(name: str, turn: float) -> str:
    x, y = _point(_INNER[0] - 10, turn)
    anchor = "middle" if abs(x - _MIDDLE) < 25 else "end" if x > _MIDDLE else "start"
    return f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="{anchor}">{as_text(_short(name))}</text>'


def _short(name: str, most: int = 19) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _svg(width: float, height: float, title: str, parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{as_text(title)}">{"".join(parts)}</svg>'
