"""Lines between the command and the locust process that it started: waits in one direction, the load's state back.

Runs on gevent, inside locust's master or its only process. The command listens on a Unix socket whose path is in the
environment; without it (locust started by hand) nothing is bridged.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Final

import gevent
import msgspec

VARIABLE: Final = "RINGLEADER_LOADTEST_SOCKET"
WATCH: Final = "WATCH"
"""Request type of the waits in locust's statistics."""
_REPORT_S: Final = 1.0


class Waits(msgspec.Struct, tag="waits"):
    """Waits that ended: (name, milliseconds)."""

    found: list[tuple[str, float]]


class StopMessage(msgspec.Struct, tag="stop"):
    """The run is over: print the statistics and end."""


class Started(msgspec.Struct, tag="started"):
    """The load began *at* this instant of CLOCK_BOOTTIME."""

    at: float


class CountMessage(msgspec.Struct, tag="count"):
    """Requests and failures since the load began, and users now."""

    at: float
    requests: int
    failures: int
    users: int


class Notice(msgspec.Struct, tag="notice"):
    """Something that the report must say."""

    text: str


ToLocust = Waits | StopMessage
FromLocust = Started | CountMessage | Notice
_decode = msgspec.json.Decoder(ToLocust).decode
_encode = msgspec.json.Encoder().encode
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Bridge:
    """The locust side. `stopped` is set when the command asks for the end, or is gone."""

    def __init__(self, environment: Any, path: str) -> None:
        self._environment = environment
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._missing: set[str] = set()
        self._has_warned = False
        self.stopped = False
        environment.events.cpu_warning.add_listener(lambda **_: self._warn_busy())
        gevent.spawn(self._read)

    def started(self) -> None:
        """The load begins now."""
        self.send(Started(time.clock_gettime(_CLOCK)))
        gevent.spawn(self._report)

    def send(self, message: FromLocust) -> None:
        try:
            self._socket.sendall(_encode(message) + b"\n")
        except OSError:
            self.stopped = True

    def _read(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                match _decode(line):
                    case Waits(found=found):
                        self._fire(found)
                    case StopMessage():
                        break
        self.stopped = True

    def _fire(self, found: list[tuple[str, float]]) -> None:
        for name, milliseconds in found:
            self._environment.events.request.fire(
                request_type=WATCH,
                name=name,
                response_time=milliseconds,
                response_length=0,
                exception=None,
                context={},
            )

    def _report(self) -> None:
        while not self.stopped:
            self.report_now()
            gevent.sleep(_REPORT_S)

    def report_now(self) -> None:
        """Send the counts as they are now."""
        entries = [entry for (_, method), entry in self._environment.stats.entries.items() if method != WATCH]
        requests = sum(entry.num_requests for entry in entries)
        failures = sum(entry.num_failures for entry in entries)
        users = self._environment.runner.user_count
        self.send(CountMessage(time.clock_gettime(_CLOCK), requests, failures, users))
        self._report_missing()
        if getattr(self._environment.runner, "worker_cpu_warning_emitted", False):
            self._warn_busy()

    def _warn_busy(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = "locust used more than 90 % of a core: its waits may be its own; use --processes or more machines"
            self.send(Notice(text))

    def _report_missing(self) -> None:
        """Say once for each worker that it is gone: locust gives its users to the others."""
        clients = getattr(self._environment.runner, "clients", None)
        for worker in clients.missing if clients is not None else ():
            if worker.id not in self._missing:
                self._missing.add(worker.id)
                self.send(Notice(f"locust worker {worker.id} was lost; the others took over its users"))


def connect(environment: Any) -> Bridge | None:
    """The bridge of this process, if it is the one that has one."""
    path = os.environ.get(VARIABLE)
    return Bridge(environment, path) if path else None
