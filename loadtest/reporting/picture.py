"""The picture of a run: throughput, waits and moved objects on one axis of time, the actions marked. SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00")
"""Okabe-Ito: told apart by all."""


def draw(series: Mapping[str, Sequence[float | None]], actions: Sequence[Mapping[str, Any]]) -> str:
    """The figure as an SVG element."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot, ticker

    waits = [name for name in series if name.endswith("p99 s")]
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 9, "svg.hashsalt": "ringleader"}):
        figure, (rate, wait, moved) = pyplot.subplots(
            3, 1, figsize=(10, 7.5), sharex=True, height_ratios=(2, 2, 1), layout="constrained"
        )
        _lines(rate, series, {"operations": "operations/s", "failures": "failures/s"})
        rate.set(ylabel="per second", ylim=(0, None))
        _lines(wait, series, {name: name.removesuffix(", p99 s") for name in waits}, marker=".")
        wait.set(ylabel="p99 of each step, s", yscale="log" if waits else "linear")
        seconds = [value or 0 for value in series["second"]]
        moved.bar(
            seconds, [value or 0 for value in series["moved"]], color=_COLOURS[3], width=_width(seconds)
        )
        highest = max([1.0, *(value or 0 for value in series["moved"])])
        moved.set(ylabel="moved/s", xlabel="seconds of load", ylim=(0, 1.05 * highest))
        wait.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        wait.yaxis.set_minor_formatter(ticker.NullFormatter())
        for axes in (rate, wait, moved):
            axes.grid(alpha=0.25)
            _mark(axes, actions, is_named=axes is rate)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def _width(seconds: Sequence[float]) -> float:
    return seconds[1] - seconds[0] if len(seconds) > 1 else 1.0


def _lines(
    axes: Axes, series: Mapping[str, Sequence[float | None]], names: Mapping[str, str], marker: str = ""
) -> None:
    for colour, (name, label) in zip(_COLOURS, names.items(), strict=False):
        points = [
            (second, value)
            for second, value in zip(series["second"], series[name], strict=True)
            if value is not None
        ]
        if points:
            axes.plot(
                [float(at or 0) for at, _ in points],
                [value for _, value in points],
                color=colour,
                label=label,
                marker=marker,
            )
    if names:
        axes.legend(loc="upper right", frameon=False, fontsize=8)


def _mark(axes: Axes, actions: Sequence[Mapping[str, Any]], *, is_named: bool) -> None:
    for action in actions:
        axes.axvspan(action["began_s"], max(action["ended_s"], action["began_s"]), color="#999999", alpha=0.2)
        axes.axvline(action["began_s"], color="#555555", linewidth=1, linestyle="--")
        if is_named:
            axes.annotate(
                action["action"],
                (action["began_s"], 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(3, -10),
                textcoords="offset points",
                fontsize=8,
            )
