"""`ringleader migrate kopf`: its words and flags; the work is in `ringleader.migrate.kopf`."""

from __future__ import annotations

from typing import Annotated

import typer

from ringleader.options import (
    ConnectionOptions,
    Namespace,
    with_connection,
)

app = typer.Typer(
    name="migrate",
    help="Take objects over that another framework has marked.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def migrate() -> None:
    """Take objects over that another framework has marked."""


@app.command()
@with_connection
def kopf(
    *,
    where: ConnectionOptions,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Kind or resource, such as websites.")],
    namespace: Namespace = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be changed; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    finalizer: Annotated[
        list[str] | None,
        typer.Option(
            "--finalizer", metavar="NAME", help="Finalizer of ours in the place of kopf's; repeatable."
        ),
    ] = None,
    kopf_finalizer: Annotated[
        list[str] | None,
        typer.Option(
            "--kopf-finalizer",
            metavar="NAME",
            help="A finalizer that kopf's settings.persistence names; repeatable.",
        ),
    ] = None,
    kopf_prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--kopf-prefix",
            metavar="DOMAIN",
            help="A prefix of annotations that kopf's storages use; repeatable.",
        ),
    ] = None,
) -> int:
    """Take kopf's finalizer and annotations off existing objects; stop the kopf operator first.

    Without -n: every namespace. Exit codes: 0 nothing is left, 1 some objects still carry kopf's marks, 2 bad input.
    """
    from ringleader.migrate.kopf import Order, run_kopf

    order = Order(
        kind=kind,
        namespace=namespace or "",
        ours=tuple(finalizer or ()),
        kopf_finalizers=tuple(kopf_finalizer or ()),
        kopf_prefixes=tuple(kopf_prefix or ()),
    )
    return run_kopf(where, order, is_dry=dry_run, is_sure=yes)
