"""Words and flags of the commands that look: status, where, explain, drains, events, top.

Each imports what it needs when it runs; registered by `ringleader.cli`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import typer

from kubeio.program.durations import parse_duration
from ringleader.inspect.complete import complete_object, complete_ring
from ringleader.options import (
    AllNamespaces,
    ConnectionOptions,
    Namespace,
    Output,
    with_connection,
)

RingFlag = Annotated[
    str | None,
    typer.Option("--ring", help="The ring; needed if several hold the kind.", autocompletion=complete_ring),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="The owner's probes port, forwarded: http://127.0.0.1:8081.",
    ),
]
PodProxy = Annotated[
    bool, typer.Option("--pod-proxy", help="Reach pods through the API server (get on pods/proxy).")
]
PodPort = Annotated[
    int, typer.Option("--port", min=1, max=65535, help="Probes port of the pods, for --pod-proxy.")
]


@with_connection
def status(
    *,
    where: ConnectionOptions,
    ring: Annotated[
        str | None, typer.Argument(help="One ring; all of them if absent.", autocompletion=complete_ring)
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="With -w: time between two looks, at least.")
    ] = "2s",
    count: Annotated[
        bool, typer.Option("--count", help="List the objects, instead of what the replicas report.")
    ] = False,
    output: Output = None,
) -> int:
    """Rings and members: life, state, share, what is in flight. With objects beside the ideal, and the time left."""
    from ringleader.inspect.status.command import run_status

    return run_status(
        where,
        ring=ring,
        form=output,
        is_watching=watch,
        is_counting=count,
        interval_s=parse_duration("--interval", interval),
    )


@with_connection
def explain(
    *,
    where: ConnectionOptions,
    target: Annotated[
        str,
        typer.Argument(metavar="KIND/NAME", help="The object: website/blog.", autocompletion=complete_object),
    ],
    namespace: Namespace = None,
    ring: RingFlag = None,
    endpoint: Endpoint = None,
    pod_proxy: PodProxy = False,
    port: PodPort = 8081,
    output: Output = None,
) -> int:
    """What is the matter with an object. The cause first, then the whole story. Exit code 5: something is off."""
    from ringleader.inspect.explain.facts import Way
    from ringleader.inspect.explain.story import run_explain

    return run_explain(
        where,
        target,
        namespace=namespace,
        ring=ring,
        way=Way(endpoint, port if pod_proxy else None),
        form=output,
    )


class RowForm(StrEnum):
    """Values of `where -o`: those of every command, and csv for many objects."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    WIDE = "wide"
    CSV = "csv"


@with_connection
def where(
    *,
    where: ConnectionOptions,
    target: Annotated[
        str | None,
        typer.Argument(metavar="KIND/NAME", help="The object: website/blog.", autocompletion=complete_object),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "-f", "--filename", metavar="FILE", help="Objects of a file: lines, or manifests; - reads stdin."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every object that rings distribute.")] = False,
    controlled: Annotated[
        bool, typer.Option("--controlled", help="With --all: what these objects control as well.")
    ] = False,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    ring: RingFlag = None,
    output: Annotated[
        RowForm | None,
        typer.Option("-o", "--output", help="Form of the output; a table if absent.", show_choices=True),
    ] = None,
) -> int:
    """Who owns an object now, who should, and why. With key, hash and token. --all and -f: a line for each object."""
    from ringleader.inspect.where.command import Asked, run_where_command

    return run_where_command(
        where,
        Asked(target, file, everything, controlled, namespace, all_namespaces, ring),
        form=output.value if output else "",
    )


MostShown = Annotated[int, typer.Option("--most", min=1, metavar="N", help="Show at most so many.")]


@with_connection
def drains(
    *,
    where: ConnectionOptions,
    ring: Annotated[
        str | None, typer.Argument(help="One ring; all of them if absent.", autocompletion=complete_ring)
    ] = None,
    most: MostShown = 50,
    output: Output = None,
) -> int:
    """Handoffs in flight: from whom to whom, since when. And who is late."""
    from ringleader.inspect.drains import run_drains

    return run_drains(where, ring=ring, most=most, form=output)


@with_connection
def events(
    *,
    where: ConnectionOptions,
    ring: Annotated[
        str | None, typer.Argument(help="Only of this ring itself.", autocompletion=complete_ring)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="KIND/NAME", help="Only of this object.", autocompletion=complete_object
        ),
    ] = None,
    types: Annotated[
        Literal["Normal", "Warning"] | None, typer.Option("--types", help="Only of this type.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    most: MostShown = 50,
    namespace: Namespace = None,
    output: Output = None,
) -> int:
    """What sharders and replicas told as Events, the newest last. In every namespace, unless -n names one."""
    from ringleader.inspect.events import Choice, run_events

    return run_events(
        where,
        Choice(ring, target, namespace, types, most),
        is_watching=watch,
        form=output,
    )


@with_connection
def top(
    *,
    where: ConnectionOptions,
    ring: Annotated[
        str | None, typer.Argument(help="One ring; all of them if absent.", autocompletion=complete_ring)
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="A replica's probes port, instead of the pods; may be repeated.",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Probes port of the pods.")] = 8081,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="Between the two scrapes of each replica.")
    ] = "2s",
    output: Output = None,
) -> int:
    """What each replica does now, from its metrics. Reconciles a second, errors, queue, memory."""
    from ringleader.inspect.top import Asked, run_top

    return run_top(
        where,
        Asked(ring, tuple(endpoint or ()), port, parse_duration("--interval", interval)),
        form=output,
    )
