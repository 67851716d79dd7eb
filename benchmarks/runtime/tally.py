"""Counts reconciles inside a measured program, and reports to the benchmark through a file.

Imports nothing beyond the standard library: it is part of every Python program whose memory is measured.
Times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import time


class Report:
    """A file of JSON lines; each is there in one piece or not at all."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, event: str, **fields: float | str) -> None:
        os.write(self._fd, json.dumps({"e": event, **fields}).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


class Tally:
    """Reports when *objects* reconciles have been begun, and then when each object came *again* times more."""

    def __init__(self, report: Report, *, objects: int, again: int = 0) -> None:
        self._report = report
        self._objects = objects
        self._all = objects * (1 + again)
        self._began = (0.0, 0.0)
        self.count = 0

    @property
    def is_loaded(self) -> bool:
        """Whether every object has been reconciled once."""
        return self.count >= self._objects

    def one(self) -> bool:
        """Count a reconcile; whether its object is to come again."""
        self.count += 1
        if self.count == 1:
            self._began = _now()
        if self.count == self._objects:
            self._report_count("loaded", self.count)
            self._began = _now()
        elif self.count == self._all:
            self._report_count("repeated", self._all - self._objects)
        return self.count <= self._all - self._objects

    def _report_count(self, event: str, count: int) -> None:
        at, cpu_s = _now()
        first_at, cpu_before_s = self._began
        self._report.write(event, count=count, first_at=first_at, at=at, cpu_s=cpu_s - cpu_before_s)


def _now() -> tuple[float, float]:
    """The clock, and what this process has used of the CPU, all threads together."""
    return time.monotonic(), time.process_time()
