"""One kube-apiserver: writes and consistent reads go to the store, watches and cached reads to its watch cache.

The watch cache follows the store and may lag: a list of `resourceVersion=0`, or NotOlderThan, shows the past, and
events come late. Watch semantics are `devcluster.embedded.watches`'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from devcluster.accounts import Account
from devcluster.embedded.endpoints import Answer as PlaneAnswer
from devcluster.embedded.endpoints import Call as PlaneCall
from devcluster.embedded.reads import parse_version
from devcluster.embedded.registry import Kind
from devcluster.embedded.status import Refusal, expired, not_found, too_large
from devcluster.embedded.store import Collection, Entry, Event
from devcluster.embedded.watches import Watch, error_line
from kubeio.http.messages import Answer, Call
from simulation.store import Store
from simulation.world import World

_WAITS_S: Final = 3.0
"""A read that is to be newer than the cache waits for so long, then it is a 504."""
_RETRY_S: Final = 0.05
BOOKMARKS_S: Final = 60.0
Done = Callable[["Answer | ServerWatch"], None]


class WatchCache:
    """Events of *collection* as one API server knows them: *lag_s* late, in order."""

    def __init__(self, world: World, collection: Collection, lag_s: Callable[[], float]) -> None:
        self.collection: Final = collection
        self.version = collection.versions.current
        self.oldest = 0
        """Older versions are forgotten: a watch from there is a 410."""
        self.watches: Final[list[ServerWatch]] = []
        self._world: Final = world
        self._lag_s: Final = lag_s
        self._late: Final[deque[Event]] = deque()
        self._last_at = 0.0
        collection.listeners.append(self._on_event)

    @property
    def newest(self) -> int:
        """The version up to which every event is known."""
        return self.version if self._late else self.collection.versions.current

    def get(self, key: tuple[str, str]) -> Entry | None:
        """An object as the cache has it."""
        for event in self._late:
            if event.key == key:
                return event.old
        return self.collection.get(key)

    def end(self) -> None:
        """Follow the store no more."""
        self.collection.listeners.remove(self._on_event)
        self._late.clear()

    def _on_event(self, event: Event) -> None:
        lag_s = self._lag_s()
        if not lag_s and not self._late:
            self._apply(event)
            return
        self._late.append(event)
        self._last_at = max(self._last_at, self._world.now + lag_s)
        self._world.at(self._last_at, self._apply_next)

    def _apply_next(self) -> None:
        if self._late:  # none after `end`
            self._apply(self._late.popleft())

    def _apply(self, event: Event) -> None:
        self.version = event.version
        for watch in tuple(self.watches):
            watch.on_event(event)


class ServerWatch:
    """One watch that is served: gives lines to *send* from `start` on, until `close`."""

    def __init__(self, world: World, cache: WatchCache, watch: Watch) -> None:
        self.watch: Final = watch
        self.is_closed = False
        self.withholds_bookmarks = False
        self._world: Final = world
        self._cache: Final = cache
        self._send: Callable[[bytes], None] = _nowhere
        self._end: Callable[[], None] = _nothing

    def start(self, send: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Begin: *send* gets lines, *end* is called when the server ends the answer."""
        self._send, self._end = send, end
        cache, watch = self._cache, self.watch
        number = parse_version(watch.version)
        try:
            if watch.send_initial or not number:
                self._send_initial()
            else:
                if number < cache.oldest:
                    raise expired(f"too old resource version: {number} ({cache.oldest})")
                for event in cache.collection.since(number):
                    if event.version <= cache.newest:
                        self.on_event(event)
        except Refusal as refusal:
            send(error_line(refusal))
            self.end()
            return
        cache.watches.append(self)
        self._world.after(BOOKMARKS_S, self._bookmark_again)
        if watch.timeout_s:
            self._world.after(watch.timeout_s, self.end)

    def on_event(self, event: Event) -> None:
        line = self.watch.line(event)
        if line is not None:
            self._send(line)

    def end(self) -> None:
        """End the answer properly, after a last bookmark."""
        if not self.is_closed:
            self._bookmark()
            self.close()
            self._end()

    def close(self) -> None:
        """Nobody reads any more."""
        self.is_closed = True
        if self in self._cache.watches:
            self._cache.watches.remove(self)

    def expire(self) -> None:
        """The server is too far ahead: an ERROR line with 410, and the end."""
        if not self.is_closed:
            self._send(error_line(expired("too old resource version")))
            self.close()
            self._end()

    def _send_initial(self) -> None:
        cache, watch = self._cache, self.watch
        version = cache.newest
        for entry in cache.collection.at(version):
            if watch.wanted.matches(entry):
                self._send(watch.added(entry))
        if watch.send_initial:
            self._send(watch.bookmark(version, initial_end=True))

    def _bookmark_again(self) -> None:
        if not self.is_closed:
            self._bookmark()
            self._world.after(BOOKMARKS_S, self._bookmark_again)

    def _bookmark(self) -> None:
        if self.watch.bookmarks and not self.withholds_bookmarks:
            self._send(self.watch.bookmark(self._cache.newest))


class ApiServer:
    """One API server over *store*."""

    def __init__(self, world: World, store: Store, name: str) -> None:
        self.name: Final = name
        self.is_up = True
        self.lag_s = 0.0
        self.failing = ""
        """A resource (`websites`) whose requests are answered 500."""
        self.requests = 0
        self._world: Final = world
        self._store: Final = store
        self._caches: Final[dict[tuple[str, str], WatchCache]] = {}

    def cache(self, kind: Kind) -> WatchCache:
        """The watch cache of *kind*."""
        key = (kind.group, kind.plural)
        found = self._caches.get(key)
        if found is None:
            found = self._caches[key] = WatchCache(self._world, kind.collection, lambda: self.lag_s)
            kind.collection.end_listeners.append(partial(self._drop, key))
        return found

    def _drop(self, key: tuple[str, str]) -> None:
        """A resource is served no more: its watches end."""
        cache = self._caches.pop(key, None)
        for watch in () if cache is None else tuple(cache.watches):
            watch.end()

    def forget_history(self) -> None:
        """After a restart the watch cache begins with the present."""
        for cache in self._caches.values():
            cache.oldest = cache.newest

    def begin_history(self) -> None:
        """etcd was restored, and this server started anew: nothing of its watch cache is left."""
        for cache in self._caches.values():
            cache.end()
        self._caches.clear()

    def come_back(self) -> None:
        """Serve again after a restart, without history."""
        self.is_up = True
        self.forget_history()

    def catch_up(self) -> None:
        """Lag no more: what is late still comes in its order."""
        self.lag_s = 0.0

    def mend(self) -> None:
        """Serve every resource again."""
        self.failing = ""

    def serve(self, call: Call, account: Account, done: Done, *, waited_s: float = 0.0) -> None:
        """Carry out *call* now and give *done* its answer; a read that must wait for the cache answers later."""
        self.requests += 1
        asked = PlaneCall(
            call.method,
            call.path,
            dict(call.query),
            call.body or b"",
            call.content_type,
            call.accept,
            "",
            account,
        )
        try:
            self._refuse_failing(call)
            behind = self._behind(asked)
            if behind and waited_s < _WAITS_S:
                self._world.after(
                    _RETRY_S, lambda: self.serve(call, account, done, waited_s=waited_s + _RETRY_S)
                )
                return
            if behind:
                raise too_large(behind, self._cache_of(asked).newest)
            done(self._serve(asked))
        except Refusal as refusal:
            headers = []
            if refusal.retry_after_s is not None:
                headers.append((b"Retry-After", b"%d" % refusal.retry_after_s))
            done(Answer(refusal.code, headers, refusal.body()))

    def _refuse_failing(self, call: Call) -> None:
        """Raises: 500 if the resource fails here."""
        if self.failing and f"/{self.failing}" in call.path:
            raise Refusal(500, "InternalError", "Internal error occurred: simulated")

    def _serve(self, call: PlaneCall) -> Answer | ServerWatch:
        if call.method == "GET" and call.query.get("resourceVersion") and "watch" not in call.query:
            call = self._cached(call)
        answer = self._store.serve(call)
        if isinstance(answer, PlaneAnswer):
            return Answer(answer.code, [(b"Content-Type", answer.content_type.encode())], answer.body)
        return ServerWatch(self._world, self._cache_of(call), answer)

    def _cache_of(self, call: PlaneCall) -> WatchCache:
        target = self._store.endpoints.target(call.path)
        if target is None:
            raise LookupError(f"{call.path} names no resource")
        return self.cache(target.kind)

    def _behind(self, call: PlaneCall) -> int:
        """The version that the cache has to reach before it may answer *call*; 0: none."""
        if call.method != "GET" or not ("resourceVersion" in call.query or "watch" in call.query):
            return 0
        target = self._store.endpoints.target(call.path)
        if target is None:
            return 0
        cache = self.cache(target.kind)
        text = call.query.get("resourceVersion", "")
        wanted = parse_version(text) if text else target.kind.collection.confirmed
        return wanted if wanted > cache.newest and call.query.get("resourceVersionMatch") != "Exact" else 0

    def _cached(self, call: PlaneCall) -> PlaneCall:
        """A list of any version, or of none older than one, is the cache's; so is one object. Raises: 404."""
        target = self._store.endpoints.target(call.path)
        if target is None or call.query.get("resourceVersionMatch") == "Exact":
            return call
        cache = self.cache(target.kind)
        if cache.newest == target.kind.collection.versions.current:
            return call
        if target.name:
            entry = cache.get((target.namespace, target.name))
            if entry is None:
                raise not_found(target.kind.subject(target.name))
            return call  # the newest version: a cached one differs in nothing that is read so
        query = {**call.query, "resourceVersion": str(cache.newest), "resourceVersionMatch": "Exact"}
        return msgspec.structs.replace(call, query=query)


def _nowhere(line: bytes) -> None:
    """Not started."""


def _nothing() -> None:
    """Not started."""
