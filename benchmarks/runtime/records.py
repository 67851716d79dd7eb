"""What measured programs report, read by the benchmark. The writing side is `tally` and `peer/main.go`."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec


class _Record(msgspec.Struct, frozen=True, tag_field="e", tag=str.lower):
    pass


class _Counted(_Record, frozen=True):
    count: int
    first_at: float
    """When the first of them began."""
    at: float
    """When the last of them began."""
    cpu_s: float
    """CPU that the process used in between, all threads together."""

    @property
    def per_s(self) -> float:
        return self.count / (self.at - self.first_at) if self.at > self.first_at else 0.0

    @property
    def per_core_s(self) -> float:
        """For each second of CPU: what one core would do."""
        return self.count / self.cpu_s if self.cpu_s > 0 else 0.0


class Loaded(_Counted, frozen=True):
    """Every object has been cached and reconciled once."""


class Repeated(_Counted, frozen=True):
    """Every object has been reconciled again so many times."""


class Ticked(_Record, frozen=True):
    """The event loop came to its first tick after the load; *worst_ms* is the latest that any tick came until then."""

    at: float
    worst_ms: float
    ticks: int


class Began(_Record, frozen=True):
    """A reconcile began at *at* with the object in *version*; *sent_at* stands in the object, if the stub made it."""

    at: float
    version: str
    sent_at: float = 0.0


Record = Loaded | Repeated | Ticked | Began
R = TypeVar("R", Loaded, Repeated, Ticked, Began)
_decoder = msgspec.json.Decoder(Record)


class Records:
    """One report, read further each time; a line that is not whole yet waits for the next time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[Record] = []
        self._position = 0

    def read(self) -> list[Record]:
        """Every record so far."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._position)
                fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self._position += len(whole)
            self.all += [_decoder.decode(line) for line in whole.splitlines()]
        return self.all

    def of(self, kind: type[R]) -> list[R]:
        """Those of *kind*, so far."""
        return [record for record in self.read() if isinstance(record, kind)]
