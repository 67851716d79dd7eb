"""`python -m shard_controller run FILE_OR_MODULE:NAME`: one replica as a process.

Owns the command line only. Bad input is one message and exit code 2, never a traceback.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kubeio.errors import InputError
from kubeio.program.command_line import run_command
from kubeio.program.durations import parse_duration, parse_whole_seconds
from kubeio.shard.ring import ring_from_file
from shard_controller.api.controller import LeaderElected, Mode, Sharded, Single
from shard_controller.process import app
from shard_controller.process.settings import Fence, Settings
from shard_controller.process.target import load_controller


class ModeName(StrEnum):
    SHARDED = "sharded"
    LEADER_ELECTED = "leader-elected"
    SINGLE = "single"


class LogFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


cli = typer.Typer(
    name="shard_controller",
    help="Runs replicas of controllers that are written with shard_controller.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cli.callback()
def _root() -> None:
    """Run replicas of controllers."""


@cli.command()
def run(
    controller: Annotated[
        str,
        typer.Argument(metavar="CONTROLLER", help="FILE.py:NAME or package.module:NAME of an sc.Controller."),
    ],
    *,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespaces",
            "--namespace",
            "-n",
            metavar="A,B,C",
            help="Watch objects of these namespaces only. Default: all.",
        ),
    ] = "",
    mode: Annotated[ModeName, typer.Option(help="How replicas share the work.")] = ModeName.SHARDED,
    ring: Annotated[
        str, typer.Option(help="Name of the ControllerRing. Default: the controller's name.")
    ] = "",
    ring_file: Annotated[
        Path | None,
        typer.Option(
            help="The ring in this file, as the sharder has it: needs no right to read ControllerRings."
        ),
    ] = None,
    member: Annotated[str, typer.Option(help="Place on the ring. Default: the host's name.")] = "",
    hold: Annotated[
        bool, typer.Option("--hold", help="Stable identity: the place is kept for a while after a release.")
    ] = False,
    termination_grace_period: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="The pod's terminationGracePeriodSeconds: a replica that its StatefulSet scales away hands its "
            "objects over within it. Default: it ends like one that is rolled.",
        ),
    ] = "",
    lease_duration: Annotated[str, typer.Option(metavar="TIME", help="Duration of the Lease.")] = "15s",
    lease_name: Annotated[
        str, typer.Option(help="Lease of --mode leader-elected. Default: the controller's name.")
    ] = "",
    workers: Annotated[
        int, typer.Option(help="Reconciles at the same time. Default: as the controller says.")
    ] = 0,
    fence: Annotated[
        Fence,
        typer.Option(
            help="policy: writes also name this life, for the policies of `ringleader fence`; not ready without them."
        ),
    ] = Fence.TESTS,
    kubeconfig: Annotated[
        str, typer.Option(help="Kubeconfig file. Default: $KUBECONFIG, the pod, ~/.kube/config.")
    ] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    journal: Annotated[
        Path | None, typer.Option(help="Append a record of every reconcile to this file.")
    ] = None,
    health_probe_bind_address: Annotated[
        str, typer.Option(help="HOST:PORT of /healthz, /readyz and /metrics; port 0 picks one.")
    ] = "127.0.0.1:0",
    probes_port_file: Annotated[
        Path | None, typer.Option(help="Write the port of the probes to this file.")
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="Form of the log; auto: console on a terminal, else json.")
    ] = LogFormat.AUTO,
    log_level: Annotated[str, typer.Option(help="Least level that is logged.")] = "info",
    progress_deadline: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="The process ends when its loop, streams or keys stand still for longer."
        ),
    ] = "60s",
    blocked_loop: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="An event loop that stands still for longer is reported with its stack; 0: never.",
        ),
    ] = "250ms",
    watch_silence: Annotated[
        str, typer.Option(metavar="TIME", help="A watch that says nothing for longer is started again.")
    ] = "90s",
) -> None:
    """Run one replica of a controller until SIGTERM.

    Exit codes: 0 stopped, 1 failure, 2 bad input, 3 the Lease was lost.
    """
    try:
        chosen = load_controller(controller)
        settings = Settings(
            kubeconfig=kubeconfig or None,
            context=context or None,
            namespace=namespace,
            ring_file=ring_file,
            member=member,
            hold=hold,
            termination_grace_s=_grace_s(termination_grace_period),
            lease_duration_s=parse_whole_seconds("--lease-duration", lease_duration),
            workers=workers or None,
            fence=fence,
            journal=journal,
            probes_bind=health_probe_bind_address,
            probes_port_file=probes_port_file,
            log_format=log_format.value,
            log_level=log_level,
            progress_deadline_s=parse_duration("--progress-deadline", progress_deadline),
            blocked_loop_s=parse_duration("--blocked-loop", blocked_loop, may_be_zero=True),
            silence_s=parse_duration("--watch-silence", watch_silence),
        )
        named = ring or (ring_from_file(ring_file).metadata.name if ring_file else chosen.name)
        code = app.run(chosen, _mode(mode, named, lease_name or chosen.name), settings)
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        code = 2
    raise typer.Exit(code)


def _grace_s(written: str) -> float | None:
    return parse_duration("--termination-grace-period", written) if written else None


def _mode(name: ModeName, ring: str, lease: str) -> Mode:
    match name:
        case ModeName.SHARDED:
            return Sharded(ring)
        case ModeName.LEADER_ELECTED:
            return LeaderElected(lease)
        case ModeName.SINGLE:
            return Single()


def main() -> int:
    """Entry point of `python -m shard_controller`."""
    return run_command(cli, name="python -m shard_controller")


if __name__ == "__main__":
    sys.exit(main())
