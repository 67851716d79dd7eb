"""`ringleader simulate` and `ringleader plot`: their words and flags; the work is in `ringleader.inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ringleader.inspect.complete import complete_ring
from ringleader.options import (
    ConnectionOptions,
    Output,
    with_connection,
)

if TYPE_CHECKING:
    from ringleader.inspect.simulate.simulation_input import InputFlags

Ring = Annotated[
    str | None,
    typer.Argument(
        metavar="RING",
        help="The ring; needed if the cluster has several.",
        autocompletion=complete_ring,
    ),
]
Change = Annotated[
    list[str] | None,
    typer.Option(
        "--change",
        metavar="CHANGE",
        help="+2, -1, +NAME, +NAME=WEIGHT, -NAME or NAME=WEIGHT (0: cordoned); repeatable, or with commas.",
    ),
]
Resource = Annotated[
    str | None,
    typer.Option(
        "--resource",
        metavar="RESOURCE",
        help="Only this main resource of the ring: its objects, and the members that work it.",
    ),
]
OneResource = Annotated[
    str | None,
    typer.Option(
        "--resource",
        metavar="RESOURCE",
        help="Of this main resource; without it of the first one, where different members work them.",
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
        "--objects",
        metavar="N|FILE",
        help="Objects instead of the cluster's: a number, or a file of keys. They are of --resource, or else of the "
        "first main resource.",
    ),
]
VirtualNodes = Annotated[
    int | None,
    typer.Option("--virtual-nodes", metavar="N", help="Instead of the ring's; 1000 without a ring."),
]
ImbalancePercent = Annotated[
    int | None,
    typer.Option("--imbalance-percent", metavar="N", help="Instead of the ring's; 5 without a ring."),
]


@with_connection
def simulate(
    *,
    where: ConnectionOptions,
    ring: Ring = None,
    resource: Resource = None,
    change: Change = None,
    members: Members = None,
    objects: Objects = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="N",
            help="Objects handed over per second, without what they control; for the time.",
        ),
    ] = None,
    virtual_nodes: VirtualNodes = None,
    imbalance_percent: ImbalancePercent = None,
    output: Output = None,
) -> int:
    """What would move if members came or went. From where to where, shares, writes, time; changes nothing.

    Members and objects are the cluster's unless given; with both given and no RING it needs no cluster.
    Each main resource moves on the ring of the members that work it; members that join work all of them.
    -o name prints the keys that would move. Exit codes: 0 done, 1 the cluster did not answer, 2 bad input.
    """
    from ringleader.inspect.simulate.command import run_simulate

    flags = _flags((ring, resource), members, objects, virtual_nodes, imbalance_percent, where)
    return run_simulate(flags, change=change or [], rate=rate, form=output)


def _flags(  # noqa: PLR0917 - the flags in their order
    named: tuple[str | None, str | None],
    members: str | None,
    objects: str | None,
    virtual_nodes: int | None,
    imbalance_percent: int | None,
    where: ConnectionOptions,
) -> InputFlags:
    from ringleader.inspect.simulate.simulation_input import InputFlags

    return InputFlags(
        ring=named[0],
        resource=named[1],
        members=members,
        objects=objects,
        virtual_nodes=virtual_nodes,
        imbalance_percent=imbalance_percent,
        connection=lambda: where,
    )


plot = typer.Typer(
    name="plot",
    help="Draw a ring's shares, or a rebalance over time. PNG, SVG or PDF.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="File of the figure: .png, .svg or .pdf. [default: the figure's and the ring's name, .png]",
    ),
]


@plot.callback()
def _plot() -> None:
    """Draw a ring's shares, or a rebalance over time. PNG, SVG or PDF.

    Exit codes: 0 drawn (its path is printed), 1 the cluster did not answer or matplotlib is missing, 2 bad input.
    """


@plot.command("ring")
@with_connection
def plot_ring(
    *,
    where: ConnectionOptions,
    ring: Ring = None,
    resource: OneResource = None,
    members: Members = None,
    out: Out = None,
    virtual_nodes: VirtualNodes = None,
    imbalance_percent: ImbalancePercent = None,
) -> int:
    """Each member's share of the hash space, beside its even share and its bound."""
    from ringleader.inspect.plot.command import plot_ring as draw

    return draw(_flags((ring, resource), members, None, virtual_nodes, imbalance_percent, where), out=out)


@plot.command("timeline")
def plot_timeline(
    *,
    ring: Annotated[
        str | None, typer.Argument(metavar="RING", help="The ring; needed if the input has several.")
    ] = None,
    file: Annotated[
        str,
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="What `ringleader status -w -o json` wrote; - reads stdin, until its end or Ctrl-C.",
        ),
    ] = "-",
    out: Out = None,
) -> int:
    """A rebalance over time: objects of each member, and those that are not at rest."""
    from ringleader.inspect.plot.command import plot_timeline as draw

    return draw(ring, file=file, out=out)
