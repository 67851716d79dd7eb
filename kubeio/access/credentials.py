"""Credentials for one server: Authorization header and client certificate, renewed automatically.

Owns the time of each renewal. At most one renewal runs, however many clients, threads and loops wait. A source is
thread-safe. A small file is read in place; a plugin runs in a thread. The plugins themselves:
`kubeio.access.plugins`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from kubeio.clock import Clock
from kubeio.errors import InputError, KubeError, Unreachable
from kubeio.http.endpoint import Credential

FILE_CHECK_S: Final = 1.0
"""Time between two checks of a file's status."""
FILE_REREAD_S: Final = 60.0
"""Time after which a file is read even if its status is the same."""
_RENEW_AT_PART: Final = 0.8
"""Part of a credential's validity after which a new one is fetched in the background."""
_LAST_PART: Final = 0.05
"""Part of a credential's validity, at its end, in which it is no longer used (at most `_MAX_LAST_S`)."""
_MAX_LAST_S: Final = 10.0
_RETRY_PART: Final = 0.02
"""Part of a credential's validity between two tries to renew it in the background."""
_MAX_RETRY_S: Final = 30.0
_MIN_BETWEEN_S: Final = 1.0
"""Between two renewals that the server's 401 asks for, or that failed."""

_log = structlog.get_logger("kubeio")


ANONYMOUS: Final = Credential()


class FixedCredentials:
    """A token, password or certificate that stands in the kubeconfig itself."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def current(self) -> Credential | None:
        return self._credential

    async def renewed(self) -> Credential:
        return self._credential

    def reject(self, credential: Credential) -> None:
        """Nothing else is known."""


class FileCredentials:
    """A token or certificate in files that others rotate: read again when they change, each minute, and at 401."""

    def __init__(self, paths: list[Path], read: Callable[[], Credential], clock: Clock) -> None:
        self._paths = paths
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._signature = self._stat()
        self._credential = read()
        self._read_at = self._checked_at = clock.now()

    def current(self) -> Credential | None:
        if self._clock.now() - self._checked_at >= FILE_CHECK_S:
            with self._lock:
                self._check(self._clock.now())
        return self._credential

    async def renewed(self) -> Credential:
        return self._credential

    def reject(self, credential: Credential) -> None:
        with self._lock:
            if credential == self._credential:
                self._read_again(self._stat(), self._clock.now())

    def _check(self, now: float) -> None:
        self._checked_at = now
        signature = self._stat()
        if signature != self._signature or now - self._read_at >= FILE_REREAD_S:
            self._read_again(signature, now)

    def _read_again(self, signature: object, now: float) -> None:
        try:
            self._credential = self._read()
        except InputError as error:
            # Rotation in progress, or gone: what we have may still be good, and the next check tries again.
            _log.warning("credential file unreadable", problem=str(error))
            return
        self._signature = signature
        self._read_at = now

    def _stat(self) -> object:
        return [_signature(path) for path in self._paths]


@dataclass(frozen=True, slots=True)
class FetchedCredential:
    """A credential and the seconds until it expires; None: until the server refuses it."""

    credential: Credential
    valid_s: float | None


class PluginCredentials:
    """Credentials of limited validity from *fetch*, which blocks and may take seconds."""

    def __init__(self, fetch: Callable[[], FetchedCredential], clock: Clock, description: str) -> None:
        self._fetch = fetch
        self._clock = clock
        self._description = description
        self._lock = threading.RLock()
        self._running: concurrent.futures.Future[Credential] | None = None
        self._credential: Credential | None = None
        self._was_ever_there = False
        self._renew_at = self._ends_at = float("inf")
        self._ended_at = float("-inf")  # the last attempt
        self._retry_s = _MIN_BETWEEN_S
        self._failure: KubeError | None = None

    def current(self) -> Credential | None:
        now = self._clock.now()
        if self._is_due(now):
            with self._lock:
                if self._is_due(now):  # else it was tried a moment ago
                    self._start()
        return self._usable(now)

    async def renewed(self) -> Credential:
        with self._lock:
            now = self._clock.now()
            usable = self._usable(now)
            if usable is not None:
                return usable
            if self._failure is not None and now - self._ended_at < _MIN_BETWEEN_S:
                raise self._failure
            running = self._start()
        return await asyncio.shield(asyncio.wrap_future(running))

    def reject(self, credential: Credential) -> None:
        with self._lock:
            is_new = self._clock.now() - self._ended_at < _MIN_BETWEEN_S
            if credential == self._credential and not is_new:
                self._credential = None

    def _is_due(self, now: float) -> bool:
        return now >= self._renew_at and now - self._ended_at >= self._retry_s

    def _usable(self, now: float) -> Credential | None:
        return self._credential if now < self._ends_at else None

    def _start(self) -> concurrent.futures.Future[Credential]:
        """The renewal under way, or a new one in a thread of its own, which may outlive every loop.

        The caller holds the lock.
        """
        if self._running is not None:
            return self._running
        running = self._running = concurrent.futures.Future()
        name = f"credentials of {self._description}"
        try:
            threading.Thread(target=self._renew, args=(running,), name=name, daemon=True).start()
        except RuntimeError as error:  # the container's limit of pids
            failure = Unreachable(self._description, repr(error), maybe_done=False)
            running.set_exception(self._note_failure(failure))
        return running

    def _renew(self, running: concurrent.futures.Future[Credential]) -> None:
        try:
            fetched = self._fetch()
        except KubeError as error:
            running.set_exception(self._note_failure(error))
        except Exception as error:  # raised to the waiters, whatever it is
            failure = Unreachable(self._description, repr(error), maybe_done=False)
            running.set_exception(self._note_failure(failure))
        else:
            self._note_success(fetched)
            running.set_result(fetched.credential)

    def _note_success(self, fetched: FetchedCredential) -> None:
        with self._lock:
            now = self._ended_at = self._clock.now()
            valid_s = float("inf") if fetched.valid_s is None else max(fetched.valid_s, 0.0)
            self._credential = fetched.credential
            self._was_ever_there = True
            self._failure = None
            self._renew_at = now + valid_s * _RENEW_AT_PART
            self._retry_s = min(max(valid_s * _RETRY_PART, _MIN_BETWEEN_S), _MAX_RETRY_S)
            self._ends_at = now + valid_s - min(valid_s * _LAST_PART, _MAX_LAST_S)
            self._running = None

    def _note_failure(self, error: KubeError) -> KubeError:
        """Record *error* and give the error to raise.

        A failure after an earlier success is an outage, not a mistake in the input: it becomes Unreachable.
        """
        if self._was_ever_there:
            error = Unreachable(self._description, str(error), maybe_done=False)
        with self._lock:
            self._ended_at = self._clock.now()
            self._failure = error
            self._running = None
            is_in_background = self._credential is not None and self._ended_at < self._ends_at
        if is_in_background:  # no request waits, so no request would report it
            _log.warning("credentials not renewed", source=self._description, problem=str(error))
        return error


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
