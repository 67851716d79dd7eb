"""`python -m loadtest.sharder_bench`: flags to options, the run, its files, the exit code."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from devcluster.real import BinariesMissing
from kubeio.errors import InputError
from kubeio.program import runtime
from kubeio.program.command_line import run_command
from loadtest.measuring.command import Format, PlaneName, choose_rows, exit_code, keep_logs, make_folder
from loadtest.measuring.meter import Meter
from loadtest.measuring.table import print_tables
from loadtest.measuring.wrk import find_wrk
from loadtest.sharder_bench.report import Document, draw, table
from loadtest.sharder_bench.rows import NEED_WRK, ROWS, Options
from loadtest.sharder_bench.run import run


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
    rows = choose_rows(only, ROWS)
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


def parse_sizes(text: str) -> tuple[int, ...]:
    """Numbers of objects. Raises: InputError."""
    parts = [part.strip().replace("_", "") for part in text.split(",") if part.strip()]
    if len(parts) < 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        remedy = "write at least two numbers above 0, such as 1000,1000000"
        raise InputError("--rest-sizes", text, "are not numbers of objects", remedy)
    return tuple(int(part) for part in parts)


async def _measure(options: Options, out: Path, output: Format, *, strict: bool) -> int:
    console = Console(stderr=True)
    make_folder(out)
    try:
        with tempfile.TemporaryDirectory(prefix="ringleader-bench-") as name, Meter(console) as meter:
            try:
                document = await run(options, Path(name), meter, lambda known: _save(known, out))
            finally:
                keep_logs(Path(name), out)
    except BinariesMissing as missing:
        raise InputError("--plane", "real", missing.reason, missing.remedy) from None
    _write(document, out, console)
    if output is Format.JSON:
        sys.stdout.write(document.encode().decode())
    else:
        print_tables(table(document))
    return exit_code(document.figures, strict=strict)


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
