"""Objects, their versions and a bounded history: what etcd and the watch cache are to the real server. Pure.

Owns every stored object (as the bytes that are served, with the fields that are read often) and the one
counter of resource versions. Does not know HTTP, schemas or who may do what: `writes` decides, this keeps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from sortedcontainers import SortedDict

from devcluster.embedded.status import expired, too_large

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace (empty if cluster-scoped) and name: the order of lists."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One version of one object. *labels* is shared between equal sets: never change it.

    *raw* is the object without its managedFields: those are in *managed*, as bytes shared between equal ones. They
    belong at *metadata_end*, the last byte of the metadata in *raw*.
    """

    namespace: str
    name: str
    uid: str
    version: int
    labels: dict[str, str]
    raw: bytes
    metadata_end: int = 0
    managed: bytes = b""
    generation: int = 0
    deleting: bool = False
    owned: bool = False

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    @property
    def document(self) -> bytes:
        """The whole object, as it is served."""
        if not self.managed:
            return self.raw
        return b'%b,"managedFields":%b%b' % (
            self.raw[: self.metadata_end],
            self.managed,
            self.raw[self.metadata_end :],
        )

    @property
    def metadata(self) -> bytes:
        """The metadata, as they are served."""
        start = self.raw.index(b'"metadata":') + 11
        managed = b',"managedFields":' + self.managed if self.managed else b""
        return self.raw[start : self.metadata_end] + managed + b"}"

    def decoded(self) -> dict[str, Any]:
        """A fresh copy without managedFields that the caller may change."""
        doc: dict[str, Any] = msgspec.json.decode(self.raw)
        return doc


class Event(msgspec.Struct, frozen=True, gc=False):
    """What one write did: *old* is None for a create, *new* for a removal."""

    version: int
    old: Entry | None
    new: Entry | None

    @property
    def key(self) -> Key:
        return _present(self.new or self.old).key


Listener = Callable[[Event], None]


class Versions:
    """The counter that all collections share: one number per write, as in etcd."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current = 1

    def next(self) -> int:
        self.current += 1
        return self.current


class Interner:
    """Equal values become one; forgets everything rather than grow without end."""

    __slots__ = ("_known",)
    MAX: Final = 50_000

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def labels(self, labels: dict[str, str]) -> dict[str, str]:
        return self._intern(frozenset(labels.items()), labels) if labels else _NO_LABELS

    def managed(self, managed: bytes) -> bytes:
        return self._intern(managed, managed)

    def _intern(self, key: object, value: T) -> T:
        if len(self._known) >= self.MAX:
            self._known.clear()
        known: T = self._known.setdefault(key, value)
        return known


_NO_LABELS: Final[dict[str, str]] = {}


class Collection:
    """All objects of one resource and the last *history_limit* of its events.

    Keys are sorted: pages go through them in order. `forgotten` is the newest version whose event is gone.
    """

    def __init__(self, versions: Versions, *, history_limit: int) -> None:
        self.versions: Final = versions
        self.history_limit: Final = history_limit
        self.forgotten = versions.current
        self.confirmed = versions.current
        """Every event up to this version is here: the newest version for a bookmark."""
        self.listeners: list[Listener] = []
        self.end_listeners: list[Callable[[], None]] = []
        """Called when the resource is served no more."""
        self._entries: SortedDict = SortedDict()
        self._history: list[Event] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Entry | None:
        entry: Entry | None = self._entries.get(key)
        return entry

    def entries(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def put(self, entry: Entry) -> Event:
        """Store a version that `versions.next()` numbered, and notify the listeners."""
        event = Event(entry.version, self._entries.get(entry.key), entry)
        self._entries[entry.key] = entry
        self._record(event)
        return event

    def remove(self, entry: Entry) -> Event:
        """Take *entry* away; the removal has a version of its own."""
        del self._entries[entry.key]
        event = Event(self.versions.next(), entry, None)
        self._record(event)
        return event

    def since(self, version: int) -> list[Event]:
        """Events after *version*, oldest first.

        Raises: 410 when some of them are forgotten, 504 when *version* lies ahead.
        """
        if version > self.versions.current:
            raise too_large(version, self.versions.current)
        if version < self.forgotten:
            raise expired(f"too old resource version: {version} ({self.forgotten})")
        at = bisect_right(self._history, version, key=_version_of)
        return self._history[at:]

    def at(self, version: int, *, after: Key | None = None, namespace: str = "") -> Iterator[Entry]:
        """Objects as they were at *version*, in order, beginning after the key *after*.

        Cost:   O(events since then) once, then O(1) per object.
        Raises: as `since`, before the first object.
        """
        then: dict[Key, Entry | None] = {}
        for event in reversed(self.since(version)):
            then[event.key] = event.old
        if not then:
            return self._now(after, namespace)
        return self._overlaid(then, after, namespace)

    def confirm(self) -> None:
        """A consistent read found nothing newer: the collection is as new as the whole store."""
        self.confirmed = self.versions.current

    def end(self) -> None:
        """The resource is served no more: nothing follows."""
        for listener in tuple(self.end_listeners):
            listener()

    def restore(self, entries: Iterable[Entry]) -> None:
        """Hold *entries* and nothing else, as after a restore of a backup: no events, and no history."""
        self._entries = SortedDict((entry.key, entry) for entry in entries)
        self.confirmed = self.versions.current
        self.forget_history()

    def forget_history(self) -> None:
        """After a restart the past is gone: older versions are 410."""
        self._history.clear()
        self.forgotten = self.versions.current

    def _now(self, after: Key | None, namespace: str) -> Iterator[Entry]:
        entries = self._entries
        for key in self._keys(after, namespace):
            yield entries[key]

    def _keys(self, after: Key | None, namespace: str) -> Iterator[Key]:
        if not namespace:
            return iter(self._entries.irange(after, None, inclusive=(False, True)))
        low = after if after is not None and after >= (namespace, "") else (namespace, "")
        return iter(self._entries.irange(low, (namespace + "\0", ""), inclusive=(False, False)))

    def _overlaid(self, then: dict[Key, Entry | None], after: Key | None, namespace: str) -> Iterator[Entry]:
        """Today's objects with *then* laid over them; both sorted, so one merge gives the order."""
        gone = sorted(
            key
            for key, old in then.items()
            if old is not None
            and key not in self._entries
            and (after is None or key > after)
            and (not namespace or key[0] == namespace)
        )
        waiting = iter(gone)
        next_gone = next(waiting, None)
        for key in self._keys(after, namespace):
            while next_gone is not None and next_gone < key:
                yield _present(then[next_gone])
                next_gone = next(waiting, None)
            entry = then[key] if key in then else self._entries[key]
            if entry is not None:
                yield entry
        while next_gone is not None:
            yield _present(then[next_gone])
            next_gone = next(waiting, None)

    def _record(self, event: Event) -> None:
        self._history.append(event)
        self.confirmed = event.version
        if len(self._history) > self.history_limit + self.history_limit // 8 + 1:
            surplus = len(self._history) - self.history_limit
            self.forgotten = self._history[surplus - 1].version
            del self._history[:surplus]
        for listener in tuple(self.listeners):
            listener(event)


def _version_of(event: Event) -> int:
    return event.version


def _present(entry: Entry | None) -> Entry:
    if entry is None:
        raise LookupError("an event and an overlay are about an object")
    return entry


def page(entries: Iterator[Entry], limit: int) -> tuple[list[Entry], Iterator[Entry]]:
    """The first *limit* entries (0 = all) and the rest."""
    return (list(islice(entries, limit)) if limit else list(entries)), entries
