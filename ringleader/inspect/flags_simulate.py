"""`ringleader simulate` and `ringleader plot`: their words and flags; the work is in `ringleader.inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ringleader.options import (
    DEFAULT_TIMEOUT,
    Context,
    Kubeconfig,
    Output,
    RequestTimeout,
    connection,
)

if TYPE_CHECKING:
    from ringleader.inspect.premises import Premises

Ring = Annotated[
    str | None, typer.Argument(metavar="[RING]", help="The ring; needed if the cluster has several.")
]
Change = Annotated[
    list[str] | None,
    typer.Option(
        "--change",
        metavar="CHANGE",
        help="+2, -1, +NAME, +NAME=WEIGHT, -NAME or NAME=WEIGHT (0: cordoned); repeatable, or with commas.",
    ),
]
Members = Annotated[
    str | None,
    typer.Option(
        "--members", metavar="N|NAME,...", help="Members instead of the cluster's: 4, or web-0,web-1=2."
    ),
]
Objects = Annotated[
    str | None,
    typer.Option(
        "--objects", metavar="N|FILE", help="Objects instead of the cluster's: a number, or a file of keys."
    ),
]
VirtualNodes = Annotated[
    int | None,
    typer.Option("--virtual-nodes", metavar="N", help="Instead of the ring's; 1000 without a ring."),
]
Eps = Annotated[
    float | None, typer.Option("--eps", metavar="NUMBER", help="Instead of the ring's; 0.05 without a ring.")
]


def simulate(
    *,
    ring: Ring = None,
    change: Change = None,
    members: Members = None,
    objects: Objects = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N", help="Objects per second that change their owner, for the time."),
    ] = None,
    virtual_nodes: VirtualNodes = None,
    eps: Eps = None,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> int:
    """What would move if members came or went: from where to where, shares, writes, time. Writes nothing.

    Members and objects are the cluster's unless given; with both given and no RING it needs no cluster.
    -o name prints the keys that would move. Exit codes: 0 done, 1 the cluster did not answer, 2 bad input.
    """
    from ringleader.inspect.simulate import run_simulate

    premises = _premises(ring, members, objects, virtual_nodes, eps, (kubeconfig, context, request_timeout))
    return run_simulate(premises, change=change or [], rate=rate, form=output)


def _premises(
    ring: str | None,
    members: str | None,
    objects: str | None,
    virtual_nodes: int | None,
    eps: float | None,
    where: tuple[str | None, str | None, str],
) -> Premises:
    from ringleader.inspect.premises import Premises

    return Premises(
        ring=ring,
        members=members,
        objects=objects,
        virtual_nodes=virtual_nodes,
        eps=eps,
        connection=lambda: connection(*where),
    )
