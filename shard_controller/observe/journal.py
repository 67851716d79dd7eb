"""The journal of reconciles: one JSON line per begin and end, written before the reconciler runs.

For the overlap check of tests and demos: unbuffered, O_APPEND, one write per record, CLOCK_BOOTTIME, so that the files
of several processes can be laid side by side. Off unless a path is given.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kubeio.clock import Clock
from kubeio.errors import ApiError, InputError
from kubeio.models import Meta
from shard_controller.declare.request import Request
from shard_controller.observe.observer import Observer, Outcome


class FileJournal(Observer):
    """Appends to *path*; several shards may share the file."""

    def __init__(self, path: Path, *, shard: str, clock: Clock) -> None:
        self._fd = _open(path)
        self._shard = shard
        self._clock = clock
        self._running: dict[Request, Meta] = {}

    def life(self, *, member: str) -> None:
        self._write(e="life", member=member, pid=os.getpid())

    def began(self, request: Request, meta: Meta) -> None:
        self._running[request] = meta
        self._write(e="begin", **_identity(request, meta))

    def ended(
        self, request: Request, outcome: Outcome, error: Exception | None, at: float, took_s: float
    ) -> None:
        self._write(e="end", **_identity(request, self._running.pop(request)), outcome=outcome)

    def refused(self, request: Request, error: ApiError) -> None:
        where = {"resource": request.resource, "key": str(request.key)}
        self._write(e="refused", **where, status=error.status, message=error.message)

    def close(self) -> None:
        os.close(self._fd)

    def _write(self, *, e: str, **fields: object) -> None:
        record = {"e": e, "t": self._clock.now(), "shard": self._shard, **fields}
        os.write(self._fd, msgspec.json.encode(record) + b"\n")


def check_journal(path: Path) -> None:
    """Raises: InputError if *path* cannot be written to; it is made if need be."""
    os.close(_open(path))


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError(
            "--journal",
            str(path),
            f"cannot be written to ({error.strerror})",
            "name a file in a folder that exists",
        ) from None


def _identity(request: Request, meta: Meta) -> dict[str, object]:
    return {
        "resource": request.resource,
        "key": str(request.key),
        "uid": meta.uid,
        "rv": meta.resource_version,
        "gen": meta.generation,
    }
