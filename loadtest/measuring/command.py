"""What the command lines of benchmarks have in common: choices, the folder of the report, the exit code."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

from kubeio.access.kubeconfig import nearest
from kubeio.errors import InputError
from loadtest.measuring.goals import Figure, Verdict


class PlaneName(StrEnum):
    REAL = "real"
    EMBEDDED = "embedded"


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


def choose_rows(only: str, known: Sequence[str]) -> tuple[str, ...]:
    """The rows of *known* that *only* names (all, if it is empty), in their order. Raises: InputError."""
    asked = [name.strip() for name in only.split(",") if name.strip()]
    for name in asked:
        if name not in known:
            raise InputError("--only", name, "is not a row", f"name others: {nearest(name, known)}")
    return tuple(row for row in known if row in asked or not asked)


def exit_code(figures: Iterable[Figure], *, strict: bool) -> int:
    """1 if a line of the table could not be measured, or, with *strict*, missed its goal."""
    verdicts = {figure.verdict for figure in figures}
    is_bad = Verdict.NOT_MEASURED in verdicts or (strict and Verdict.MISSED in verdicts)
    return 1 if is_bad else 0


def make_folder(out: Path) -> None:
    """Raises: InputError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made ({error.strerror})"
        raise InputError("--out", str(out), problem, "name a folder that can be written to") from None


def keep_logs(directory: Path, out: Path) -> None:
    """What the processes printed stays, for whoever asks why a row went wrong."""
    for log in (*directory.glob("*.log"), *directory.glob("plane/*.log")):
        shutil.copyfile(log, out / log.name)
