"""The sharder's flags as values, and how the process that read them becomes the sharder.

Read by `sharder.__main__`, checked and used by `sharder.process`. Numbers are checked here, since JSON has no infinity;
what else is wrong is told by the process that uses it, in the same words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec

from kubeio.errors import InputError

MIN_LEASE_S: Final = 1.0
MAX_LEASE_S: Final = 3600.0


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """As written on the command line; what was left out is empty."""

    kubeconfig: str | None = None
    context: str | None = None
    identity: str
    lease_namespace: str = ""
    lease_duration_s: float = 15.0
    probes_bind: str = "127.0.0.1:0"
    probes_port_file: str = ""
    rings: tuple[str, ...] = ()
    ring_file: str = ""
    namespaces: str = ""
    release: bool = False
    webhook_bind: str = ""
    webhook_service: str = ""
    webhook_url: str = ""
    webhook_secret: str = ""
    page_bind: str = ""
    page_port_file: str = ""
    log_format: str = "auto"
    log_level: str = "info"

    def encode(self) -> str:
        """As one word for `decode`."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, word: str) -> Flags:
        """Raises msgspec.ValidationError."""
        return msgspec.json.decode(word, type=cls)


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


def become_process(flags: Flags) -> NoReturn:
    """Run `sharder.process` with *flags* in this process's place: nothing of this one stays in memory."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, process_command(sys.orig_argv, flags))  # noqa: S606 - no shell is wanted


def process_command(began_with: Sequence[str], flags: Flags) -> list[str]:
    """The command of the sharder for a process that *began_with* these words; the interpreter's own flags stay.

    A script (`ringleader sharder`) does not look for packages in the current folder, and neither does what it becomes.
    """
    words = list(began_with)
    is_module = "-m" in words and words[words.index("-m") + 1 : words.index("-m") + 2] == ["sharder"]
    kept = words[1 : words.index("-m")] if is_module else ["-P"]
    return [sys.executable, *kept, "-m", "sharder.process", flags.encode()]
