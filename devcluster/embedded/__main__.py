"""`python -m devcluster.embedded`: one control plane in memory, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
from pathlib import Path

import structlog

from devcluster.embedded.process import serve
from devcluster.listening import LOOPBACK

_DEEPEST = 60_000
"""Frames of Python: API servers take JSON that is nested 10,000 deep, and schemas are walked in steps of several."""
_STACK_BYTES = 512 * 1024 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m devcluster.embedded", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="kubeconfig, CA and write log go here")
    parser.add_argument("--host", default=LOOPBACK, help="a loopback address: 127.0.0.1 or ::1")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--bookmark-interval-s", type=float, default=60.0)
    parser.add_argument("--history", type=int, default=20_000, help="events kept per resource")
    parser.add_argument("--rbac", action="store_true", help="refuse what no role allows")
    options = parser.parse_args()
    sys.setrecursionlimit(_DEEPEST)  # no code of users runs in this process
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = _STACK_BYTES if most == resource.RLIM_INFINITY else min(_STACK_BYTES, most)
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, most))
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    options.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    work = serve(
        options.directory,
        host=options.host,
        port=options.port,
        bookmark_interval_s=options.bookmark_interval_s,
        history_limit=options.history,
        rbac=options.rbac,
    )
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
