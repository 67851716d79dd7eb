"""`python -m loadtest`: the same as `ringleader loadtest`."""

from __future__ import annotations

import sys

from kubeio.program.command_line import run_command
from loadtest.command import app

if __name__ == "__main__":
    sys.exit(run_command(app, name="python -m loadtest"))
