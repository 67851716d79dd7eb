"""`python -m loadtest.worker HOST`: a worker for the load test whose command runs on HOST.

Locust's own worker mode with our locust file. It acts as its KUBECONFIG says; everything else comes from the master.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(host: str) -> list[str]:
    """Locust as a worker of the master on *host*."""
    locustfile = str(Path(__file__).with_name("locustfile.py"))
    return [sys.executable, "-m", "locust", "-f", locustfile, "--worker", "--master-host", host]


def main() -> None:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m loadtest.worker HOST\n")
        sys.exit(2)
    words = command(sys.argv[1])
    os.execv(words[0], words)  # noqa: S606 - our own words


if __name__ == "__main__":
    main()
