"""Words and flags of `ringleader dashboard` and `ringleader report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ringleader.options import ConnectionOptions, with_connection


@with_connection
def dashboard(
    *,
    where: ConnectionOptions,
    ring: Annotated[str | None, typer.Argument(help="One ring; all of them if absent.")] = None,
    bind: Annotated[
        str, typer.Option("--bind", metavar="HOST:PORT", help="Where to serve it; port 0 picks a free one.")
    ] = "127.0.0.1:0",
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> int:
    """Serve the live page of the rings to your browser. Members, moves, any object; reads only, ends with Ctrl-C."""
    from ringleader.inspect.page.command import run_page

    return run_page(where, ring=ring, bind=bind, is_opened=open_)


@with_connection
def report(
    *,
    where: ConnectionOptions,
    ring: Annotated[str | None, typer.Argument(help="One ring; all of them if absent.")] = None,
    file: Annotated[
        Path, typer.Option("-f", "--file", metavar="FILE", help="Where to write it; - for stdout.")
    ] = Path("ringleader-report.html"),
) -> int:
    """Write one HTML file to attach to a ticket. With status, plots, doctor and versions; reads only."""
    from ringleader.inspect.report.command import run_report

    return run_report(where, ring=ring, file=file)


def register(app: typer.Typer) -> None:
    """Make them commands of *app*."""
    app.command()(dashboard)
    app.command()(report)
