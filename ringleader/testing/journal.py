"""The journals that shards write, one file per process: what a record is, and how a growing file is read.

Owns the format of the records and the position up to which a file was read; `ownership_checks` judges them.
`Fleet` reads with it while the shards still write.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class Begin(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="begin"):
    """A reconcile is about to run. *t* is CLOCK_BOOTTIME in seconds, the same clock for every process."""

    t: float
    shard: str
    resource: str
    key: str
    uid: str
    rv: str = ""
    gen: int = 0


class End(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="end"):
    """A reconcile has ended; *outcome* is done, requeue, error, cancelled or lost."""

    t: float
    shard: str
    resource: str
    key: str
    uid: str
    outcome: str = ""


class Life(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="life"):
    """A process became *shard*, a life of *member*."""

    t: float
    shard: str
    member: str
    pid: int


class Refused(msgspec.Struct, frozen=True, gc=False, tag_field="e", tag="refused"):
    """The server refused a fenced write of *shard*."""

    t: float
    shard: str
    key: str
    status: int = 0
    message: str = ""


Record = Begin | End | Life | Refused

_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def parse(lines: bytes) -> list[Record]:
    """Every record of *lines*, in their order.

    Raises: msgspec.DecodeError on a line that is no record: an unreadable journal proves nothing.
    """
    return [_decoder.decode(line) for line in lines.splitlines() if line]


class Journal:
    """One journal file, read further each time; a line that is not whole yet waits for the next time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        self._position = 0

    def read(self) -> list[Record]:
        """The records that came since the last call; all of them so far are in `records`."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._position)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._position += len(whole)
        new = parse(whole)
        self.records.extend(new)
        return new
