"""`python -m sharder`: settings from the command line, then `sharder.app` until a signal ends it.

Owns what is kept out of the process's memory.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Final

from kubeio.program.command_line import run_guarded

KEPT_OUT: Final = ("rich", "greenlet")
"""Imported by structlog where they are installed, for tracebacks in colour and for gevent: 6 MB for nothing."""


def main(words: Sequence[str]) -> int:
    """Run the sharder that *words* describe; the exit code."""
    from kubeio.program.runtime import configure_logging, run
    from sharder.app import run as run_sharder
    from sharder.settings import read_settings

    settings = read_settings(words)
    configure_logging(format=settings.log_format, level=settings.log_level)
    # Imported modules stay for ever: the collector need not scan them again and again.
    gc.collect()
    gc.freeze()
    return run(run_sharder(settings))


def keep_out() -> None:
    """Have the optional imports of our packages fail as if they were not installed."""
    for name in KEPT_OUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type] # None: "there is no such module"


if __name__ == "__main__":
    keep_out()
    sys.exit(run_guarded(lambda: main(sys.argv[1:])))
