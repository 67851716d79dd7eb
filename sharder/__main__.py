"""`python -m sharder`: the words of the command line, nothing else.

Reading them takes packages that the sharder itself never needs (typer, pydantic, rich: 15 MB). So this process reads
them and then *becomes* the sharder: the same process number, another program (`sharder.process`).
"""

from __future__ import annotations

import os
import socket
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kubeio.program.command_line import run_command
from sharder.flags import Flags, become_process, check_duration


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
    page_bind: Annotated[
        str,
        typer.Option(help="Serve the live page here, such as 127.0.0.1:8085; read-only. Default: no."),
    ] = "",
    page_port_file: Annotated[
        Path | None, typer.Option(help="File that the live page's port is written to.")
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="Form of the log.")] = LogFormat.AUTO,
    log_level: Annotated[LogLevel, typer.Option(help="Least level that is logged.")] = LogLevel.INFO,
) -> None:
    """Put every object of the rings' resources onto their replicas, and keep it so."""
    become_process(
        Flags(
            kubeconfig=kubeconfig,
            context=context,
            identity=identity or default_identity(),
            lease_namespace=lease_namespace,
            lease_duration_s=check_duration(lease_duration_s),
            probes_bind=probes_bind,
            probes_port_file=str(probes_port_file or ""),
            rings=tuple(ring or ()),
            ring_file=str(ring_file or ""),
            namespaces=namespaces,
            release=release,
            webhook_bind=webhook_bind,
            webhook_service=webhook_service,
            webhook_url=webhook_url,
            webhook_secret=webhook_secret,
            page_bind=page_bind,
            page_port_file=str(page_port_file or ""),
            log_format=log_format.value,
            log_level=log_level.value,
        )
    )


cli = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.command()(sharder)


if __name__ == "__main__":
    sys.exit(run_command(cli, name="python -m sharder"))
