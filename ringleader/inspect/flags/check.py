"""Words and flags of `ringleader check`; the work is `ringleader.check`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from kubeio.program.durations import parse_duration
from ringleader.inspect.complete import complete_ring
from ringleader.options import (
    ConnectionOptions,
    Output,
    with_connection,
)


@with_connection
def check(
    *,
    where: ConnectionOptions,
    ring: Annotated[
        str | None, typer.Argument(help="One ring; all of them if absent.", autocompletion=complete_ring)
    ] = None,
    sharder_account: Annotated[
        list[str] | None,
        typer.Option(
            "--sharder-account",
            metavar="NAMESPACE/NAME",
            help="The sharders' ServiceAccount (or a user, or self). Default: what the chart installed. Repeatable.",
        ),
    ] = None,
    shard_account: Annotated[
        list[str] | None,
        typer.Option(
            "--shard-account",
            metavar="NAMESPACE/NAME",
            help="The replicas' ServiceAccount (or a user, or self). Default: what the chart installed. Repeatable.",
        ),
    ] = None,
    manager: Annotated[
        list[str] | None,
        typer.Option(
            "--manager", metavar="NAME", help="A field manager that may write anywhere. Repeatable."
        ),
    ] = None,
    recheck_after: Annotated[
        str,
        typer.Option(
            "--recheck-after",
            metavar="TIME",
            help="How long after the first look the second one begins: 6s, 20s.",
        ),
    ] = "6s",
    output: Output = None,
) -> int:
    """Check rings, objects, rights, installation. Exit code 0: nothing is wrong, 1: something, 2: bad input."""
    from ringleader.check.command import Wanted, run_check
    from ringleader.check.environment import read_account
    from ringleader.check.rights import SHARD, SHARDER

    wanted = Wanted(
        ring=ring,
        accounts={
            SHARDER: [read_account("--sharder-account", text) for text in sharder_account or ()],
            SHARD: [read_account("--shard-account", text) for text in shard_account or ()],
        },
        managers=frozenset(manager or ()),
        again_s=parse_duration("--recheck-after", recheck_after),
        timeout_s=where.timeout_s,
    )
    return run_check(where, wanted, form=output)
