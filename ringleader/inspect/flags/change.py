"""Words and flags of the commands that change a ring: cordon, uncordon, weight, pause, resume, release.

Each imports what it needs when it runs; registered by `ringleader.cli`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ringleader.inspect.complete import complete_member, complete_ring
from ringleader.options import (
    DEFAULT_TIMEOUT,
    Context,
    Kubeconfig,
    Output,
    RequestTimeout,
    connection,
    duration_s,
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
Yes = Annotated[bool, typer.Option("--yes", help="Go on where a person would be asked or stopped.")]
Absent = Annotated[bool, typer.Option("--absent", help="The member is still to come.")]


def cordon(
    *,
    members: Members,
    ring: RingFlag = None,
    yes: Yes = False,
    absent: Absent = False,
    dry_run: Dry = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> int:
    """Take members off the ring. Their objects are handed over, and they get no new ones."""
    from ringleader.inspect.edit.changes import Order, cordoned, run_member

    where = connection(kubeconfig, context, request_timeout)
    return run_member(where, members, cordoned, Order(ring, dry_run, yes, absent), form=output)


def uncordon(
    *,
    members: Members,
    ring: RingFlag = None,
    dry_run: Dry = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> int:
    """Put members back on the ring."""
    from ringleader.inspect.edit.changes import Order, run_member, uncordoned

    where = connection(kubeconfig, context, request_timeout)
    return run_member(where, members, uncordoned, Order(ring, dry_run), form=output)


def weight(
    *,
    member: OneMember,
    amount: Annotated[
        str,
        typer.Argument(metavar="WEIGHT", help="Its share relative to the others: 0.001 to 100; 1 is usual."),
    ],
    ring: RingFlag = None,
    absent: Absent = False,
    dry_run: Dry = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> int:
    """Give a member more or less than the others."""
    from ringleader.inspect.edit.changes import Order, run_member, weighted

    where, order = connection(kubeconfig, context, request_timeout), Order(ring, dry_run, False, absent)
    return run_member(where, [member], weighted(amount), order, form=output)


def pause(
    *,
    ring: RingName,
    dry_run: Dry = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> int:
    """Let nothing move between live replicas. New and orphaned objects are still assigned."""
    from ringleader.inspect.edit.changes import Order, run_pause

    where = connection(kubeconfig, context, request_timeout)
    return run_pause(where, ring, Order(is_dry=dry_run), pause=True, form=output)


def resume(
    *,
    ring: RingName,
    dry_run: Dry = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> int:
    """Let objects go to their places again."""
    from ringleader.inspect.edit.changes import Order, run_pause

    where = connection(kubeconfig, context, request_timeout)
    return run_pause(where, ring, Order(is_dry=dry_run), pause=False, form=output)


def release(
    *,
    ring: RingName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the ring is gone.")] = True,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Longest wait; for ever if absent.")
    ] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> int:
    """Give a ring up, so that nobody owns its objects. Every owner lets go, then the ring is gone. Asks first."""
    from ringleader.inspect.edit.release import run_release

    return run_release(
        connection(kubeconfig, context, request_timeout),
        ring,
        is_sure=yes,
        waits=wait,
        patience_s=duration_s("--timeout", timeout) if timeout else None,
    )
