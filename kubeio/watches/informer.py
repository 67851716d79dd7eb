"""Informer: keeps a store equal to the server's selection, from the events of a watch.

Owns the way from events to the store and to `on_change`; does no work of its own in between, so that the
stream is read as fast as it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Final, Never, Protocol

import structlog

from kubeio.models import Object, ObjectKey
from kubeio.resource import ApiResource
from kubeio.watches.reflector import (
    Bookmark,
    Changed,
    Gap,
    ListDone,
    Listed,
    ListStarted,
    Removed,
    WatchEvent,
)
from kubeio.watches.store import Change

_log = structlog.get_logger("kubeio")


class ChangeSource(Protocol):
    """The part of `kubeio.watches.reflector.Reflector` that an informer needs."""

    sign_of_life_at: float

    @property
    def resource(self) -> ApiResource: ...

    def events(self) -> AsyncGenerator[WatchEvent, None]: ...


class Known(Protocol):
    """What an informer keeps equal to the server's selection: a `Store`, or what keeps less of each object.

    Iterated, it gives every known key. `learn` gives None if nothing changed, `remove` if nothing was known.
    """

    def __iter__(self) -> Iterator[ObjectKey]: ...

    def learn(self, obj: Object) -> Change | None: ...

    def remove(self, key: ObjectKey, *, as_of: str = "") -> Object | None: ...


class Informer:
    """Runs *source* into *store*. `synced` is set once the store holds a complete list, and stays set.

    *on_change* is called after each change, in order, on the event loop: it may put keys into a queue, and must
    not block or raise. After a relist it gets the differences only. While a relist is read the store holds
    newer and older versions side by side, as under any watch; objects that vanished leave at its end.

    *namespace*: the only one that *source* shows; informers of other namespaces may then share the *store*.
    """

    def __init__(
        self,
        source: ChangeSource,
        *,
        store: Known,
        namespace: str = "",
        on_change: Callable[[Change], None] = lambda change: None,
    ) -> None:
        self.source = source
        self._store: Final = store
        self.synced = asyncio.Event()
        self._namespace = namespace
        self._on_change = on_change
        self._unseen: dict[
            ObjectKey, None
        ] = {}  # known before the list that is being read, not found in it yet

    @property
    def sign_of_life_at(self) -> float:
        """Time of the source's last contact with the server, on the source's clock."""
        return self.source.sign_of_life_at

    async def run(self) -> Never:
        """Follow the source until cancelled. Raises what its first list raises."""
        async with aclosing(self.source.events()) as events:
            async for event in events:
                self._take(event)
                if isinstance(event, Listed):
                    # a list may come faster than it is taken in, from buffers that never make this task wait
                    await asyncio.sleep(0)
        raise RuntimeError(f"the endless watch of {self.source.resource.group_resource} ended")

    def _take(self, event: WatchEvent) -> None:
        match event:
            case Changed(object=obj):
                self._learn(obj)
            case Removed(object=obj):
                self._remove(obj.meta.key, as_of=obj.meta.resource_version)
            case Bookmark():
                pass
            case ListStarted():
                self._unseen = {key: None for key in self._store if self._namespace in ("", key.namespace)}
            case Listed(objects=objects):
                for obj in objects:
                    self._unseen.pop(obj.meta.key, None)
                    self._learn(obj)
            case ListDone(resource_version=version):
                vanished, self._unseen = self._unseen, {}
                for key in vanished:
                    self._remove(key, as_of=version)
                self.synced.set()
            case Gap(error=error, retry_in_s=retry_in_s):
                _log.warning(
                    "watch interrupted",
                    resource=self.source.resource.group_resource,
                    error=str(error),
                    retry_in_s=round(retry_in_s, 3),
                )

    def _learn(self, obj: Object) -> None:
        try:
            change = self._store.learn(obj)
            if change is not None:
                self._on_change(change)
        except Exception as error:  # whatever an object brings about, the others go on
            self._failed(obj.meta.key, error)

    def _remove(self, key: ObjectKey, *, as_of: str) -> None:
        try:
            known = self._store.remove(key, as_of=as_of)
            if known is not None:
                self._on_change(Change(key, known.meta, None, as_of))
        except Exception as error:  # whatever an object brings about, the others go on
            self._failed(key, error)

    def _failed(self, key: ObjectKey, error: Exception) -> None:
        _log.error(
            "object could not be stored in the cache",
            resource=self.source.resource.group_resource,
            object=str(key),
            error=f"{type(error).__name__}: {error}",
            exc_info=error,
        )
