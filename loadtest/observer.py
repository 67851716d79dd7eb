"""What an independent watch sees of a load: when each Website got its owner, and when its owner was done with it.

Pure measurement over watch events: it knows neither the load's requests nor the fleet's processes. Times are this
process's monotonic clock at the arrival of each event, so a late watch makes the fleet look worse, never better.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from kubeio.models import Meta
from kubeio.watches.watch import Changed, ListDone, Listed, ListWatch, Removed

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.models import Object
    from kubeio.resource import Resource
    from kubeio.rest.client import Client


class _Condition(msgspec.Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    observed_generation: int = 0


class _Status(msgspec.Struct, rename="camel", gc=False):
    observed_generation: int = 0
    conditions: list[_Condition] = []


class _Website(msgspec.Struct, gc=False):
    metadata: Meta
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Website)


@dataclass(slots=True)
class _Seen:
    asked_at: dict[int, float] = field(default_factory=dict)
    created_at: float = 0.0
    is_owned: bool = False
    done: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured wait: what for, when it ended, how long it took. Seconds."""

    what: str
    at: float
    took_s: float


class Observer:
    """Collects samples until `run` is cancelled. What existed before is only counted."""

    def __init__(self, client: Client, resource: Resource, *, shard_label: str, clock: Clock) -> None:
        self._watch = ListWatch(client, resource, clock=clock, rng=random.Random(0))  # noqa: S311 - jitter
        self._label = shard_label
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self.samples: list[Sample] = []
        self.listed = asyncio.Event()
        """Set once everything that existed before is known: the load may begin."""

    async def run(self) -> None:
        async for event in self._watch.events():
            now = self._clock.now()
            match event:
                case Listed(objects=objects):
                    for item in objects:
                        self._look(item, now, is_first=not self.listed.is_set())
                case ListDone():
                    self.listed.set()
                case Changed(object=item):
                    self._look(item, now, is_first=False)
                case Removed(object=item):
                    self._seen.pop(item.meta.uid, None)
                case _:
                    pass

    def behind(self) -> int:
        """Websites whose newest version is not done yet."""
        return sum(1 for seen in self._seen.values() if seen.asked_at)

    def _look(self, item: Object, now: float, *, is_first: bool) -> None:
        site = _decoder.decode(item.raw)
        generation = site.metadata.generation
        seen = self._seen.get(site.metadata.uid)
        if seen is None:
            seen = self._seen[site.metadata.uid] = _Seen(created_at=now, is_owned=is_first, done=0)
            if not is_first:
                seen.asked_at[generation] = now
        elif generation > max(seen.asked_at, default=seen.done):
            seen.asked_at[generation] = now
        self._note_owner(site.metadata, seen, now)
        self._note_done(site, seen, now)

    def _note_owner(self, meta: Meta, seen: _Seen, now: float) -> None:
        if not seen.is_owned and self._label in meta.labels:
            seen.is_owned = True
            self.samples.append(Sample("assigned", now, now - seen.created_at))

    def _note_done(self, site: _Website, seen: _Seen, now: float) -> None:
        """Ready for a generation answers every older one too: the oldest wait is the honest one."""
        is_ready = any(c.type == "Ready" and c.status == "True" for c in site.status.conditions)
        done = site.status.observed_generation if is_ready else 0
        answered = [generation for generation in seen.asked_at if generation <= done]
        for generation in answered:
            asked_at = seen.asked_at.pop(generation)
            self.samples.append(Sample("ready" if generation == 1 else "updated", now, now - asked_at))
        seen.done = max(seen.done, done)
