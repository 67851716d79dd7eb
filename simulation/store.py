"""What all API servers of a run share: objects, the write log, the garbage collector. etcd and its controllers.

The embedded control plane's own endpoints, without its connections.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from devcluster.accounts import ADMIN, Account
from devcluster.embedded.endpoints import Answer, Call, Endpoints, verb_of
from devcluster.embedded.registry import Kind
from devcluster.embedded.store import Entry, Event
from devcluster.embedded.watches import Watch
from devcluster.embedded.writelog import WriteLog
from devcluster.plane import Write
from simulation.world import World

_WALL_S: Final = 1_767_225_600.0
"""2026-01-01: when the world begins."""
_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
_COLLECTOR_DELAY_S: Final = 0.02
_HISTORY: Final = 20_000
"""Events of a resource that can be watched from: more than a small world has."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every object of every resource at *version*."""

    version: int
    entries: Mapping[tuple[str, str], tuple[Entry, ...]]


class Store:
    """Endpoints over one set of objects, and every write to them in order."""

    def __init__(self, world: World) -> None:
        self.writes: Final[list[Write]] = []
        self.on_write: Final[list[Callable[[Write], None]]] = []
        """Called with every write, accepted or refused."""
        self._world: Final = world
        self._rng: Final = world.rng("uids")
        self._collects = False
        self.endpoints: Final = Endpoints(
            log=WriteLog(self._keep, now=lambda: world.now),
            history_limit=_HISTORY,
            rbac=False,
            url="https://simulated",
            wake_collector=self._wake_collector,
            account_of=lambda token: None,
            wall=lambda: _WALL_S + world.now,
            new_uid=lambda: uuid.UUID(int=self._rng.getrandbits(128), version=4),
        )

    def _keep(self, write: Write) -> None:
        self.writes.append(write)
        for listener in self.on_write:
            listener(write)

    def kind(self, group: str, plural: str) -> Kind:
        """A resource that is served. Raises: LookupError."""
        found = self.endpoints.registry.get(group, plural)
        if found is None:
            raise LookupError(f"{plural}.{group} is not served")
        return found

    def serve(self, call: Call) -> Answer | Watch:
        """Carry out *call*. Raises: Refusal."""
        target = self.endpoints.target(call.path)
        return self.endpoints.serve(call, target, verb_of(call.method, target, call.query))

    def request(
        self,
        method: str,
        path: str,
        doc: object = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        account: Account = ADMIN,
    ) -> Any:
        """What a user does by hand: carried out at once; the decoded answer. Raises: Refusal."""
        body = b"" if doc is None else msgspec.json.encode(doc)
        answer = self.serve(
            Call(method, path, dict(query or {}), body, content_type, "application/json", "user", account)
        )
        if isinstance(answer, Watch):
            raise TypeError("a watch is not answered at once")
        return msgspec.json.decode(answer.body)

    def create_definition(self, definition: Mapping[str, Any]) -> None:
        """Create a CustomResourceDefinition. Raises: Refusal if it exists."""
        self.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)

    def snapshot(self) -> Snapshot:
        """All objects, as a backup has them."""
        registry = self.endpoints.registry
        entries = {(kind.group, kind.plural): tuple(kind.collection.entries()) for kind in registry}
        return Snapshot(self.endpoints.versions.current, entries)

    def restore(self, snapshot: Snapshot, *, bump: int) -> None:
        """Go back to *snapshot*; versions go on *bump* above its own. Nobody gets an event."""
        self.endpoints.versions.current = snapshot.version + bump
        self._restore_definitions(snapshot.entries[_DEFINITIONS])
        for kind in self.endpoints.registry:
            kind.collection.restore(snapshot.entries.get((kind.group, kind.plural), ()))
        self.endpoints.collector.relist()

    def _restore_definitions(self, entries: Iterable[Entry]) -> None:
        """Serve what *entries* define and nothing else: a definition may have come, gone or changed since."""
        definitions = self.kind(*_DEFINITIONS).collection
        restored = {entry.name: entry for entry in entries}
        now = {entry.name: entry for entry in definitions.entries()}
        version = self.endpoints.versions.current
        for name in sorted(now.keys() | restored.keys()):
            old, new = now.get(name), restored.get(name)
            if old is None or new is None or old.raw != new.raw:
                for listener in definitions.listeners:
                    listener(Event(version, old, new))

    def _wake_collector(self) -> None:
        if not self._collects:
            self._collects = True
            self._world.after(_COLLECTOR_DELAY_S, self._collect)

    def _collect(self) -> None:
        self._collects = False
        if self.endpoints.collector.work():
            self._wake_collector()
