"""Write log: every write that reached an object, accepted or refused, as one `Write`.

`WriteFile` keeps them as JSON lines. A record is on disk before the client reads its answer, so a reader who waited for
the answer finds it. `plane` reads the file back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from devcluster.embedded.registry import Kind
from devcluster.embedded.store import Entry
from devcluster.plane import Write, asks_for_labels_only

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(Write)


def boot_time() -> float:
    """CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(_CLOCK)


class WriteLog:
    """Passes each record to *keep*, timed by *now*."""

    def __init__(self, keep: Callable[[Write], None], *, now: Callable[[], float]) -> None:
        self._keep = keep
        self._now = now
        self._seq = 0

    def add(
        self,
        *,
        user: str,
        verb: str,
        kind: Kind,
        namespace: str,
        name: str,
        subresource: str,
        before: Entry | None,
        after: Entry | None,
        code: int,
        message: str = "",
        body: bytes = b"",
    ) -> None:
        """Record one write; for a refused one *after* is what it left as it was. *body*: of a patch."""
        self._seq += 1
        entry = after or before
        record = Write(
            seq=self._seq,
            t=self._now(),
            user=user,
            verb=verb,
            resource=kind.resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            uid=entry.uid if entry else "",
            resource_version=str(entry.version) if entry else "",
            code=code,
            labels_before=before.labels if before else None,
            labels_after=after.labels if after else None,
            message=message,
            object=_lease_part(after) if after and kind.plural == "leases" else None,
            only_labels=asks_for_labels_only(body),
            controller=_controller_uid(after) if after and before is None else "",
        )
        self._keep(record)

    def wipe(self) -> None:
        """Number from 1 again."""
        self._seq = 0


class WriteFile(WriteLog):
    """Appends to *path*; `close` when done."""

    def __init__(self, path: Path) -> None:
        super().__init__(self._append, now=boot_time)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _append(self, record: Write) -> None:
        os.write(self._fd, _encode(record) + b"\n")

    def wipe(self) -> None:
        """Forget every record."""
        super().wipe()
        os.ftruncate(self._fd, 0)

    def close(self) -> None:
        os.close(self._fd)


def _lease_part(entry: Entry) -> dict[str, object]:
    doc = entry.decoded()
    return {"annotations": doc["metadata"].get("annotations") or {}, "spec": doc.get("spec") or {}}


def _controller_uid(entry: Entry) -> str:
    references = entry.decoded()["metadata"].get("ownerReferences") or [] if entry.owned else []
    return next((str(each["uid"]) for each in references if each.get("controller")), "")


def read_writes(path: Path) -> list[Write]:
    """Every complete record of the log at *path*; a line that is still being written is left out."""
    if not path.exists():
        return []
    data = path.read_bytes()
    return [_decoder.decode(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
