"""`python -m loadtest.runtime_bench`: flags to options, the run, its files, the exit code."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from devcluster.real import BinariesMissing
from devcluster.real.build_progress import ConsoleProgress
from kubeio.errors import InputError
from kubeio.program import runtime
from kubeio.program.command_line import run_command
from loadtest.measuring.command import Format, PlaneName, choose_rows, exit_code, keep_logs, make_folder
from loadtest.measuring.meter import Meter
from loadtest.measuring.table import print_tables
from loadtest.measuring.wrk import find_wrk
from loadtest.runtime_bench.contestants import Contestant, controller_runtime
from loadtest.runtime_bench.report import Document, draw, tables
from loadtest.runtime_bench.rows import NEED_PEERS, NEED_WRK, ROWS, Options
from loadtest.runtime_bench.run import MODULE, run


def bench_runtime(
    *,
    objects: Annotated[int, typer.Option(min=100, help="Objects that every contestant loads.")] = 100_000,
    only: Annotated[
        str, typer.Option(help=f"Rows to measure, with commas between them: {', '.join(ROWS)}.")
    ] = "",
    plane: Annotated[PlaneName, typer.Option(help="Control plane to measure on.")] = PlaneName.REAL,
    rounds: Annotated[int, typer.Option(min=1, help="Times that the contestants of a row take turns.")] = 2,
    reconciles: Annotated[int, typer.Option(min=1, help="Reconciles counted for a rate.")] = 500_000,
    samples: Annotated[int, typer.Option(min=10, help="Events of the stub server.")] = 1_000,
    limit_s: Annotated[float, typer.Option(min=1, help="Longest run of wrk, in seconds.")] = 25.0,
    connections: Annotated[int, typer.Option(min=2, help="Connections of wrk, and workers beside it.")] = 64,
    minutes: Annotated[
        float, typer.Option(min=0.05, help="How long the Lease is watched under full load.")
    ] = 10.0,
    lease_s: Annotated[int, typer.Option(min=1, max=60, help="Duration of that Lease, in seconds.")] = 15,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("build/bench-runtime"),
    output: Annotated[Format, typer.Option("--output", "-o", help="What to print.")] = Format.TABLE,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a goal is missed.")] = False,
) -> None:
    """The runtime for replicas beside kopf, the kubernetes package and controller-runtime.

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
        reconciles=reconciles,
        samples=samples,
        limit_s=limit_s,
        connections=connections,
        minutes=minutes,
        lease_s=lease_s,
    )
    runtime.configure_logging(format="auto", level="error")
    raise typer.Exit(runtime.run(_measure(options, out, output, strict=strict)))


async def _measure(options: Options, out: Path, output: Format, *, strict: bool) -> int:
    console = Console(stderr=True)
    make_folder(out)
    go: list[Contestant] = []
    if NEED_PEERS.intersection(options.rows):
        go = await asyncio.to_thread(controller_runtime, ConsoleProgress(console))
    try:
        with tempfile.TemporaryDirectory(prefix="ringleader-bench-") as name, Meter(console) as meter:
            try:
                document = await run(options, Path(name), meter, go, lambda known: _save(known, out))
            finally:
                keep_logs(Path(name), out)
    except BinariesMissing as missing:
        raise InputError("--plane", "real", missing.reason, missing.remedy) from None
    written = [_save(document, out)]
    if draw(document, out / "report.png"):
        written.append(out / "report.png")
    console.print(f"written: {', '.join(map(str, written))}", highlight=False)
    if output is Format.JSON:
        sys.stdout.write(document.encode().decode())
    else:
        print_tables(*tables(document))
    return exit_code(document.figures, strict=strict)


def _save(document: Document, out: Path) -> Path:
    path = out / "report.json"
    path.write_bytes(document.encode())
    return path


def main() -> int:
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(bench_runtime)
    return run_command(app, name=f"python -m {MODULE}")


if __name__ == "__main__":
    sys.exit(main())
