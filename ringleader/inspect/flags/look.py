"""Words and flags of the commands that look: status, describe, list, top.

Each imports what it needs when it runs; registered by `ringleader.cli`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kubeio.errors import InputError
from kubeio.program.durations import parse_duration
from ringleader.inspect.complete import complete_kind, complete_object, complete_ring
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
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Follow changes, until Ctrl-C.")] = False,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="With -w: time between two looks, at least.")
    ] = "2s",
    count: Annotated[
        bool, typer.Option("--count", help="List the objects, instead of what the sharder reports.")
    ] = False,
    handoffs: Annotated[
        bool, typer.Option("--handoffs", help="List the handoffs in flight, the oldest first.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="With --handoffs: show at most so many.")
    ] = 50,
    output: Output = None,
) -> int:
    """Show rings and members. State, objects beside the ideal, handoffs in flight, time left."""
    from ringleader.inspect.status.command import run_handoffs, run_status
    from ringleader.inspect.status.watch import run_watch

    given = {"--handoffs": handoffs, "-w": watch, "--count": count}
    first, *others = [flag for flag, is_given in given.items() if is_given] or [""]
    if others:
        raise InputError(others[0], True, f"does not go with {first}", "leave one of them out")
    interval_s = parse_duration("--interval", interval)
    if handoffs:
        return run_handoffs(where, ring=ring, limit=limit, form=output)
    if watch:
        return run_watch(where, ring=ring, form=output, interval_s=interval_s)
    return run_status(where, ring=ring, form=output, is_counting=count)


@with_connection
def describe(
    *,
    where: ConnectionOptions,
    target: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help="The object: website/blog. A ring: ring/NAME.",
            autocompletion=complete_object,
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Its name, if KIND is written alone: ring NAME.")
    ] = None,
    namespace: Namespace = None,
    ring: RingFlag = None,
    endpoint: Endpoint = None,
    pod_proxy: PodProxy = False,
    port: PodPort = 8081,
    output: Output = None,
) -> int:
    """Explain an object or a ring. The cause first, then owner, key, handoffs and Events. Exit code 5: something is
    off.
    """
    from ringleader.describe.command import run_describe
    from ringleader.describe.object import EndpointOptions

    return run_describe(
        where,
        target,
        name,
        namespace=namespace,
        ring=ring,
        endpoint=EndpointOptions(endpoint, port if pod_proxy else None),
        form=output,
    )


class RowForm(StrEnum):
    """Values of `list -o`: those of every command, and csv."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    WIDE = "wide"
    CSV = "csv"


@with_connection
def list_(
    *,
    where: ConnectionOptions,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="Objects of one kind; - reads KIND/NAME lines from standard input.",
            autocompletion=complete_kind,
        ),
    ] = None,
    with_dependents: Annotated[
        bool, typer.Option("--with-dependents", help="Also the objects that these control.")
    ] = False,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    ring: RingFlag = None,
    output: Annotated[
        RowForm | None,
        typer.Option("-o", "--output", help="Form of the output; a table if absent.", show_choices=True),
    ] = None,
) -> int:
    """List distributed objects, a line for each. With owner, desired owner, key, hash and token."""
    from ringleader.list.command import run_list

    return run_list(
        where,
        kind,
        namespace=namespace,
        all_namespaces=all_namespaces,
        ring=ring,
        with_dependents=with_dependents,
        form=output.value if output else "",
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
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=1,
            max=65535,
            help="Probes port of the pods. Default: 8081, or 8091 for a proxy of an unmodified controller.",
        ),
    ] = None,
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
