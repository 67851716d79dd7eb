"""Figures beside their goals, as a table. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.measuring.goals import Figure, Verdict

_STYLES: Final = {
    Verdict.MET: "green",
    Verdict.MISSED: "bold red",
    Verdict.NOT_MEASURED: "yellow",
    Verdict.SKIPPED: "yellow",
    Verdict.REPORTED: "dim",
}
_BUSY_CORES: Final = 0.2
_WIDTH: Final = 140
"""Of a table where no terminal says how wide it is."""


def figures_table(figures: Iterable[Figure], *, title: str, foreign_cores: float, cores: int) -> Table:
    """Each figure, its goal, the verdict; a warning if the machine had other things to do."""
    shown = Table(title=title, caption=_caption(foreign_cores, cores))
    for column, justify in (("figure", "left"), ("measured", "right"), ("goal", "right"), ("", "left")):
        shown.add_column(column, justify="right" if justify == "right" else "left")
    shown.add_column("how", overflow="fold")
    for figure in figures:
        style = _STYLES[figure.verdict]
        verdict = f"[{style}]{figure.verdict.value}[/{style}]"
        shown.add_row(figure.what, figure.shown, str(figure.goal), verdict, figure.how)
    return shown


def _caption(foreign_cores: float, cores: int) -> str:
    if foreign_cores < _BUSY_CORES:
        return ""
    return (
        f"other work used {foreign_cores:g} of {cores} cores meanwhile: these figures are not the machine's"
    )


def print_tables(*tables: Table) -> None:
    """On standard output, wide enough to be read where it is no terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    for table in tables:
        console.print(table)
