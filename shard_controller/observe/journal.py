"""The journal of reconciles: one JSON line per begin and end, written before the reconciler runs.

A witness for tests and demonstrations: unbuffered, O_APPEND, one write per record, CLOCK_BOOTTIME, so that the files
of several processes can be laid side by side. Off unless a path is given.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from kubeio.clock import Clock
from kubeio.errors import InputError
from kubeio.models import Meta

Outcome = Literal["done", "requeue", "error", "cancelled", "lost"]


class Journal(Protocol):
    def life(self, *, member: str) -> None: ...
    def begin(self, resource: str, meta: Meta) -> None: ...
    def end(self, resource: str, meta: Meta, outcome: Outcome) -> None: ...
    def refused(self, resource: str, key: str, *, status: int, message: str) -> None: ...


class NoJournal:
    """Writes nothing."""

    def life(self, *, member: str) -> None: ...
    def begin(self, resource: str, meta: Meta) -> None: ...
    def end(self, resource: str, meta: Meta, outcome: Outcome) -> None: ...
    def refused(self, resource: str, key: str, *, status: int, message: str) -> None: ...


class FileJournal:
    """Appends to *path*; several lives may share the file."""

    def __init__(self, path: Path, *, shard: str, clock: Clock) -> None:
        self._fd = _open(path)
        self._shard = shard
        self._clock = clock

    def life(self, *, member: str) -> None:
        self._write(e="life", member=member, pid=os.getpid())

    def begin(self, resource: str, meta: Meta) -> None:
        self._write(e="begin", **_identity(resource, meta))

    def end(self, resource: str, meta: Meta, outcome: Outcome) -> None:
        self._write(e="end", **_identity(resource, meta), outcome=outcome)

    def refused(self, resource: str, key: str, *, status: int, message: str) -> None:
        self._write(e="refused", resource=resource, key=key, status=status, message=message)

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


def _identity(resource: str, meta: Meta) -> dict[str, object]:
    return {
        "resource": resource,
        "key": str(meta.key),
        "uid": meta.uid,
        "rv": meta.resource_version,
        "gen": meta.generation,
    }
