"""Words and flags of the commands that change a ring: cordon, uncordon, weight, pause, resume, delete.

Each imports what it needs when it runs; registered by `ringleader.cli`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kubeio.program.durations import parse_duration
from ringleader.inspect.complete import complete_member, complete_ring
from ringleader.options import (
    ConnectionOptions,
    Output,
    with_connection,
)

Members = Annotated[
    list[str],
    typer.Argument(metavar="MEMBER...", help="Members: pods' names.", autocompletion=complete_member),
]
OneMember = Annotated[
    str, typer.Argument(metavar="MEMBER", help="The member: a pod's name.", autocompletion=complete_member)
]
RingName = Annotated[str, typer.Argument(metavar="RING", help="The ring.", autocompletion=complete_ring)]
RingFlag = Annotated[
    str | None,
    typer.Option("--ring", help="The ring; needed if several have the member.", autocompletion=complete_ring),
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Say what would move, and write nothing.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Go on where a person would be asked or stopped.")]
Unknown = Annotated[bool, typer.Option("--allow-unknown", help="Accept a member that is still to come.")]


@with_connection
def cordon(
    *,
    where: ConnectionOptions,
    members: Members,
    ring: RingFlag = None,
    yes: Yes = False,
    allow_unknown: Unknown = False,
    dry_run: Dry = False,
    output: Output = None,
) -> int:
    """Take members off the ring. Their objects are handed over, and they get no new ones."""
    from ringleader.inspect.edit.changes import Order, cordoned, run_member

    return run_member(where, members, cordoned, Order(ring, dry_run, yes, allow_unknown), form=output)


@with_connection
def uncordon(
    *,
    where: ConnectionOptions,
    members: Members,
    ring: RingFlag = None,
    dry_run: Dry = False,
    output: Output = None,
) -> int:
    """Put members back on the ring."""
    from ringleader.inspect.edit.changes import Order, run_member, uncordoned

    return run_member(where, members, uncordoned, Order(ring, dry_run), form=output)


@with_connection
def weight(
    *,
    where: ConnectionOptions,
    member: OneMember,
    amount: Annotated[
        str,
        typer.Argument(metavar="WEIGHT", help="Its share relative to the others: 0.001 to 100; 1 is usual."),
    ],
    ring: RingFlag = None,
    allow_unknown: Unknown = False,
    dry_run: Dry = False,
    output: Output = None,
) -> int:
    """Give a member more or less than the others."""
    from ringleader.inspect.edit.changes import Order, run_member, weighted

    order = Order(ring, dry_run, False, allow_unknown)
    return run_member(where, [member], weighted(amount), order, form=output)


@with_connection
def pause(
    *,
    where: ConnectionOptions,
    ring: RingName,
    dry_run: Dry = False,
    output: Output = None,
) -> int:
    """Let nothing move between live replicas. New and orphaned objects are still assigned."""
    from ringleader.inspect.edit.changes import Order, run_pause

    return run_pause(where, ring, Order(is_dry=dry_run), pause=True, form=output)


@with_connection
def resume(
    *,
    where: ConnectionOptions,
    ring: RingName,
    dry_run: Dry = False,
    output: Output = None,
) -> int:
    """Let objects go to their places again."""
    from ringleader.inspect.edit.changes import Order, run_pause

    return run_pause(where, ring, Order(is_dry=dry_run), pause=False, form=output)


@with_connection
def delete(
    *,
    where: ConnectionOptions,
    ring: RingName,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the ring is gone.")] = True,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Longest wait; for ever if absent.")
    ] = "",
) -> int:
    """Give a ring up, so that its objects have no owner. Every owner lets go, then the ring is gone. Asks first."""
    from ringleader.inspect.edit.delete import run_delete

    return run_delete(
        where,
        ring,
        is_sure=yes,
        waits=wait,
        patience_s=parse_duration("--timeout", timeout) if timeout else None,
    )
