"""The service level objective and the verdict on what was measured. Pure.

A line that could not be measured fails the run, unless the target says that it does not exist there: a run that
measured nothing is never green.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from kubeio.errors import InputError
from kubeio.program.yaml_file import read_document
from loadtest.inputs.fields import check_names, number, seconds, share

DEFAULT: Final = Path(__file__).with_name("slo.yaml")
Unit = Literal["s", "%", ""]
UNITS: Final[Mapping[str, Unit]] = {
    "queueWait": "s",
    "reconcile": "s",
    "assigned": "s",
    "ready": "s",
    "changed": "s",
    "failures": "%",
    "overlaps": "",
    "foreignWrites": "",
    "unowned": "",
    "unready": "",
    "achieved": "%",
}
"""Every line, and the unit of its limit."""
TITLES: Final[Mapping[str, str]] = {
    "queueWait": "wait in the work queue, p99",
    "reconcile": "one reconcile, p99",
    "assigned": "created to assigned, p99",
    "ready": "created to ready, p99",
    "changed": "changed to ready, p99",
    "failures": "failed requests of the load",
    "overlaps": "overlapping reconciles",
    "foreignWrites": "foreign writes accepted",
    "unowned": "objects without a live owner at the end",
    "unready": "objects not ready at the end",
    "achieved": "operations, of those asked for",
}
_ACHIEVED: Final = 0.9
"""A load generator that reaches less than this has not put the question."""
_LOWER_BOUND: Final = "achieved"
_OF_THE_LOAD: Final = ("failures", "achieved")
_FAR: Final = 3.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured for one line: *value* from *count* observations, or why it could not be measured.

    *is_excused*: it does not exist on this target (no check there, no such status field), so it is no failure.
    """

    value: float | None
    count: int = 0
    reason: str = ""
    is_excused: bool = False


class Line(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the verdict."""

    name: str
    title: str
    limit: float
    value: float | None
    count: int
    unit: str
    passed: bool | None
    """None: not measured on this target."""
    note: str = ""

    def __str__(self) -> str:
        sign = ">=" if self.name == _LOWER_BOUND else "<="
        shown = f"{self.title}: {shown_as(self.value, self.unit)} (limit: {sign} {shown_as(self.limit, self.unit)})"
        return f"{shown}; {self.note}" if self.note else shown


def read_slo(path: Path | None) -> dict[str, float]:
    """The limits in the file at *path*, the default ones without. Raises InputError.

    Seconds, parts of one, or counts. A file holds the lines that count; `achieved` is always judged.
    """
    document = read_document("--slo", path or DEFAULT)
    where = str(path or DEFAULT)
    check_names(where, document, UNITS)
    if not document:
        raise InputError("--slo", where, "has no line", "write one, such as ready: 5s")
    limits = {name: _limit(f"{where}: {name}", UNITS[name], value) for name, value in document.items()}
    return {"achieved": _ACHIEVED, **limits}


def judge(limits: Mapping[str, float], measured: Mapping[str, Measured]) -> list[Line]:
    """One line per limit, in the order of UNITS."""
    return [
        _line(name, limits[name], measured.get(name, Measured(None, reason="was not measured")))
        for name in UNITS
        if name in limits
    ]


def has_passed(lines: list[Line]) -> bool:
    """Whether no line failed and at least one was measured."""
    return all(line.passed is not False for line in lines) and any(line.passed for line in lines)


def has_failed_clearly(lines: list[Line]) -> bool:
    """Whether a line failed by so much that chance was not the reason.

    A load that did not get through says nothing of the fleet: the API server was away, as after many writes.
    """
    failed = [line for line in lines if line.passed is False]
    if any(line.name in _OF_THE_LOAD for line in failed):
        return False
    return any(line.value is not None and line.value > _FAR * line.limit for line in failed)


def shown_as(value: float | None, unit: str) -> str:
    """*value* for people."""
    if value is None:
        return "not measured"
    match unit:
        case "s":
            return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
        case "%":
            return f"{value * 100:.3g} %"
        case _:
            return f"{value:,.0f}"


def _line(name: str, limit: float, found: Measured) -> Line:
    passed: bool | None
    if found.value is None:
        passed = None if found.is_excused else False
    else:
        passed = found.value >= limit if name == _LOWER_BOUND else found.value <= limit
    return Line(name, TITLES[name], limit, found.value, found.count, UNITS[name], passed, found.reason)


def _limit(where: str, unit: Unit, value: object) -> float:
    if unit == "s":
        return seconds(where, value)
    if unit == "%":
        part = share(value)
        if part is None:
            raise InputError(where, value, "is not a percentage", "write it as 0.1%")
        return part
    return number(where, value)
