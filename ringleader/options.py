"""kubectl's flags, once: every command that talks to an API server takes them with the same words.

Owns the flags and the reading of their values; `connected` turns them into a client.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kubeio.errors import InputError, KubeError
from kubeio.program.failures import FailedAt
from ringleader.output import Form

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

T = TypeVar("T")
_DURATION = re.compile(r"\A(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?\Z")

Kubeconfig = Annotated[
    str | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig file."),
]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="Context of the kubeconfig."),
]
Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", metavar="NAME", help="Namespace."),
]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Every namespace.")]
RequestTimeout = Annotated[
    str,
    typer.Option(
        "--request-timeout",
        metavar="TIME",
        help="Longest wait for one answer: 10s, 1m.",
    ),
]
Output = Annotated[
    Form | None,
    typer.Option("-o", "--output", help="Form of the output; a table if absent.", show_choices=True),
]
DEFAULT_TIMEOUT = "30s"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Which server to ask, as whom, and how long to wait."""

    kubeconfig: str | None
    context: str | None
    timeout_s: float


def connection(kubeconfig: str | None, context: str | None, request_timeout: str) -> ConnectionOptions:
    """The flags, read. Raises: InputError on a time that is none."""
    return ConnectionOptions(kubeconfig, context, duration_s("--request-timeout", request_timeout))


def duration_s(field: str, text: str) -> float:
    """Seconds in `90`, `90s`, `1m30s` or `1h`.

    Raises: InputError naming *field*.
    """
    match = _DURATION.match(text.strip())
    if not text.strip() or match is None:
        raise InputError(field, text, "is not a time", "write it as 30s, 1m30s or 1h")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise InputError(field, text, "leaves no time for an answer", "write a time above zero, such as 30s")
    return total


def connected(where: ConnectionOptions, work: Callable[[Client, Cluster], Awaitable[T]]) -> T:
    """Run *work* with a client for *where*.

    Raises: FailedAt when a request fails, InputError when flags or kubeconfig cannot be used.
    """
    import asyncio

    import kubeio.program.lean_structlog  # noqa: F401 - before the first import of structlog
    from kubeio.access.cluster import load_cluster
    from kubeio.rest.client import Client

    cluster = load_cluster(kubeconfig=where.kubeconfig, context=where.context)

    async def session() -> T:
        async with Client(cluster, user_agent="ringleader-cli") as client:
            return await work(client, cluster)

    try:
        return asyncio.run(session())
    except InputError:
        raise
    except KubeError as error:
        raise FailedAt(error, cluster.server) from error
