"""The command `python -m simulation`, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The ended command; with no hash seed of pytest's, since it sets its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    return subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=600,
    )
