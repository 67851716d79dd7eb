"""Figures beside their goals, and what a run leaves behind: one JSON document and one table. Decides nothing else."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from loadtest.machine import Machine


class Verdict(StrEnum):
    MET = "met"
    MISSED = "MISSED"
    NOT_MEASURED = "not measured"
    SKIPPED = "skipped"
    REPORTED = "reported"


_STYLES: Final = {
    Verdict.MET: "green",
    Verdict.MISSED: "bold red",
    Verdict.NOT_MEASURED: "yellow",
    Verdict.SKIPPED: "yellow",
    Verdict.REPORTED: "dim",
}
_BUSY_CORES: Final = 0.2
_WIDTH: Final = 140
"""Of a table without a terminal."""


class Goal(msgspec.Struct, frozen=True):
    """A line of the table before it is measured: at least *least* or at most *most*; with neither it is reported.

    *row* is the part of the run that fills the line.
    """

    row: str
    what: str
    unit: str
    least: float | None = None
    most: float | None = None

    def judge(self, value: float | None) -> Verdict:
        """Whether *value* reaches the goal; a value that is not a number reaches none."""
        if value is None:
            return Verdict.NOT_MEASURED
        if self.least is None and self.most is None:
            return Verdict.REPORTED
        is_enough = self.least is None or value >= self.least
        is_little = self.most is None or value <= self.most
        return Verdict.MET if is_enough and is_little else Verdict.MISSED

    def __str__(self) -> str:
        if self.least is not None:
            return f">= {_number(self.least)} {self.unit}"
        return f"<= {_number(self.most)} {self.unit}" if self.most is not None else ""


class Figure(msgspec.Struct, frozen=True):
    """One line of the table. *how*: where the value comes from, or why there is none."""

    key: str
    what: str
    value: float | None
    unit: str
    goal: str
    verdict: Verdict
    how: str = ""

    def __str__(self) -> str:
        return "-" if self.value is None else f"{_number(round_off(self.value))} {self.unit}"


class Row(msgspec.Struct):
    """One part of a run: its figures, and every single measurement beside them."""

    key: str
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    took_s: float = 0.0
    problem: str = ""


class Report(msgspec.Struct, kw_only=True):
    """One run."""

    command: str
    started_at: str
    took_s: float
    plane: str
    objects: int
    machine: Machine
    foreign_cores: float
    """Cores that other work on the machine used meanwhile."""
    versions: dict[str, str]
    rows: list[Row]
    figures: list[Figure]

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"

    def save(self, out: Path) -> Path:
        """Write `report.json` into the folder *out*; its path."""
        path = out / "report.json"
        path.write_bytes(self.encode())
        return path

    def print(self, console: Console | None = None) -> None:
        """The figures beside their goals; a warning if the machine had other work."""
        cores = self.machine.cores
        busy = f"other work used {self.foreign_cores:g} of {cores} cores: the figures are not the machine's"
        shown = Table(
            title=f"{self.objects:,} objects, {self.plane} control plane, {cores} cores",
            caption=busy if self.foreign_cores >= _BUSY_CORES else "",
        )
        for column in ("figure", "measured", "goal"):
            shown.add_column(column, justify="left" if column == "figure" else "right")
        shown.add_column("")
        shown.add_column("how", overflow="fold")
        for figure in self.figures:
            verdict = f"[{_STYLES[figure.verdict]}]{figure.verdict.value}[/]"
            shown.add_row(figure.what, str(figure), figure.goal, verdict, figure.how)
        (console or Console(width=None if Console().is_terminal else _WIDTH)).print(shown)


def round_off(value: float) -> float:
    """*value* to three significant digits, and whole above 100."""
    return float(f"{value:.3g}") if abs(value) < 100 else float(round(value))


def _number(value: float) -> str:
    """Without an exponent, thousands apart from 10,000 on."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:g}"
