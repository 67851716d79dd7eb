"""`python -m benchmarks.runtime`: flags to options, the run, its files, the exit code."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.measuring.command import Benchmark, Format, PlaneName, choose_rows, run_benchmark
from benchmarks.measuring.document import Document
from benchmarks.measuring.wrk import find_wrk
from benchmarks.runtime.contestants import Contestant, controller_runtime
from benchmarks.runtime.report import draw, tables
from benchmarks.runtime.rows import NEED_PEERS, NEED_WRK, ROWS, Options
from benchmarks.runtime.run import MODULE, run
from devcluster.real.build_progress import ConsoleProgress
from kubeio.program import runtime


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
    console = Console(stderr=True)

    async def measured() -> int:
        go: list[Contestant] = []
        if NEED_PEERS.intersection(rows):
            go = await asyncio.to_thread(controller_runtime, ConsoleProgress(console))
        benchmark = Benchmark[Document](
            run=lambda folder, meter, save: run(options, folder, meter, go, save),
            tables=tables,
            draw=draw,
            out=out,
            output=output,
            strict=strict,
        )
        return await benchmark.measure(console)

    raise typer.Exit(runtime.run(measured()))


if __name__ == "__main__":
    sys.exit(run_benchmark(bench_runtime, module=MODULE))
