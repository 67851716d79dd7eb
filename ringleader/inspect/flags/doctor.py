"""Words and flags of `ringleader doctor`; the work is `ringleader.doctor`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from kubeio.program.durations import parse_duration
from ringleader.options import (
    ConnectionOptions,
    Output,
    with_connection,
)


@with_connection
def doctor(
    *,
    where: ConnectionOptions,
    ring: Annotated[str | None, typer.Argument(help="One ring; all of them if absent.")] = None,
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
    look_again: Annotated[
        str,
        typer.Option(
            "--look-again",
            metavar="TIME",
            help="How long after the first look the second one begins: 6s, 20s.",
        ),
    ] = "6s",
    output: Output = None,
) -> int:
    """What is wrong with rings, objects, rights, installation. Exit code 0: nothing, 1: something, 2: bad input."""
    from ringleader.doctor.command import Wanted, run_doctor
    from ringleader.doctor.rights import SHARD, SHARDER
    from ringleader.doctor.surroundings import read_account

    wanted = Wanted(
        ring=ring,
        accounts={
            SHARDER: [read_account("--sharder-account", text) for text in sharder_account or ()],
            SHARD: [read_account("--shard-account", text) for text in shard_account or ()],
        },
        managers=frozenset(manager or ()),
        again_s=parse_duration("--look-again", look_again),
        timeout_s=where.timeout_s,
    )
    return run_doctor(where, wanted, form=output)
