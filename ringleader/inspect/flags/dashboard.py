"""Flags of `ringleader dashboard` and `ringleader bundle`."""

from __future__ import annotations

from typing import Annotated

import typer

from ringleader.inspect.complete import complete_ring
from ringleader.options import ConnectionOptions, with_connection


@with_connection
def dashboard(
    *,
    where: ConnectionOptions,
    ring: Annotated[
        str | None,
        typer.Argument(help="The ring to begin with; the first one if absent.", autocompletion=complete_ring),
    ] = None,
    bind: Annotated[
        str, typer.Option("--bind", metavar="HOST:PORT", help="Where to serve it; port 0 picks a free one.")
    ] = "127.0.0.1:0",
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="Probes port of a sharder, such as http://127.0.0.1:8081. "
            "[default: the sharder that leads, by kubectl port-forward]",
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> int:
    """Serve members and moves of the rings to your browser. Reads only, ends with Ctrl-C."""
    from ringleader.dashboard.command import run_dashboard

    return run_dashboard(where, ring=ring, bind=bind, endpoint=endpoint, is_opened=open_)


@with_connection
def bundle(
    *,
    where: ConnectionOptions,
    ring: Annotated[
        str | None, typer.Argument(help="One ring; all of them if absent.", autocompletion=complete_ring)
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write it; - for stdout. [default: ringleader-bundle-RING-TIME.tar.gz]",
        ),
    ] = None,
) -> int:
    """Write one tar.gz to attach to an issue. With status, check, Leases, Events and versions; no secrets.

    Exit codes: 0 written (its path is printed; errors.txt in it names what could not be read), 1 the server did not
    answer, 2 bad input.
    """
    from ringleader.inspect.bundle.command import run_bundle

    return run_bundle(where, ring=ring, out=out)


def register(app: typer.Typer) -> None:
    """Make them commands of *app*."""
    app.command()(dashboard)
    app.command()(bundle)
