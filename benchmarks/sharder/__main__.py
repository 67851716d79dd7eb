"""`python -m benchmarks.sharder`: flags to options, the run, its files, the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measuring.command import Benchmark, Format, PlaneName, choose_rows, run_benchmark
from benchmarks.measuring.wrk import find_wrk
from benchmarks.sharder.report import Document, draw
from benchmarks.sharder.rows import NEED_WRK, ROWS, Options
from benchmarks.sharder.run import run
from kubeio.errors import InputError


def bench_sharder(
    *,
    objects: Annotated[int, typer.Option(min=100, help="Objects on the ring.")] = 100_000,
    only: Annotated[
        str, typer.Option(help=f"Rows to measure, with commas between them: {', '.join(ROWS)}.")
    ] = "",
    plane: Annotated[PlaneName, typer.Option(help="Control plane to measure on.")] = PlaneName.REAL,
    rounds: Annotated[int, typer.Option(min=1, help="Times that sharder and wrk take turns.")] = 2,
    guard_rounds: Annotated[
        int, typer.Option(min=1, help="Times that the sharder works without and under the guard.")
    ] = 8,
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
        guard_rounds=guard_rounds,
        limit_s=limit_s,
        connections=connections,
        samples=samples,
        rest_sizes=parse_sizes(rest_sizes),
    )
    Benchmark[Document](
        run=lambda folder, meter, save: run(options, folder, meter, save),
        draw=draw,
        out=out,
        output=output,
        strict=strict,
    ).exit()


def parse_sizes(text: str) -> tuple[int, ...]:
    """Numbers of objects. Raises: InputError."""
    parts = [part.strip().replace("_", "") for part in text.split(",") if part.strip()]
    if len(parts) < 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        remedy = "write at least two numbers above 0, such as 1000,1000000"
        raise InputError("--rest-sizes", text, "are not numbers of objects", remedy)
    return tuple(int(part) for part in parts)


if __name__ == "__main__":
    sys.exit(run_benchmark(bench_sharder, module="benchmarks.sharder"))
