"""`python -m proxy`: settings from the command line, then `proxy.app`, or `proxy.learn`, until a signal ends it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import kubeio.program.lean_structlog  # noqa: F401 - before the first import of structlog
from kubeio.program.command_line import run_guarded


def main(arguments: Sequence[str]) -> int:
    """Run the proxy that *arguments* describe; the exit code."""
    from kubeio.program.runtime import configure_logging, run
    from kubeio.shard.host import ShardHost
    from proxy.app import serve
    from proxy.learn.known import warn_if_known
    from proxy.loopback import Loopback, make_certificates_in_child
    from proxy.settings import read_settings, split_command

    if "--learn" in split_command(arguments)[0]:
        from proxy.learn.command import learn

        return learn(arguments)
    settings = read_settings(arguments)
    host = ShardHost()
    loopback = Loopback(make_certificates_in_child(host.clock.wall()))
    configure_logging(format=settings.log_format, level=settings.log_level)
    warn_if_known(settings.command)
    gc.collect()
    gc.freeze()
    return run(serve(settings, host, loopback))


if __name__ == "__main__":
    sys.exit(run_guarded(lambda: main(sys.argv[1:])))
