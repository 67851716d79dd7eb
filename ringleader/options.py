"""kubectl's flags, once: every command that talks to an API server takes them with the same words.

`with_connection` adds the flags to a command; `connected` turns their values into a client.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from kubeio.access.overrides import NONE, Overrides
from kubeio.errors import InputError, KubeError
from kubeio.program.durations import parse_duration
from kubeio.program.failures import FailedAt
from ringleader.output import Form

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

T = TypeVar("T")

Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", metavar="NAME", help="Namespace."),
]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Every namespace.")]
Output = Annotated[
    Form | None,
    typer.Option("-o", "--output", help="Form of the output; a table if absent.", show_choices=True),
]
Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig file.")]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]


def _text(*names: str, metavar: str, text: str) -> tuple[Any, str]:
    return Annotated[str, typer.Option(*names, metavar=metavar, help=text, show_default=False)], ""


_CONNECTION: Final[Mapping[str, tuple[Any, object]]] = {
    "kubeconfig": (Kubeconfig, None),
    "context": (Context, None),
    "cluster": _text("--cluster", metavar="NAME", text="Cluster of the kubeconfig."),
    "user": _text("--user", metavar="NAME", text="User of the kubeconfig."),
    "server": _text("-s", "--server", metavar="URL", text="Address of the API server."),
    "as_user": _text("--as", metavar="USER", text="User to impersonate."),
    "as_group": (
        Annotated[
            list[str] | None,
            typer.Option("--as-group", metavar="GROUP", help="Group to impersonate; repeatable."),
        ],
        None,
    ),
    "as_uid": _text("--as-uid", metavar="UID", text="UID to impersonate."),
    "request_timeout": (
        Annotated[
            str,
            typer.Option("--request-timeout", metavar="TIME", help="Longest wait for one answer: 10s, 1m."),
        ],
        "30s",
    ),
}
"""Name of the parameter: flag and default."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Which server to ask, as whom, and how long to wait."""

    kubeconfig: str | None
    context: str | None
    timeout_s: float
    overrides: Overrides = NONE


def with_connection(command: Callable[..., int]) -> Callable[..., int]:
    """*command* with kubectl's connection flags; its parameter `where` gets their values as `ConnectionOptions`."""
    own = inspect.signature(command, eval_str=True)
    kept = [parameter for name, parameter in own.parameters.items() if name != "where"]
    if len(kept) == len(own.parameters):
        raise TypeError(f"{command.__name__} has no parameter `where`")
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _CONNECTION.items()
    ]

    @functools.wraps(command)
    def with_flags(**values: Any) -> int:
        where = connection_of({name: values.pop(name) for name in _CONNECTION})
        return command(where=where, **values)

    signature = own.replace(parameters=[*kept, *flags])
    with_flags.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
    with_flags.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return with_flags


def connection_of(values: Mapping[str, Any]) -> ConnectionOptions:
    """The flags, read; those that are not in *values* were not given. Raises: InputError on a time that is none."""
    overrides = Overrides(
        cluster=values.get("cluster") or "",
        user=values.get("user") or "",
        server=values.get("server") or "",
        as_user=values.get("as_user") or "",
        as_uid=values.get("as_uid") or "",
        as_groups=tuple(values.get("as_group") or ()),
    )
    timeout_s = parse_duration("--request-timeout", values.get("request_timeout") or "30s")
    return ConnectionOptions(values.get("kubeconfig"), values.get("context"), timeout_s, overrides)


def connected(where: ConnectionOptions, work: Callable[[Client, Cluster], Awaitable[T]]) -> T:
    """Run *work* with a client for *where*.

    Raises: FailedAt when a request fails, InputError when flags or kubeconfig cannot be used.
    """
    import asyncio

    import kubeio.program.lean_structlog  # noqa: F401 - before the first import of structlog
    from kubeio.access.cluster import load_cluster
    from kubeio.rest.client import Client

    cluster = load_cluster(kubeconfig=where.kubeconfig, context=where.context, overrides=where.overrides)

    async def session() -> T:
        async with Client(cluster, user_agent="ringleader-cli") as client:
            return await work(client, cluster)

    try:
        return asyncio.run(session())
    except InputError:
        raise
    except KubeError as error:
        raise FailedAt(error, cluster.server) from error
