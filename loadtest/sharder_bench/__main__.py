"""`python -m loadtest.sharder_bench`: flags to options, the run, its files, the exit code."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from devcluster.real import BinariesMissing
from kubeio.access.kubeconfig import nearest
from kubeio.errors import InputError
from kubeio.program import runtime
from kubeio.program.command_line import run_command
from loadtest.sharder_bench.goals import Figure, Verdict
from loadtest.sharder_bench.report import Document, draw, table
from loadtest.sharder_bench.rows import NEED_WRK, ROWS, Meter, Options
from loadtest.sharder_bench.run import run
from loadtest.sharder_bench.wrk import find_wrk

WIDTH: Final = 140
"""Of the table where no terminal says how wide it is."""


class PlaneName(StrEnum):
    REAL = "real"
    EMBEDDED = "embedded"


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


def bench_sharder(
    *,
    objects: Annotated[int, typer.Option(min=100, help="Objects on the ring.")] = 100_000,
    only: Annotated[
        str, typer.Option(help=f"Rows to measure, with commas between them: {', '.join(ROWS)}.")
    ] = "",
    plane: Annotated[PlaneName, typer.Option(help="Control plane to measure on.")] = PlaneName.REAL,
    rounds: Annotated[int, typer.Option(min=1, help="Times that sharder and wrk take turns.")] = 2,
    limit_s: Annotated[float, typer.Option(min=1, help="Longest run of wrk, in seconds.")] = 25.0,
    connections: Annotated[int, typer.Option(min=2, help="Connections of wrk.")] = 64,
    samples: Annotated[int, typer.Option(min=10, help="New objects on an idle ring.")] = 200,
    rest_sizes: Annotated[
        str, typer.Option(help="Numbers of objects for the memory at rest, with commas between them.")
    ] = "1000,100000,1000000",
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("build/bench-sharder"),
    output: Annotated[Format, typer.Option("--output", "-o", help="What to print.")] = Format.TABLE,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a goal is missed.")] = False,
) -> None:
    """One sharder beside what the API server can take: rates, waits, memory, CPU.

    Exit codes: 0 measured, 1 a row could not be measured (with --strict: or missed its goal), 2 bad input.
    """
    rows = parse_rows(only)
    if NEED_WRK.intersection(rows):
        find_wrk()
    options = Options(
        objects=objects,
        rows=rows,
        is_real=plane is PlaneName.REAL,
        rounds=rounds,
        limit_s=limit_s,
        connections=connections,
        samples=samples,
        rest_sizes=parse_sizes(rest_sizes),
    )
    runtime.configure_logging(format="auto", level="error")
    raise typer.Exit(runtime.run(_measure(options, out, output, strict=strict)))


def parse_rows(only: str) -> tuple[str, ...]:
    """The rows that *only* names, in the order in which they run. Raises: InputError."""
    asked = [name.strip() for name in only.split(",") if name.strip()]
    for name in asked:
        if name not in ROWS:
            raise InputError("--only", name, "is not a row", f"name others: {nearest(name, ROWS)}")
    return tuple(row for row in ROWS if row in asked or not asked)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Numbers of objects. Raises: InputError."""
    parts = [part.strip().replace("_", "") for part in text.split(",") if part.strip()]
    if len(parts) < 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        remedy = "write at least two numbers above 0, such as 1000,1000000"
        raise InputError("--rest-sizes", text, "are not numbers of objects", remedy)
    return tuple(int(part) for part in parts)


async def _measure(options: Options, out: Path, output: Format, *, strict: bool) -> int:
    console = Console(stderr=True)
    _make_folder(out)
    try:
        with tempfile.TemporaryDirectory(prefix="ringleader-bench-") as name, Meter(console) as meter:
            try:
                document = await run(options, Path(name), meter, lambda known: _save(known, out))
            finally:
                _keep_logs(Path(name), out)
    except BinariesMissing as missing:
        raise InputError("--plane", "real", missing.reason, missing.remedy) from None
    _write(document, out, console)
    if output is Format.JSON:
        sys.stdout.write(document.encode().decode())
    else:
        _print(document)
    return exit_code(document.figures, strict=strict)


def _print(document: Document) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(table(document))


def exit_code(figures: Iterable[Figure], *, strict: bool) -> int:
    """1 if a line of the table could not be measured, or, with *strict*, missed its goal."""
    verdicts = {figure.verdict for figure in figures}
    is_bad = Verdict.NOT_MEASURED in verdicts or (strict and Verdict.MISSED in verdicts)
    return 1 if is_bad else 0


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made ({error.strerror})"
        raise InputError("--out", str(out), problem, "name a folder that can be written to") from None


def _keep_logs(directory: Path, out: Path) -> None:
    """What the processes printed stays, for whoever asks why a row went wrong."""
    for log in (*directory.glob("*.log"), *directory.glob("plane/*.log")):
        shutil.copyfile(log, out / log.name)


def _save(document: Document, out: Path) -> Path:
    path = out / "report.json"
    path.write_bytes(document.encode())
    return path


def _write(document: Document, out: Path, console: Console) -> None:
    written = [_save(document, out)]
    if draw(document, out / "report.png"):
        written.append(out / "report.png")
    console.print(f"written: {', '.join(map(str, written))}", highlight=False)


def main() -> int:
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(bench_sharder)
    return run_command(app, name="python -m loadtest.sharder_bench")


if __name__ == "__main__":
    sys.exit(main())
