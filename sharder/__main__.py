"""`python -m sharder`: flags to settings, nothing else."""

from __future__ import annotations

import os
import socket
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from kubeio.command_line import run_command
from kubeio.errors import InputError
from kubeio.labels import check_namespace, split_namespaces

DEFAULT_NAMESPACE: Final = "ringleader-system"
MIN_LEASE_S: Final = 1.0
MAX_LEASE_S: Final = 3600.0


class LogFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def default_identity() -> str:
    """The pod's name, or host and process: two sharders never share it."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


def sharder(
    *,
    kubeconfig: Annotated[str | None, typer.Option(help="Path to a kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    identity: Annotated[str, typer.Option(help="Name of this sharder; the pod's name by default.")] = "",
    lease_namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of the sharders' own election Lease. Default: ringleader-system; "
            "with --ring-file the ring's leaseNamespace.",
        ),
    ] = "",
    lease_duration_s: Annotated[
        float, typer.Option(help="Seconds without a renewal after which a standby takes over.")
    ] = 15.0,
    probes_bind: Annotated[
        str, typer.Option(help="Address of /healthz, /readyz and /metrics.")
    ] = "127.0.0.1:0",
    probes_port_file: Annotated[
        Path | None, typer.Option(help="File that the probes' port is written to.")
    ] = None,
    ring: Annotated[list[str] | None, typer.Option(help="Work only this ring; may be repeated.")] = None,
    ring_file: Annotated[
        Path | None,
        typer.Option(
            help="Work the ring in this file: needs neither ControllerRings nor the right to read them."
        ),
    ] = None,
    namespaces: Annotated[
        str, typer.Option(help="With --ring-file: only objects in these namespaces, a,b,c. Default: all.")
    ] = "",
    release: Annotated[
        bool,
        typer.Option("--release", help="With --ring-file: have every object given up, then end."),
    ] = False,
    webhook_bind: Annotated[
        str,
        typer.Option(
            help="Serve the webhook for rings with assignAtAdmission here, such as :9443. Default: no."
        ),
    ] = "",
    webhook_service: Annotated[
        str, typer.Option(help="The Service by which the API server finds it: NAMESPACE/NAME[:PORT].")
    ] = "",
    webhook_url: Annotated[
        str, typer.Option(help="Or, outside the cluster, its address: https://HOST:PORT.")
    ] = "",
    webhook_secret: Annotated[
        str,
        typer.Option(
            help="Secret in --lease-namespace with its keys, made if missing. Default: ringleader-webhook."
        ),
    ] = "",
    log_format: Annotated[LogFormat, typer.Option(help="Form of the log.")] = LogFormat.AUTO,
    log_level: Annotated[LogLevel, typer.Option(help="Least level that is logged.")] = LogLevel.INFO,
) -> None:
    """Put every object of the rings' resources onto their replicas, and keep it so."""
    # not above: help, and a flag that cannot be read, need none of it
    from kubeio.runtime import configure_logging
    from kubeio.runtime import run as run_until_stopped
    from kubeio.server import parse_bind
    from sharder.admission.settings import read_flags
    from sharder.app import Settings
    from sharder.app import run as run_sharder
    from sharder.ringfile import RingFile
    from sharder.scope import Scope

    try:
        configure_logging(format=log_format.value, level=log_level.value)
        host, port = parse_bind("--probes-bind", probes_bind)
        scope = Scope(split_namespaces(namespaces))
        check_file_flags(
            ring_file, rings=ring, namespaces=namespaces, release=release, webhook_bind=webhook_bind
        )
        file = RingFile(ring_file, scope=scope) if ring_file is not None else None
        own = file.spec.lease_namespace if file is not None else DEFAULT_NAMESPACE
        own_namespace = check_namespace("--lease-namespace", lease_namespace or own)
        settings = Settings(
            identity=identity or default_identity(),
            kubeconfig=kubeconfig,
            context=context,
            election_namespace=own_namespace,
            lease_duration_s=check_duration(lease_duration_s),
            probes_host=host,
            probes_port=port,
            probes_port_file=probes_port_file,
            rings=tuple(ring or ()),
            ring_file=file,
            scope=scope,
            release=release,
            webhook=read_flags(
                bind=webhook_bind,
                service=webhook_service,
                url=webhook_url,
                secret=webhook_secret,
                namespace=own_namespace,
            ),
        )
        code = run_until_stopped(run_sharder(settings))
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        code = 2
    raise typer.Exit(code)


def check_file_flags(
    ring_file: Path | None, *, rings: list[str] | None, namespaces: str, release: bool, webhook_bind: str
) -> None:
    """Raises InputError if flags are mixed that do not go together."""
    if ring_file is not None and webhook_bind:
        raise InputError(
            "--webhook-bind",
            webhook_bind,
            "goes with ControllerRings only",
            "leave it out: objects are assigned as soon as they are seen",
        )
    if ring_file is not None and rings:
        raise InputError(
            "--ring", rings[0], "goes with ControllerRings only", "leave it out: the file has one ring"
        )
    for flag, value in (("--namespaces", namespaces), ("--release", release)):
        if ring_file is None and value:
            remedy = "add --ring-file ring.yaml"
            if flag == "--namespaces":
                remedy += ", or select namespaces by the ring's spec.namespaceSelector"
            else:
                remedy += ", or delete the ring: kubectl delete controllerring NAME"
            raise InputError(flag, value, "goes with --ring-file only", remedy)


def check_duration(duration_s: float) -> float:
    """*duration_s* if a Lease can have it. Raises InputError."""
    if not MIN_LEASE_S <= duration_s <= MAX_LEASE_S or not duration_s.is_integer():
        raise InputError(
            "--lease-duration-s",
            duration_s,
            "cannot be a Lease's duration",
            f"use whole seconds, {MIN_LEASE_S:.0f} to {MAX_LEASE_S:.0f}",
        )
    return duration_s


cli = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.command()(sharder)


if __name__ == "__main__":
    sys.exit(run_command(cli, name="python -m sharder"))
