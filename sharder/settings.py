"""Settings of the sharder's process, read from the command line. Rings say what is distributed, and how.

argparse reads the flags: the process that reads them is the one that stays, and typer would cost it 15 MB (ADR 8).
"""

from __future__ import annotations

import argparse
import difflib
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from kubeio.errors import InputError
from kubeio.labels import check_namespace, split_namespaces
from kubeio.program.failures import BAD_INPUT
from kubeio.program.server import parse_bind
from sharder.admission.settings import read_flags
from sharder.rings.ring_file import RingFile
from sharder.ringspec.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

    from sharder.admission.settings import WebhookSettings

DEFAULT_NAMESPACE: Final = "ringleader-system"
ELECTION_LEASE: Final = "ringleader-sharder"
MIN_LEASE_S: Final = 1.0
MAX_LEASE_S: Final = 3600.0
_COMMAND: Final = "python -m sharder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one sharder process, checked."""

    identity: str
    kubeconfig: str | None = None
    context: str | None = None
    election_namespace: str = DEFAULT_NAMESPACE
    lease_duration_s: float = 15.0
    probes_host: str = "127.0.0.1"
    probes_port: int = 0
    probes_port_file: Path | None = None
    rings: tuple[str, ...] = ()
    """Only these rings; empty: all."""
    ring_file: RingFile | None = None
    """A ring that stands in a file, instead of the cluster's."""
    release: bool = False
    """Give the file's ring up and end."""
    webhook: WebhookSettings | None = None
    """Serve the webhook by which rings may have objects assigned at admission."""
    page_host: str = ""
    """Serve the live page here; empty: no."""
    page_port: int = 0
    page_port_file: Path | None = None
    log_format: str = "auto"
    log_level: str = "info"

    @property
    def election_lease(self) -> str:
        """Name of the election's Lease. Sharders of different files do not compete."""
        return f"{ELECTION_LEASE}-{self.ring_file.spec.name}" if self.ring_file else ELECTION_LEASE


def read_settings(words: Sequence[str]) -> Settings:
    """Settings that *words* of the command line describe.

    Raises: InputError for a value that cannot be used; SystemExit after help, and for words that are no flags.
    """
    flags = _parse(words)
    probes_host, probes_port = parse_bind("--probes-bind", flags.probes_bind)
    scope = Scope(split_namespaces(flags.namespaces))
    _check_combinations(flags)
    file = RingFile(flags.ring_file, scope=scope) if flags.ring_file else None
    page_host, page_port = parse_bind("--page-bind", flags.page_bind) if flags.page_bind else ("", 0)
    own = file.spec.lease_namespace if file is not None else DEFAULT_NAMESPACE
    namespace = check_namespace("--lease-namespace", flags.lease_namespace or own)
    return Settings(
        identity=flags.identity or default_identity(),
        kubeconfig=flags.kubeconfig,
        context=flags.context,
        election_namespace=namespace,
        lease_duration_s=flags.lease_duration_s,
        probes_host=probes_host,
        probes_port=probes_port,
        probes_port_file=flags.probes_port_file,
        rings=tuple(flags.ring),
        ring_file=file,
        release=flags.release,
        webhook=read_flags(
            bind=flags.webhook_bind,
            service=flags.webhook_service,
            url=flags.webhook_url,
            secret=flags.webhook_secret,
            namespace=namespace,
        ),
        page_host=page_host,
        page_port=page_port,
        page_port_file=flags.page_port_file,
        log_format=flags.log_format,
        log_level=flags.log_level,
    )


def default_identity() -> str:
    """The pod's name, or host and process: two sharders never share it."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


def read_duration(text: str) -> float:
    """Duration of a Lease in seconds. Raises InputError."""
    try:
        duration_s = float(text)
    except ValueError:
        problem = "is not a number"
    else:
        if MIN_LEASE_S <= duration_s <= MAX_LEASE_S and duration_s.is_integer():
            return duration_s
        problem = "cannot be a Lease's duration"
    remedy = f"use whole seconds, {MIN_LEASE_S:.0f} to {MAX_LEASE_S:.0f}"
    raise InputError("--lease-duration-s", text, problem, remedy)


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one line."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Write the help. Raises OSError, which argparse would swallow."""
        (file or sys.stdout).write(self.format_help())
        sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else ";"
        self.exit(BAD_INPUT, f"error: {message.removeprefix('argument ')}{end} see {self.prog} -h\n")


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Values of all flags as they were written."""
    parser = _Parser(
        prog=_COMMAND,
        usage="%(prog)s [OPTIONS]",
        description="Put every object of the rings' resources onto their replicas, and keep it so.",
        allow_abbrev=False,
    )
    _add_flags(parser)
    flags, unknown = parser.parse_known_args(words)
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is not None:
        known = [f"--{name.replace('_', '-')}" for name in vars(flags)]
        name = option.partition("=")[0]
        near = difflib.get_close_matches(name, known)
        hint = f". Did you mean {' or '.join(sorted(near))}?" if near else ""
        parser.error(f"No such option: {name}{hint}")
    if unknown:
        parser.error(f"Got unexpected extra argument(s) ({' '.join(unknown)})")
    return flags


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--kubeconfig", metavar="PATH", help="Path to a kubeconfig.")
    add("--context", metavar="NAME", help="Context of the kubeconfig.")
    add("--identity", metavar="NAME", default="", help="Name of this sharder; the pod's name by default.")
    add(
        "--lease-namespace",
        metavar="NAMESPACE",
        default="",
        help="Namespace of the sharders' own election Lease. Default: ringleader-system; with --ring-file the ring's "
        "leaseNamespace.",
    )
    add(
        "--lease-duration-s",
        metavar="SECONDS",
        type=read_duration,
        default=15.0,
        help="Seconds without a renewal after which a standby takes over. [default: 15.0]",
    )
    add(
        "--probes-bind",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="Address of /healthz, /readyz and /metrics. [default: 127.0.0.1:0]",
    )
    add("--probes-port-file", metavar="PATH", type=Path, help="File that the probes' port is written to.")
    add("--ring", metavar="NAME", action="append", default=[], help="Work only this ring; may be repeated.")
    add(
        "--ring-file",
        metavar="PATH",
        type=Path,
        help="Work the ring in this file: needs neither ControllerRings nor the right to read them.",
    )
    add(
        "--namespaces",
        metavar="A,B,C",
        default="",
        help="With --ring-file: only objects in these namespaces, a,b,c. Default: all.",
    )
    add("--release", action="store_true", help="With --ring-file: have every object given up, then end.")
    add(
        "--webhook-bind",
        metavar="HOST:PORT",
        default="",
        help="Serve the webhook for rings with assignAtAdmission here, such as :9443. Default: no.",
    )
    add(
        "--webhook-service",
        metavar="SERVICE",
        default="",
        help="The Service by which the API server finds it: NAMESPACE/NAME[:PORT].",
    )
    add(
        "--webhook-url",
        metavar="URL",
        default="",
        help="Or, outside the cluster, its address: https://HOST:PORT.",
    )
    add(
        "--webhook-secret",
        metavar="NAME",
        default="",
        help="Secret in --lease-namespace with its keys, made if missing. Default: ringleader-webhook.",
    )
    add(
        "--page-bind",
        metavar="HOST:PORT",
        default="",
        help="Serve the live page here, such as 127.0.0.1:8085; read-only. Default: no.",
    )
    add("--page-port-file", metavar="PATH", type=Path, help="File that the live page's port is written to.")
    add(
        "--log-format",
        metavar="auto|json|console",
        default="auto",
        help="Form of the log. [default: auto]",
    )
    add(
        "--log-level",
        metavar="debug|info|warning|error",
        default="info",
        help="Least level that is logged. [default: info]",
    )


def _check_combinations(flags: argparse.Namespace) -> None:
    """Raises InputError if flags are mixed that do not go together."""
    if flags.ring_file and flags.webhook_bind:
        raise InputError(
            "--webhook-bind",
            flags.webhook_bind,
            "goes with ControllerRings only",
            "leave it out: objects are assigned as soon as they are seen",
        )
    if flags.ring_file and flags.ring:
        raise InputError(
            "--ring", flags.ring[0], "goes with ControllerRings only", "leave it out: the file has one ring"
        )
    for flag, value, instead in (
        ("--namespaces", flags.namespaces, "select namespaces by the ring's spec.namespaceSelector"),
        ("--release", flags.release, "delete the ring: kubectl delete controllerring NAME"),
    ):
        if value and not flags.ring_file:
            remedy = f"add --ring-file ring.yaml, or {instead}"
            raise InputError(flag, value, "goes with --ring-file only", remedy)
    if flags.page_port_file and not flags.page_bind:
        raise InputError(
            "--page-port-file",
            str(flags.page_port_file),
            "does nothing without --page-bind",
            "add --page-bind 127.0.0.1:0",
        )
