"""One endless list-then-watch session of one resource under one selector.

Owns the newest version seen and the healing of the stream: re-watch, relist, back-off, silence. Keeps no objects
(that is `kubeio.watches.store`). Consumers must read fast and work elsewhere: the server cuts watchers that lag.

Reads (docs/adr/0006): the first list is a consistent read, streamed (WatchList) where the server can
do that, else in pages. Later ones come in pages, nothing older than the newest version seen, and an answer
that is older all the same is refused. A server whose history went back (a restored backup) is thus
never believed: the session stays stale until its process is started again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.clock import Clock
from kubeio.decoding import Unfit
from kubeio.errors import (
    ApiError,
    BadRequest,
    Expired,
    Forbidden,
    InputError,
    Invalid,
    KubeError,
    NotFound,
    ServerFailure,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from kubeio.http.lines import Lines
from kubeio.models import Meta, Object
from kubeio.versions import is_older, newest
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.watch_events import (
    Bookmark,
    Changed,
    Gap,
    InitialEventsEnd,
    ListDone,
    Listed,
    ListStarted,
    Removed,
    WatchEvent,
    decode_line,
)

__all__ = [
    "Bookmark",
    "Changed",
    "Gap",
    "ListDone",
    "ListStarted",
    "Listed",
    "Reflector",
    "Removed",
    "WatchEvent",
]

_log = structlog.get_logger("kubeio")
_FINAL: Final = (BadRequest, Forbidden, InputError, Invalid, NotFound, Unauthorized)
"""A first list that fails like this will fail again: the failure is raised."""
_INITIAL_EVENTS: Final = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
_WATCH_LASTS_S: Final = (300, 600)
_EMPTY_WATCH_S: Final = 1.0
"""A watch that ends sooner than this and said nothing has failed, however politely."""
_INITIAL_SILENCE_S: Final = 30.0
"""A streamed list pauses for less; a server that ignores `sendInitialEvents` sends nothing more."""
_RELIST_AFTER_FAILURES: Final = 5
_PART: Final = 100
"""Objects of one `Listed` at most: the consumer yields to the event loop in between."""


class _NoStreamedList(KubeError):
    """The server cannot stream a list; read it in pages."""


class Reflector:
    """The session. `events` is iterated once; the other attributes may be read at any time.

    `watching_since` is when the server began to answer the present watch, on the clock; None while there is none.

    *since*: the version of a list that the consumer reads by itself. The session begins with the watch then, and
    `events` raises what makes another list necessary instead of reading one.
    """

    def __init__(
        self,
        source: ListerWatcher,
        *,
        page_size: int = 500,
        silence_s: float = 90.0,
        since: str = "",
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.resource: Final = source.resource
        self.resource_version = since
        self.sign_of_life_at = clock.now()
        self.watching_since: float | None = None
        self.failures = 0
        self.last_error: KubeError | None = None
        self._source = source
        self._page_size = page_size
        self._part = min(page_size, _PART)
        self._silence_s = silence_s
        self._clock = clock
        self._rng = rng
        self._backoff = ExponentialBackoff(base_s=0.25, max_s=10.0, healthy_s=60.0, rng=rng)
        self._attempted = source.attempted
        self._is_listed = bool(since)  # of now: the watch can go on from `resource_version`
        self._was_listed = bool(since)  # ever
        self._lists = not since
        self._streams_lists = True
        self._limit = page_size

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """Everything that happens, for ever. Close it (`aclosing`) to end the session.

        Raises: Unauthorized, Forbidden, NotFound, BadRequest, Invalid, InputError if the very first list fails so;
        with *since* Expired and other errors that make the state uncertain.
        """
        while True:
            try:
                async with aclosing(self._next_phase()) as phase:
                    async for event in phase:
                        yield event
            except _NoStreamedList:
                self._streams_lists = False
            except KubeError as error:
                if not self._was_listed and isinstance(error, _FINAL):
                    raise
                gap = self._failed(error)
                if not self._is_listed and not self._lists:
                    raise
                yield gap
                await asyncio.sleep(gap.retry_in_s)

    def _next_phase(self) -> AsyncGenerator[WatchEvent, None]:
        if self._is_listed:
            return self._watch()
        if self._streams_lists and not self._was_listed:
            return self._stream_list()
        return self._read_pages()

    def _failed(self, error: KubeError) -> Gap:
        """Note the failure, decide whether to list again, and how long to wait."""
        self.failures += 1
        self.watching_since = None
        is_refused = isinstance(error, ApiError) and not isinstance(error, TooManyRequests)
        if isinstance(error, Expired) and isinstance(self.last_error, Unreachable):
            self._backoff.reset()  # the outage is over: what it taught about waiting does not count any more
        self.last_error = error
        # After silence a new watch might be as dead as the last one, and a quiet server looks the same: a list decides.
        if isinstance(error, Expired | _Silent) or (
            is_refused and self.failures % _RELIST_AFTER_FAILURES == 0
        ):
            self._is_listed = False
        asked_s = error.retry_after_s if isinstance(error, ApiError) else None
        return Gap(error, self._backoff.failed(self._clock.now(), at_least_s=asked_s or 0.0))

    def _is_alive(self) -> None:
        self.sign_of_life_at = self._clock.now()
        self.failures = 0
        self.last_error = None

    # -- lists

    async def _read_pages(self) -> AsyncGenerator[WatchEvent, None]:
        version, continue_ = "", ""
        while True:
            try:
                page = await self._source.page(
                    limit=self._limit, continue_=continue_, not_older_than=self.resource_version
                )
            except Expired:
                # Reading took longer than the server keeps history: next time in one go.
                self._limit = 0 if continue_ else self._page_size
                raise
            if not version:
                version = page.resource_version
                self._refuse_older(version)
                yield ListStarted()
            self._is_alive()
            for unfit in page.unfit:
                self._report(unfit)
            for part in self._parts(page.objects):
                yield Listed(part)
            continue_ = page.continue_
            if not continue_:
                break
        yield self._list_complete(version)

    def _parts(self, objects: list[Object]) -> Iterator[list[Object]]:
        """*objects*, no more at once than a part has: a page may be long, and a list read in one go has no pages."""
        for begin in range(0, max(len(objects), 1), self._part):
            yield objects[begin : begin + self._part]

    async def _stream_list(self) -> AsyncGenerator[WatchEvent, None]:
        """The first list by WatchList; the watch then goes on in the same stream.

        Only the first: a streamed list names its version at its end, so that the objects of a stale one would
        be believed before it can be refused.
        """
        try:
            async with self._stream(_INITIAL_EVENTS) as lines:
                yield ListStarted()
                while not self._is_listed:
                    part = await self._next_lines(lines, min(self._silence_s, _INITIAL_SILENCE_S))
                    if not part:  # a server does so to a slow reader
                        raise _NoStreamedList("the server ended the stream amid the list")
                    self._is_alive()
                    rest = iter(part)
                    batch, version = self._listed(rest)
                    yield Listed(batch)
                    if version is not None:
                        yield self._list_complete(version)
                part = list(rest)  # came in one piece with the end of the list
                while part or (part := await self._next_lines(lines, self._silence_s)):
                    for line in part:
                        yield self._seen(decode_line(line, self._attempted))
                    part = []
        except (BadRequest, Invalid, _Silent) as error:
            if self._is_listed:
                raise
            raise _NoStreamedList(str(error)) from error

    def _listed(self, part: Iterator[bytes]) -> tuple[list[Object], str | None]:
        """Objects of the initial events in *part*, and the version of the list if it ends there, with some left."""
        batch: list[Object] = []
        for line in part:
            match decode_line(line, self._attempted):
                case Changed(object=obj):
                    batch.append(obj)
                case InitialEventsEnd(resource_version=version):
                    return batch, version
                case Unfit() as unfit:
                    self._report(unfit)
                case _:
                    raise _NoStreamedList("the list is followed by no end mark")
        return batch, None

    def _refuse_older(self, version: str) -> None:
        if is_older(version, self.resource_version):
            raise ServerFailure(
                self._attempted,
                status=200,
                reason="StaleList",
                message=f"the list is of version {version}, {self.resource_version} was seen before",
            )

    def _list_complete(self, version: str) -> ListDone:
        self._is_alive()
        self.resource_version = newest(self.resource_version, version)
        self._is_listed = self._was_listed = True
        self._limit = self._page_size
        return ListDone(version)

    # -- watch

    async def _watch(self) -> AsyncGenerator[WatchEvent, None]:
        started_at = self._clock.now()
        said_nothing = True
        async with self._stream({"resourceVersion": self.resource_version}) as lines:
            self.watching_since = self._clock.now()
            while part := await self._next_lines(lines, self._silence_s):
                said_nothing = False
                for line in part:
                    yield self._seen(decode_line(line, self._attempted))
        if said_nothing and self._clock.now() - started_at < _EMPTY_WATCH_S:
            raise Unreachable(self._attempted, "the watch ended as soon as it began", maybe_done=False)

    def _seen(self, event: Changed | Removed | Bookmark | InitialEventsEnd | Unfit) -> WatchEvent:
        """Note how far the watch has come. An object that cannot be read is not there."""
        self._is_alive()
        if isinstance(event, Unfit):
            self._report(event)
            key, version = event.key, event.resource_version
            event = Removed(Object(Meta(key.name, key.namespace, resource_version=version), b""))
        match event:
            case Changed(object=obj) | Removed(object=obj):
                self.resource_version = newest(self.resource_version, obj.meta.resource_version)
                return event
            case Bookmark(resource_version=version) | InitialEventsEnd(resource_version=version):
                self.resource_version = newest(self.resource_version, version)
                return Bookmark(version)

    def _report(self, unfit: Unfit) -> None:
        _log.error(
            "object cannot be read",
            resource=self.resource.group_resource,
            object=str(unfit.key),
            version=unfit.resource_version,
            error=unfit.problem,
            remedy="correct the object's metadata; until then it counts as absent",
        )

    def _stream(self, query: Mapping[str, str]) -> AbstractAsyncContextManager[Lines]:
        return self._source.watch(query, lasts_s=self._rng.randint(*_WATCH_LASTS_S))

    async def _next_lines(self, lines: Lines, limit_s: float) -> list[bytes]:
        """Lines that have come, a part of a list at most; none if the server ended the stream.

        Raises _Silent when none came for *limit_s*.
        """
        try:
            return await lines.take(self._part, timeout_s=limit_s)
        except TimeoutError as error:
            raise _Silent(self._attempted, limit_s) from error


class _Silent(Unreachable):
    """Neither event nor bookmark for too long: the stream is dead, whatever TCP says."""

    def __init__(self, attempted: str, silence_s: float) -> None:
        super().__init__(attempted, f"nothing came for {silence_s:g} s", maybe_done=False)
