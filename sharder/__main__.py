"""`python -m sharder`: settings from the command line, then `sharder.app` until a signal ends it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import kubeio.program.lean_structlog  # noqa: F401 - before the first import of structlog
from kubeio.program.command_line import run_guarded


def main(arguments: Sequence[str]) -> int:
    """Run the sharder that *arguments* describe; the exit code."""
    from kubeio.program.runtime import configure_logging, run
    from sharder.app import run as run_sharder
    from sharder.settings import read_settings

    settings = read_settings(arguments)
    configure_logging(format=settings.log_format, level=settings.log_level)
    # Imported modules stay for ever: the collector need not scan them again and again.
    gc.collect()
    gc.freeze()
    return run(run_sharder(settings))


if __name__ == "__main__":
    sys.exit(run_guarded(lambda: main(sys.argv[1:])))
