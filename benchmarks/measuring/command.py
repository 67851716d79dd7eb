"""What the command lines of benchmarks have in common: choices, the folder of the report, the exit code."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.measuring.document import Document
from benchmarks.measuring.goals import Figure, Verdict
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.table import print_tables
from devcluster.real import BinariesMissing
from kubeio.errors import InputError
from kubeio.program import runtime
from kubeio.program.command_line import run_command
from kubeio.suggestions import nearest

D = TypeVar("D", bound=Document)


class PlaneName(StrEnum):
    REAL = "real"
    EMBEDDED = "embedded"


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


Save = Callable[[D], object]
"""Keeps what is known so far."""


@dataclass(frozen=True, kw_only=True)
class Benchmark(Generic[D]):
    """A benchmark from its flags to its files: what it runs, and what it shows of that."""

    run: Callable[[Path, Meter, Save[D]], Awaitable[D]]
    out: Path
    output: Format
    strict: bool
    tables: Callable[[D], Sequence[Table]] = lambda document: [document.table()]
    draw: Callable[[D, Path], bool] = lambda document, path: False

    def exit(self) -> NoReturn:
        """Measure; log errors only. Raises: InputError, and typer.Exit with the exit code."""
        runtime.configure_logging(format="auto", level="error")
        raise typer.Exit(runtime.run(self.measure(Console(stderr=True))))

    async def measure(self, console: Console) -> int:
        """The exit code. Raises: InputError."""
        out = self.out
        make_folder(out)
        try:
            with tempfile.TemporaryDirectory(prefix="ringleader-bench-") as name, Meter(console) as meter:
                try:
                    document = await self.run(Path(name), meter, lambda known: known.save(out))
                finally:
                    keep_logs(Path(name), out)
        except BinariesMissing as missing:
            raise InputError("--plane", "real", missing.reason, missing.remedy) from None
        written = [document.save(out)]
        if self.draw(document, out / "report.png"):
            written.append(out / "report.png")
        console.print(f"written: {', '.join(map(str, written))}", highlight=False)
        if self.output is Format.JSON:
            sys.stdout.write(document.encode().decode())
        else:
            print_tables(*self.tables(document))
        return exit_code(document.figures, strict=self.strict)


def run_benchmark(command: Callable[..., None], *, module: str) -> int:
    """*command* as `python -m module`; the exit code."""
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(command)
    return run_command(app, name=f"python -m {module}")


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
