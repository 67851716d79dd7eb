"""The objects of one ring, kept current by a watch of metadata for each resource that it distributes.

Owns the watches: whether every object was seen, and whether what is known is of now. For whoever looks again and again:
a list of 100,000 objects costs an API server seconds, a watch costs it what changes. Begun and ended by `following`.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from kubeio.clock import SystemClock
from kubeio.errors import KubeError
from kubeio.models import ObjectKey
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import ListDone, ListStarted, Reflector
from kubeio.watches.versions import is_older
from ringleader.cluster.inventory import Hear, Inventory
from ringleader.cluster.objects import PAGE
from ringleader.cluster.ring import Ring

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from sharder.planning.keys import RingKinds

_LOOKS_S: Final = 0.05
_QUIET: Final = 10.0
"""Silence for so many times what a small read takes, within the limits below, means that there is no news."""
_QUIET_S: Final = (0.3, 3.0)
_PATIENCE_S: Final = 20.0
_REFUSED_S: Final = 5.0
_ROUTINE: Final = 2
"""Failures in a row that are worth telling: a watch that ends too early, or has to list again, does so once."""
_TRIES: Final = 3
"""A first list that failed so often is an error; the watch goes on trying."""


class WatchedRing:
    """One ring, watched. *heard* is called with each change.

    *after*: the refusal of an earlier attempt, raised until this one succeeds.
    """

    def __init__(
        self,
        client: Client,
        kinds: RingKinds,
        ring: Ring,
        *,
        heard: Hear | None = None,
        after: KubeError | None = None,
    ) -> None:
        self._client = client
        self._after = after
        self._clock = SystemClock()
        self._began = self._clock.now()
        self.objects = Inventory(kinds, ring.keys, heard=heard)
        self._sessions = [
            Reflector(
                ListerWatcher(client, resource, metadata_only=True),
                page_size=PAGE,
                streams_lists=False,
                clock=self._clock,
                rng=random.Random(),  # noqa: S311
            )
            for resource in kinds.resources
            if resource.group_resource in ring.mains
        ]
        self._unlisted = len(self._sessions)
        self._tasks: list[asyncio.Task[None]] = []
        self.listed_at = self._clock.now()
        """Of which time, on the monotonic clock, the first lists are."""

    # ---- start and end

    def start(self) -> None:
        """Begin to watch."""
        self._tasks = [
            asyncio.create_task(self._follow(session), name=f"watch {session.resource.group_resource}")
            for session in self._sessions
        ]

    async def close(self) -> None:
        """End it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_synced(self) -> bool:
        """Whether every object was seen once."""
        return not self._unlisted

    @property
    def refused(self) -> KubeError | None:
        """Why it ended: the server refused what it asked for first."""
        for task in self._tasks:
            if task.done():
                try:
                    task.result()
                except KubeError as error:
                    return error
        return None

    @property
    def may_try_again(self) -> bool:
        """Whether it was refused, long enough ago to ask again."""
        return self.refused is not None and self._clock.now() - self._began >= _REFUSED_S

    def check(self) -> None:
        """Raises KubeError if what is known may be out of date."""
        if self.refused is not None:
            raise self.refused
        for session in self._sessions:
            if session.last_error is not None and session.failures >= _ROUTINE:
                raise session.last_error
        if self._after is not None and not self.is_synced:
            raise self._after

    async def synced(self) -> None:
        """Return once every object was seen. Raises KubeError."""
        while not self.is_synced:
            if self.refused is not None or any(session.failures >= _TRIES for session in self._sessions):
                self.check()
            await asyncio.sleep(_LOOKS_S)

    async def caught_up(self) -> float | None:
        """Wait for what the watches have to tell up to now; returns when that "now" was.

        On a busy server a list takes a minute, and what happened meanwhile comes after it. None if it does not come
        soon, or not at all: the server's history may be shorter than that minute, and then another list is read.
        Raises KubeError.
        """
        asked_at = self._clock.now()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reached = [await self._caught_up(session) for session in self._sessions]
        except TimeoutError:
            return None
        return asked_at if all(reached) else None

    async def _caught_up(self, session: Reflector) -> bool:
        asked_at = self._clock.now()
        page = await self._client.list_page(session.resource, limit=1, metadata_only=True)
        least_s, most_s = _QUIET_S
        quiet_s = min(max(least_s, _QUIET * (self._clock.now() - asked_at)), most_s)
        while session.watching_since is None or is_older(session.resource_version, page.resource_version):
            if session.last_error is not None:
                return False
            since = session.watching_since
            if since is not None and self._clock.now() - max(since, session.sign_of_life_at) >= quiet_s:
                return True  # nothing happens to these objects: their newest version is an old one
            await asyncio.sleep(_LOOKS_S)
        return True

    # ---- events

    async def _follow(self, session: Reflector) -> None:
        resource = session.resource
        listed: set[ObjectKey] = set()
        is_listed = False
        async with aclosing(session.events()) as events:
            async for event in events:
                self.objects.note(resource, event, listed)
                if isinstance(event, ListStarted) and not self.is_synced:
                    self.listed_at = self._clock.now()
                if isinstance(event, ListDone) and not is_listed:
                    is_listed = True
                    self._unlisted -= 1
