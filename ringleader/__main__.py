"""Entry of the command `ringleader`, also found by kubectl as `kubectl ringleader`.

Owns the name it goes by; the commands are in `ringleader.cli`, messages and exit codes in
`kubeio.program.command_line`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kubeio.program.command_line import run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code; called by the installed script."""
    from ringleader.cli import app

    name = "kubectl ringleader" if Path(sys.argv[0]).name.startswith("kubectl") else "ringleader"
    return run_command(app, name=name, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
