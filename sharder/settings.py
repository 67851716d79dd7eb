"""Settings of the sharder's process, read from the command line. Rings say what is distributed, and how.

argparse reads the flags: the process that reads them is the one that stays, and typer would cost it 15 MB (ADR 8).
"""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubeio.errors import InputError
from kubeio.labels import check_namespace, split_namespaces
from kubeio.program.durations import parse_whole_seconds
from kubeio.program.flag_parser import FlagParser
from kubeio.program.http_server import parse_bind
from sharder.admission.settings import read_flags
from sharder.rings.ring_file import RingFile
from sharder.ringspec.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sharder.admission.settings import WebhookSettings

DEFAULT_NAMESPACE: Final = "ringleader-system"
ELECTION_LEASE: Final = "ringleader-sharder"
MAX_LEASE_S: Final = 3600
_FLAGS: Final = (
    ("kubeconfig", "PATH", "", "Path to a kubeconfig."),
    ("context", "NAME", "", "Context of the kubeconfig."),
    ("identity", "NAME", "", "Name of this sharder; the pod's name by default."),
    (
        "lease-namespace",
        "NAMESPACE",
        "",
        "Namespace of the sharders' own election Lease. Default: ringleader-system; with --ring-file the ring's "
        "leaseNamespace.",
    ),
    ("lease-duration", "TIME", "15s", "Time without a renewal after which a standby takes over."),
    (
        "health-probe-bind-address",
        "HOST:PORT",
        "127.0.0.1:0",
        "Address of /livez, /readyz, /metrics and /debug/rings.",
    ),
    ("probes-port-file", "PATH", "", "File that the probes' port is written to."),
    (
        "ring-file",
        "PATH",
        "",
        "Work the ring in this file: needs neither ControllerRings nor the right to read them.",
    ),
    ("namespaces", "A,B,C", "", "With --ring-file: only objects in these namespaces. Default: all."),
    (
        "webhook-bind",
        "HOST:PORT",
        "",
        "Serve the webhook for rings with assignAtAdmission here, such as :9443. Default: no.",
    ),
    (
        "webhook-service",
        "SERVICE",
        "",
        "The Service by which the API server finds it: NAMESPACE/NAME[:PORT].",
    ),
    ("webhook-url", "URL", "", "Or, outside the cluster, its address: https://HOST:PORT."),
    (
        "webhook-secret",
        "NAME",
        "",
        "Secret in --lease-namespace with its keys, made if missing. Default: ringleader-webhook.",
    ),
    ("log-format", "auto|json|console", "auto", "Form of the log."),
    ("log-level", "debug|info|warning|error", "info", "Least level that is logged."),
)
"""Flags that take a value: name, form of the value, default, help."""


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
    """A ring in a file, instead of the cluster's."""
    release: bool = False
    """Give the file's ring up and end."""
    upgrade_crd: bool = False
    """As leader, replace an older ControllerRing resource by the packaged one."""
    webhook: WebhookSettings | None = None
    """Serve the webhook by which rings may have objects assigned at admission."""
    log_format: str = "auto"
    log_level: str = "info"

    @property
    def election_lease(self) -> str:
        """Name of the election's Lease. Sharders of different files do not compete."""
        return f"{ELECTION_LEASE}-{self.ring_file.spec.name}" if self.ring_file else ELECTION_LEASE


def read_settings(arguments: Sequence[str]) -> Settings:
    """Settings that the *arguments* of the command line describe.

    Raises: InputError for a value that cannot be used; SystemExit after help, and for arguments that are no flags.
    """
    flags = _parse(arguments)
    probes_host, probes_port = parse_bind("--health-probe-bind-address", flags.health_probe_bind_address)
    scope = Scope(split_namespaces(flags.namespaces))
    _check_combinations(flags)
    file = RingFile(Path(flags.ring_file), scope=scope) if flags.ring_file else None
    own = file.spec.lease_namespace if file is not None else DEFAULT_NAMESPACE
    namespace = check_namespace("--lease-namespace", flags.lease_namespace or own)
    return Settings(
        identity=flags.identity or default_identity(),
        kubeconfig=flags.kubeconfig or None,
        context=flags.context or None,
        election_namespace=namespace,
        lease_duration_s=read_lease_duration(flags.lease_duration),
        probes_host=probes_host,
        probes_port=probes_port,
        probes_port_file=Path(flags.probes_port_file) if flags.probes_port_file else None,
        rings=tuple(flags.ring),
        ring_file=file,
        release=flags.release,
        upgrade_crd=flags.upgrade_crd,
        webhook=read_flags(
            bind=flags.webhook_bind,
            service=flags.webhook_service,
            url=flags.webhook_url,
            secret=flags.webhook_secret,
            namespace=namespace,
        ),
        log_format=flags.log_format,
        log_level=flags.log_level,
    )


def default_identity() -> str:
    """The pod's name, or host and process: two sharders never share it."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


def read_lease_duration(text: str) -> float:
    """Duration of a Lease in seconds. Raises InputError."""
    duration_s = parse_whole_seconds("--lease-duration", text)
    if duration_s > MAX_LEASE_S:
        raise InputError("--lease-duration", text, "is too long", f"use 1s to {MAX_LEASE_S}s")
    return duration_s


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Values of all flags as they were written."""
    parser = FlagParser(
        prog="python -m sharder",
        usage="%(prog)s [OPTIONS]",
        description="Put every object of the rings' resources onto their replicas, and keep it so.",
    )
    parser.add_values(_FLAGS)
    parser.add_argument(
        "--ring", metavar="NAME", action="append", default=[], help="Work only this ring; may be repeated."
    )
    parser.add_argument(
        "--release", action="store_true", help="With --ring-file: have every object given up, then end."
    )
    parser.add_argument(
        "--upgrade-crd",
        action="store_true",
        help="As leader, replace an older ControllerRing resource by the one of this version.",
    )
    return parser.parse(arguments)


def _check_combinations(flags: argparse.Namespace) -> None:
    """Raises InputError if flags are mixed that do not go together."""
    for flag, value, remedy in (
        ("--webhook-bind", flags.webhook_bind, "objects are assigned as soon as they are seen"),
        ("--ring", ", ".join(flags.ring), "the file has one ring"),
        ("--upgrade-crd", flags.upgrade_crd, "a ring in a file needs no resource"),
    ):
        if value and flags.ring_file:
            raise InputError(flag, value, "goes with ControllerRings only", f"leave it out: {remedy}")
    for flag, value, instead in (
        ("--namespaces", flags.namespaces, "select namespaces by the ring's spec.namespaceSelector"),
        ("--release", flags.release, "delete the ring: kubectl delete controllerring NAME"),
    ):
        if value and not flags.ring_file:
            remedy = f"add --ring-file ring.yaml, or {instead}"
            raise InputError(flag, value, "goes with --ring-file only", remedy)
