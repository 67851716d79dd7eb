"""The two figures, and the files they are written to.

Owns how matplotlib is used: without a window, without its global state, and so that the same data give the same file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kubeio.errors import KubeError
from ringleader.inspect.plot.data import ShareRow, Timeline, label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE: Final = "petroff10"
"""Ten colours that colour-blind people can tell apart (Petroff 2021); matplotlib has them from 3.10 on."""
_METADATA: Final = {
    ".png": {"Software": "ringleader"},
    ".svg": {"Creator": "ringleader", "Date": None},
    ".pdf": {"Creator": "ringleader", "CreationDate": None},
}
FORMATS: Final = tuple(_METADATA)
_ROW: Final = 0.2
"""Inches of a bar with its name."""
_LETTER: Final = 0.07
"""Inches of a letter beside an axis; the widest ones take a little more."""


class NoMatplotlib(KubeError):
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "matplotlib is not installed, and plots are drawn with it; pip install 'ringleader[plot]'"
        )


@contextmanager
def drawing() -> Iterator[None]:
    """Style of the figures; they are made and saved inside. Raises: NoMatplotlib."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise NoMatplotlib from error
    from cycler import cycler

    style: dict[Any, Any] = {  # the keys that rc_context takes are literals
        "axes.prop_cycle": cycler(color=mpl.color_sequences[PALETTE]),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.size": 9,
        "legend.frameon": False,
        "pdf.fonttype": 42,
        "svg.fonttype": "none",  # names stay text, which can be searched
        "svg.hashsalt": "ringleader",
        "text.parse_math": False,  # a $ in a name is a $
    }
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def draw_ring(rows: Sequence[ShareRow], *, title: str) -> Figure:
    """Bars of the members' shares, each beside its even share and its bound."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    names = [f"{row.name}  {100 * row.share:.3g}%" for row in rows]
    figure = _figure(6 + _LETTER * max(map(len, names)), 1.6 + _ROW * len(rows))
    axes = figure.subplots()
    places = range(len(rows))
    axes.barh(places, [row.share for row in rows], height=0.7, label="share of the hash space")
    low, high = [place - 0.5 for place in places], [place + 0.5 for place in places]
    even, bounds = [row.even for row in rows], [row.bound for row in rows]
    axes.vlines(even, low, high, colors="black", linestyles="dotted", label="even share by weight")
    axes.vlines(bounds, low, high, colors="C2", label="bound")
    axes.set_yticks(places, names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    figure.suptitle(title)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_timeline(shown: Timeline) -> Figure:
    """Objects by member over time, and below them those that are not at rest."""
    names = {member: label(member) for member in shown.named}
    figure = _figure(8 + _LETTER * max(map(len, names.values()), default=0), 6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for member, counts in shown.named.items():
        above.plot(shown.seconds, counts, label=names[member])
    for index, other in enumerate(shown.others):
        text = f"{len(shown.others):,} others" if not index else ""
        above.plot(shown.seconds, other, color="0.7", linewidth=0.6, zorder=1, label=text)
    above.set_ylabel("objects of each member")
    for (text, numbers), line in zip(shown.waiting.items(), ("solid", "dashed", "dotted"), strict=True):
        below.plot(shown.seconds, numbers, linestyle=line, label=text)
    below.set_ylabel("objects not at rest")
    below.set_ylim(bottom=0)
    below.set_xlabel(f"seconds since {shown.start:%Y-%m-%d %H:%M:%S} UTC")
    for axes in (above, below):
        _finish(axes)
    figure.suptitle(f"Ring {label(shown.ring)} over time")
    return figure


def _finish(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write *figure* in the format that the ending of *path* names."""
    kind = path.suffix.lower()
    metadata: Any = _METADATA[kind]
    figure.savefig(path, format=kind[1:], dpi=120, metadata=metadata)
