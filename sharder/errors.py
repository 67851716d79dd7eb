"""Errors of the sharder, for refusals and losses: one class per decision a caller can take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class SharderError(Exception):
    """Root of everything that `sharder` raises."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that cannot be used as written: its path, its value, the problem, the remedy."""

    field: str
    value: object
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.value!r} {self.problem}; {self.remedy}"


class RingRefused(SharderError):
    """A ControllerRing cannot be worked as it is written; *problems* lists everything that is wrong with it."""

    def __init__(self, ring: str, problems: Sequence[FieldProblem]) -> None:
        self.ring = ring
        self.problems = tuple(problems)
        super().__init__(f"ring {ring!r} is refused: " + "; ".join(str(problem) for problem in self.problems))
