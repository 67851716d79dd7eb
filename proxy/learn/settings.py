"""Settings of learn mode, read from the command line; what stands after `--` is the controller's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kubeio.errors import InputError
from kubeio.program.durations import parse_duration
from kubeio.program.failures import BAD_INPUT
from kubeio.program.flag_parser import FlagParser
from proxy.settings import check_command, split_command

FORMS: Final = ("text", "json")
_FLAGS: Final = (
    ("minutes", "N", "", "End after so many minutes. Default: at Ctrl-C."),
    ("output", "text|json", "text", "Form of the report."),
    ("namespace", "NAMESPACE", "", "The controller's own namespace. Default: that of the kubeconfig or pod."),
    ("stop-within", "TIME", "30s", "Time for the controller's own end after SIGTERM; then it is killed."),
    ("kubeconfig", "PATH", "", "Path to a kubeconfig."),
    ("context", "NAME", "", "Context of the kubeconfig."),
    ("log-format", "auto|json|console", "auto", "Form of the log."),
    ("log-level", "debug|info|warning|error", "info", "Least level that is logged."),
)
"""Flags that take a value: name, form of the value, default, help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnSettings:
    """Settings of one run, checked. *seconds*: None until a signal ends it."""

    command: tuple[str, ...]
    seconds: float | None = None
    output: str = "text"
    namespace: str = ""
    stop_within_s: float = 30.0
    kubeconfig: str | None = None
    context: str | None = None
    log_format: str = "auto"
    log_level: str = "info"


def read_learn_settings(arguments: Sequence[str]) -> LearnSettings:
    """Settings that the *arguments* describe. Raises: InputError; SystemExit after help and for unknown flags."""
    own, command = split_command(arguments)
    parser = _parser()
    if own == ["--learn"] and not command:
        parser.print_help(sys.stderr)
        raise SystemExit(BAD_INPUT)
    flags = parser.parse(own)
    if flags.output not in FORMS:
        raise InputError("--output", flags.output, "is no form of the report", f"use {' or '.join(FORMS)}")
    check_command(command, "ringleader proxy --learn")
    return LearnSettings(
        command=command,
        seconds=_seconds(flags.minutes) if flags.minutes else None,
        output=flags.output,
        namespace=flags.namespace,
        stop_within_s=parse_duration("--stop-within", flags.stop_within),
        kubeconfig=flags.kubeconfig or None,
        context=flags.context or None,
        log_format=flags.log_format,
        log_level=flags.log_level,
    )


def _seconds(minutes: str) -> float:
    try:
        seconds = float(minutes) * 60
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError("--minutes", minutes, "is no number of minutes", "write a number above 0, such as 5")
    return seconds


def _parser() -> FlagParser:
    parser = FlagParser(
        prog="ringleader proxy --learn",
        usage="%(prog)s [OPTIONS] -- COMMAND...",
        description="Run an unmodified controller alone, without a ring, and report whether it may be sharded, as "
        "which ring and by which command. Nothing is limited or refused. Stop its other replicas before, and have "
        "it create, change and delete objects meanwhile. Exit code: 0 it may be sharded; 1 no, or it is unclear.",
    )
    parser.add_argument("--learn", action="store_true", help="Learn.")
    parser.add_values(_FLAGS)
    return parser
