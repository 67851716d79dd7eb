"""Settings of a proxy's process, read from the command line; what stands after `--` is the controller's."""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubeio.errors import InputError
from kubeio.program.durations import parse_duration, parse_whole_seconds
from kubeio.program.failures import BAD_INPUT
from kubeio.program.flag_parser import FlagParser
from kubeio.program.http_server import parse_bind
from kubeio.program.probes import FLAG
from kubeio.shard.lease_template import GRACE_FLAG

_FLAGS: Final = (
    ("ring", "NAME", "", "The ring whose objects the controller works."),
    ("resources", "A,B", "", "Its main resources. Default: all that the ring distributes."),
    ("leaves", "A,B", "", "Controlled resources that control nothing themselves, such as pods."),
    (
        "companions",
        "A=B,C=D",
        "",
        "Kinds that belong to one of the ring by name alone, such as endpoints=services.",
    ),
    ("locks", "A,B", "", "Names of the controller's leader-election Leases: the proxy answers them itself."),
    ("member", "NAME", "", "Place on the ring. Default: the host's name."),
    ("namespace", "NAMESPACE", "", "The controller's own namespace. Default: that of the kubeconfig or pod."),
    ("lease-duration", "TIME", "15s", "Time without a renewal after which the shard's objects go to others."),
    ("stop-within", "TIME", "30s", "Time for the controller's own end after SIGTERM; then it is killed."),
    (
        "fence",
        "policy|none",
        "policy",
        "What refuses late writes: the policies of `ringleader fence RING`, which are awaited, or nothing.",
    ),
    (
        "termination-grace-period",
        "TIME",
        "",
        "The pod's terminationGracePeriodSeconds: a shard that its StatefulSet scales away hands its objects over "
        "within it.",
    ),
    ("health-probe-bind-address", "HOST:PORT", "127.0.0.1:0", "Address of /livez, /readyz and /metrics."),
    (
        "controller-readiness",
        "URL",
        "",
        "Where the controller says that it is ready; /readyz answers for both.",
    ),
    (
        "controller-liveness",
        "URL",
        "",
        "Where the controller says that it lives: one that answered and then fails for a minute is restarted.",
    ),
    ("controller-files", "DIR", "", "Folder for what the controller finds the proxy by. Default: a new one."),
    ("service-account", "DIR", "", "Folder of the pod's own token, if it is mounted elsewhere than usual."),
    ("kubeconfig", "PATH", "", "Path to a kubeconfig."),
    ("context", "NAME", "", "Context of the kubeconfig."),
    ("log-format", "auto|json|console", "auto", "Form of the log."),
    ("log-level", "debug|info|warning|error", "info", "Least level that is logged."),
)
"""Flags that take a value: name, form of the value, default, help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one proxy, checked. *command*: the controller and its arguments."""

    command: tuple[str, ...]
    ring: str
    resources: tuple[str, ...] = ()
    leaves: frozenset[str] = frozenset()
    companions: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()
    member: str
    namespace: str = ""
    hold: bool = False
    lease_duration_s: int = 15
    stop_within_s: float = 30.0
    is_fenced: bool = True
    termination_grace_s: float | None = None
    probes_address: tuple[str, int] = ("127.0.0.1", 0)
    controller_readiness: str = ""
    controller_liveness: str = ""
    controller_files: Path | None = None
    service_account: Path | None = None
    kubeconfig: str | None = None
    context: str | None = None
    log_format: str = "auto"
    log_level: str = "info"


def read_settings(arguments: Sequence[str]) -> Settings:
    """Settings that the *arguments* describe. Raises: InputError; SystemExit after help and for unknown flags."""
    own, command = split_command(arguments)
    flags = _parse(own)
    if not flags.ring:
        raise InputError("--ring", "", "is missing", "name the ring whose objects the controller works")
    check_command(command, "ringleader proxy --ring R")
    if flags.fence not in ("policy", "none"):
        raise InputError("--fence", flags.fence, "is unknown", "use policy or none")
    return Settings(
        command=command,
        ring=flags.ring,
        resources=_names(flags.resources),
        leaves=frozenset(_names(flags.leaves)),
        companions=_names(flags.companions),
        locks=_names(flags.locks),
        member=flags.member or socket.gethostname().lower(),
        namespace=flags.namespace,
        hold=flags.hold,
        lease_duration_s=parse_whole_seconds("--lease-duration", flags.lease_duration),
        stop_within_s=parse_duration("--stop-within", flags.stop_within),
        is_fenced=flags.fence == "policy",
        termination_grace_s=parse_duration(GRACE_FLAG, flags.termination_grace_period)
        if flags.termination_grace_period
        else None,
        probes_address=parse_bind(FLAG, flags.health_probe_bind_address),
        controller_readiness=flags.controller_readiness,
        controller_liveness=flags.controller_liveness,
        controller_files=Path(flags.controller_files) if flags.controller_files else None,
        service_account=Path(flags.service_account) if flags.service_account else None,
        kubeconfig=flags.kubeconfig or None,
        context=flags.context or None,
        log_format=flags.log_format,
        log_level=flags.log_level,
    )


def split_command(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own words, and the controller's, which stand after `--`."""
    if "--" not in arguments:
        return list(arguments), ()
    at = list(arguments).index("--")
    return list(arguments[:at]), tuple(arguments[at + 1 :])


def check_command(command: tuple[str, ...], usage: str) -> None:
    """Raises InputError if *command* cannot be run; *usage*: how ours begins."""
    if not command:
        raise InputError("COMMAND", "", "is missing", f"write it after `--`: {usage} -- /manager")
    if shutil.which(command[0]) is None:
        raise InputError("COMMAND", command[0], "is no program that can be run here", "write its whole path")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for each in text.split(",") if (name := each.strip()))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = FlagParser(
        prog="ringleader proxy",
        usage="%(prog)s --ring NAME [OPTIONS] -- COMMAND...",
        description="Run an unmodified controller as one shard of a ring. It finds the proxy as in a pod, and by "
        "KUBECONFIG; {kubeconfig} in COMMAND stands for the path of that file. Whether it may be sharded, and how: "
        "%(prog)s --learn -h. Manifests with the proxy in them: %(prog)s --render -h.",
    )
    parser.add_values(_FLAGS)
    parser.add_argument(
        "--hold", action="store_true", help="The member's name lasts: hold its place over a restart."
    )
    if not arguments:
        parser.print_help(sys.stderr)
        raise SystemExit(BAD_INPUT)
    return parser.parse(arguments)
