"""The sharder as a program: checked flags to settings, then `sharder.app` until a signal ends it.

Run by `sharder.flags.become_process` with its flags as one word of JSON. Owns what is kept out of its memory, and the
line that a person reads when a flag cannot be used.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubeio.errors import InputError
from kubeio.labels import check_namespace, split_namespaces
from sharder.flags import Flags

if TYPE_CHECKING:
    from sharder.app import Settings

DEFAULT_NAMESPACE: Final = "ringleader-system"
KEPT_OUT: Final = ("rich", "greenlet")
"""Imported by structlog where they are installed, for tracebacks in colour and for gevent: 6 MB for nothing."""


def main(word: str) -> int:
    """Run the sharder that *word* (`Flags.encode`) describes; the exit code."""
    keep_out()
    from kubeio.program.runtime import BAD_INPUT, run
    from sharder.app import run as run_sharder

    try:
        settings = read_settings(Flags.decode(word))
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return BAD_INPUT
    # What was imported stays for ever: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    return run(run_sharder(settings))


def keep_out() -> None:
    """Have the optional imports of our packages fail as if they were not installed."""
    for name in KEPT_OUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type] # None: "there is no such module"


def read_settings(flags: Flags) -> Settings:
    """Settings of the process, and its log set up. Raises InputError."""
    from kubeio.program.http_server import parse_bind
    from kubeio.program.runtime import configure_logging
    from sharder.admission.settings import read_flags
    from sharder.app import Settings
    from sharder.rings.ring_file import RingFile
    from sharder.ringspec.scope import Scope

    configure_logging(format=flags.log_format, level=flags.log_level)
    host, port = parse_bind("--probes-bind", flags.probes_bind)
    scope = Scope(split_namespaces(flags.namespaces))
    check_file_flags(flags)
    file = RingFile(Path(flags.ring_file), scope=scope) if flags.ring_file else None
    own = file.spec.lease_namespace if file is not None else DEFAULT_NAMESPACE
    page_host, page_port = parse_bind("--page-bind", flags.page_bind) if flags.page_bind else ("", 0)
    if flags.page_port_file and not flags.page_bind:
        raise InputError(
            "--page-port-file",
            flags.page_port_file,
            "does nothing without --page-bind",
            "add --page-bind 127.0.0.1:0",
        )
    own_namespace = check_namespace("--lease-namespace", flags.lease_namespace or own)
    return Settings(
        identity=flags.identity,
        kubeconfig=flags.kubeconfig,
        context=flags.context,
        election_namespace=own_namespace,
        lease_duration_s=flags.lease_duration_s,
        probes_host=host,
        probes_port=port,
        probes_port_file=Path(flags.probes_port_file) if flags.probes_port_file else None,
        rings=flags.rings,
        ring_file=file,
        scope=scope,
        release=flags.release,
        page_host=page_host,
        page_port=page_port,
        page_port_file=Path(flags.page_port_file) if flags.page_port_file else None,
        webhook=read_flags(
            bind=flags.webhook_bind,
            service=flags.webhook_service,
            url=flags.webhook_url,
            secret=flags.webhook_secret,
            namespace=own_namespace,
        ),
    )


def check_file_flags(flags: Flags) -> None:
    """Raises InputError if flags are mixed that do not go together."""
    if flags.ring_file and flags.webhook_bind:
        raise InputError(
            "--webhook-bind",
            flags.webhook_bind,
            "goes with ControllerRings only",
            "leave it out: objects are assigned as soon as they are seen",
        )
    if flags.ring_file and flags.rings:
        raise InputError(
            "--ring", flags.rings[0], "goes with ControllerRings only", "leave it out: the file has one ring"
        )
    for flag, value in (("--namespaces", flags.namespaces), ("--release", flags.release)):
        if not flags.ring_file and value:
            remedy = "add --ring-file ring.yaml"
            if flag == "--namespaces":
                remedy += ", or select namespaces by the ring's spec.namespaceSelector"
            else:
                remedy += ", or delete the ring: kubectl delete controllerring NAME"
            raise InputError(flag, value, "goes with --ring-file only", remedy)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
