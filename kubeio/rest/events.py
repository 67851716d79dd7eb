"""Events (events.k8s.io/v1), as `kubectl events` shows them: deduplicated, paced, best effort.

Owns the running series and the Events still to be written. Nothing depends on them: an Event that cannot be written is
dropped and counted. `record` never waits.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal, Never

import msgspec
import structlog

from kubeio.clock import Clock, micro_time
from kubeio.errors import Forbidden, KubeError, NotFound
from kubeio.models import Meta
from kubeio.patch import MergePatch
from kubeio.resource import EVENTS, ApiResource
from kubeio.rest.client import Client

_log = structlog.get_logger("kubeio")
_SERIES_S: Final = 360.0
"""A repetition after a longer pause is a new Event."""
_REFRESH_S: Final = 30.0
"""A running series is written at most this often."""
_MAX_SERIES: Final = 1000
_MAX_NOTE: Final = 1024
_MAX_NAME: Final = 253
_BETWEEN_WRITES_S: Final = 0.1
_TIMEOUT_S: Final = 10.0
_RIGHT: Final = "grant create and patch on events of the group events.k8s.io; nothing else depends on it"

Type = Literal["Normal", "Warning"]


class Regarding(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, resource: ApiResource, meta: Meta) -> Regarding:
        return cls(resource.api_version, resource.kind, meta.name, meta.namespace, meta.uid)


class _Key(msgspec.Struct, frozen=True):
    """Key of a series: the fields that are equal in all its Events."""

    regarding: Regarding
    type: Type
    reason: str
    action: str
    note: str


class _Series(msgspec.Struct):
    """One Event and its repetitions. *name* is empty until it was written."""

    first_at: str
    last_at: str
    seen_at: float
    count: int = 1
    written_count: int = 0
    written_at: float = 0.0
    name: str = ""


class EventRecorder:
    """`record` from anywhere on the loop; `run` writes, until cancelled.

    *reporter* is the program (`ringleader.dev/sharder`), *instance* the process; *on_dropped* is called for each Event
    that could not be written. A missing permission to write Events is logged once.
    """

    def __init__(
        self,
        client: Client,
        *,
        reporter: str,
        instance: str,
        clock: Clock,
        rng: random.Random,
        on_dropped: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._reporter = reporter
        self._instance = instance[:128]
        self._clock = clock
        self._rng = rng
        self._series: OrderedDict[_Key, _Series] = OrderedDict()  # the longest silent one first
        self._recorded = asyncio.Event()
        self._on_dropped = on_dropped
        self._is_forbidden = False

    def record(
        self,
        regarding: Regarding,
        *,
        reason: str,
        action: str,
        note: str,
        type: Type = "Normal",  # noqa: A002 - the API's name
    ) -> None:
        """Record that *action* was taken on *regarding*, for *reason* (CamelCase)."""
        key = _Key(regarding, type, reason, action, _shortened(note))
        now, instant = self._clock.now(), micro_time(self._clock.wall())
        series = self._series.get(key)
        if series is None or now - series.seen_at > _SERIES_S:
            self._series[key] = _Series(instant, instant, now)
        else:
            series.count += 1
            series.last_at, series.seen_at = instant, now
        self._series.move_to_end(key)
        if len(self._series) > _MAX_SERIES:
            _, oldest = self._series.popitem(last=False)
            if not oldest.name:
                self._on_dropped()
        self._recorded.set()

    async def run(self) -> Never:
        """Write what was recorded, at most ten a second."""
        while True:
            key = self._next_due()
            if key is None:
                await self._wait_for_records()
                continue
            await self._write(key, self._series[key])
            await asyncio.sleep(_BETWEEN_WRITES_S)

    def _next_due(self) -> _Key | None:
        """A series that was never written, else one whose count is old; forgets those that ended."""
        now = self._clock.now()
        ended = [
            k for k, s in self._series.items() if s.written_count == s.count and now - s.seen_at > _SERIES_S
        ]
        for key in ended:
            del self._series[key]
        due = [(s.name != "", s.written_at, k) for k, s in self._series.items() if self._is_due(s, now)]
        return min(due, key=lambda entry: entry[:2])[2] if due else None

    @staticmethod
    def _is_due(series: _Series, now: float) -> bool:
        if series.written_count == series.count:
            return False
        return not series.name or now - series.written_at >= _REFRESH_S

    async def _wait_for_records(self) -> None:
        self._recorded.clear()
        try:
            async with asyncio.timeout(_REFRESH_S / 3):
                await self._recorded.wait()
        except TimeoutError:
            return

    async def _write(self, key: _Key, series: _Series) -> None:
        count = series.count
        try:
            if series.name:
                await self._refresh(key, series)
            else:
                await self._create(key, series)
        except (KubeError, TimeoutError) as error:
            self._on_dropped()
            if isinstance(error, Forbidden) and not self._is_forbidden:
                self._is_forbidden = True
                _log.warning("events cannot be written", error=str(error), remedy=_RIGHT)
            _log.debug("event not written", reason=key.reason, regarding=key.regarding.name, error=str(error))
        # Written or not, it counts as written: best effort does not queue up behind an outage.
        series.written_count, series.written_at = count, self._clock.now()

    async def _create(self, key: _Key, series: _Series) -> None:
        suffix = f".{self._rng.getrandbits(64):016x}"
        name = key.regarding.name[: _MAX_NAME - len(suffix)] + suffix
        document: dict[str, object] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": _namespace(key)},
            "eventTime": series.first_at,
            "type": key.type,
            "reason": key.reason,
            "action": key.action,
            "note": key.note,
            "regarding": key.regarding,
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
        }
        if series.count > 1:
            document["series"] = _counted(series)
        series.name = name  # also if it fails: a repetition then finds nothing to refresh and starts anew
        await self._client.create(
            EVENTS, document, namespace=_namespace(key), type=bytes, timeout_s=_TIMEOUT_S
        )

    async def _refresh(self, key: _Key, series: _Series) -> None:
        patch = MergePatch({"series": _counted(series)})
        try:
            await self._client.patch(
                EVENTS, series.name, patch, namespace=_namespace(key), type=bytes, timeout_s=_TIMEOUT_S
            )
        except NotFound:  # expired on the server, or never arrived
            await self._create(key, series)


def _counted(series: _Series) -> dict[str, object]:
    return {"count": series.count, "lastObservedTime": series.last_at}


def _namespace(key: _Key) -> str:
    return key.regarding.namespace or "default"


def _shortened(note: str) -> str:
    """*note* within the API's limit of bytes."""
    encoded = note.encode()
    if len(encoded) <= _MAX_NOTE:
        return note
    return encoded[: _MAX_NOTE - 3].decode("utf-8", "ignore") + "..."
