"""What one watch sees of the run's objects: when each got its owner, when it was ready, how often it moved.

Measures; knows neither the load's requests nor the fleet's processes. Times are this process's clock at the arrival of
each event, so a late watch makes the fleet look worse, never better.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kubeio.decoding import UNREADABLE
from kubeio.models import Meta
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Changed, Gap, ListDone, Listed, ListStarted, Reflector, Removed

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.models import Object
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client

ASSIGNED: Final = "created -> assigned"
READY: Final = "created -> ready"
CHANGED: Final = "changed -> ready"


class MeasuredWait(NamedTuple):
    """A wait that ended *at* an instant of the clock, after *took_s* seconds."""

    name: str
    at: float
    took_s: float


class Outage(NamedTuple):
    """The watch was broken: the API server was away, or cut it."""

    began_at: float
    ended_at: float
    reason: str


class _Condition(msgspec.Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    observed_generation: int = 0


class _Status(msgspec.Struct, rename="camel", gc=False):
    observed_generation: int = 0
    conditions: list[_Condition] | None = None


class _Document(msgspec.Struct, gc=False):
    metadata: Meta
    status: _Status | None = None


_decode = msgspec.json.Decoder(_Document).decode


class _Known:
    """One object: its owner, the generation that is done, and since when newer ones wait."""

    __slots__ = ("asked_at", "created_at", "done", "last_member", "owner")

    def __init__(self) -> None:
        self.created_at = 0.0
        self.owner = ""
        self.last_member = ""
        self.done = 0
        self.asked_at: dict[int, float] = {}


class Observer:
    """Collects until `run` is cancelled. Of what existed before it is only known whether it is done."""

    def __init__(
        self,
        client: Client,
        resource: ApiResource,
        *,
        namespace: str,
        selector: str,
        shard_label: str,
        clock: Clock,
    ) -> None:
        self._watch = Reflector(
            ListerWatcher(
                client, resource, namespace=namespace if resource.namespaced else "", label_selector=selector
            ),
            clock=clock,
            rng=random.Random(0),  # noqa: S311 - jitter
        )
        self._label = shard_label
        self._clock = clock
        self._objects: dict[str, _Known] = {}
        self._listing: set[str] | None = None
        self._broken: tuple[float, str] | None = None
        self.listed = asyncio.Event()
        """Set once everything that existed before is known: the load may begin."""
        self.waits: list[MeasuredWait] = []
        self.moves: list[float] = []
        """When an object went from one member to another."""
        self.outages: list[Outage] = []
        self.expected: Collection[str] = ()
        """Waits that count although they did not end: every one that the fleet should end."""
        self.seen = 0
        """Changes so far, of whatever part of an object."""
        self.says_ready = False
        """Whether any object has said what it has observed, or that it is ready."""
        self.on_wait: Callable[[MeasuredWait], None] = lambda _: None

    async def run(self) -> None:
        """Watch until cancelled. Raises: KubeError if the first list is refused."""
        async for event in self._watch.events():
            now = self._clock.now()
            match event:
                case ListStarted():
                    self._listing = set()
                case Listed(objects=objects):
                    for item in objects:
                        self._note(item, now)
                case ListDone():
                    self._end_list()
                case Changed(object=item):
                    self.seen += 1
                    self._note(item, now)
                case Removed(object=item):
                    if (gone := self._objects.pop(item.meta.uid, None)) is not None:
                        self._cut_short(gone, now)
                case Gap(error=error):
                    self._broken = self._broken or (now, str(error))
                    continue
                case _:
                    pass
            self._mend(now)

    def start_over(self) -> None:
        """Forget what was measured so far: the load begins."""
        self.waits, self.moves, self.outages = [], [], []

    def cut_short(self) -> None:
        """The run ends: what still waits has waited until now. A wait that never ends must not go uncounted."""
        now = self._clock.now()
        for known in self._objects.values():
            self._cut_short(known, now)

    # -- what is known now ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def unassigned(self) -> int:
        """Objects without an owner's label."""
        return sum(not known.owner for known in self._objects.values())

    @property
    def unready(self) -> int:
        """Objects whose newest generation is not done."""
        return sum(bool(known.asked_at) for known in self._objects.values())

    def owners(self) -> Counter[str]:
        """Objects by the shard that their label names; an empty name for those without one."""
        return Counter(known.owner for known in self._objects.values())

    # -- inside ---------------------------------------------------------------------------------------------

    def _end_list(self) -> None:
        if self._listing is not None and self.listed.is_set():
            for uid in self._objects.keys() - self._listing:
                del self._objects[uid]
        self._listing = None
        self.listed.set()

    def _mend(self, now: float) -> None:
        if self._broken is not None:
            began_at, reason = self._broken
            self.outages.append(Outage(began_at, now, reason))
            self._broken = None

    def _note(self, item: Object, now: float) -> None:
        try:
            document = _decode(item.raw)
        except (*UNREADABLE, RecursionError):
            return  # a status of another shape says nothing
        meta = document.metadata
        if self._listing is not None:
            self._listing.add(meta.uid)
        known = self._objects.get(meta.uid)
        if known is None:
            known = self._objects[meta.uid] = _Known()
            known.created_at = now if self.listed.is_set() else 0.0
        self._note_generation(known, meta.generation or 1, now)
        self._note_owner(known, meta.labels.get(self._label, ""), now)
        self._note_done(known, document, now)

    @staticmethod
    def _note_generation(known: _Known, generation: int, now: float) -> None:
        if generation > max(known.asked_at, default=known.done):
            known.asked_at[generation] = now

    def _note_owner(self, known: _Known, owner: str, now: float) -> None:
        if owner == known.owner:
            return
        known.owner = owner
        if not owner:
            return
        member = owner.rpartition("-")[0]  # a shard is called after its member
        if not known.last_member and known.created_at:
            self._add(MeasuredWait(ASSIGNED, now, now - known.created_at))
        elif known.last_member not in ("", member):
            self.moves.append(now)
        known.last_member = member

    def _note_done(self, known: _Known, document: _Document, now: float) -> None:
        """Done with a generation answers every older one too: the oldest wait is the honest one."""
        done = done_generation(document)
        self.says_ready = self.says_ready or done > 0
        if done <= known.done:
            return
        is_measured = self.listed.is_set()
        for generation in [each for each in known.asked_at if each <= done]:
            asked_at = known.asked_at.pop(generation)
            if is_measured:
                self._add(MeasuredWait(_wait_of(generation), now, now - asked_at))
        known.done = done

    def _cut_short(self, known: _Known, now: float) -> None:
        if ASSIGNED in self.expected and known.created_at and not known.last_member:
            self._add(MeasuredWait(ASSIGNED, now, now - known.created_at))
        for generation, asked_at in known.asked_at.items():
            if (name := _wait_of(generation)) in self.expected:
                self._add(MeasuredWait(name, now, now - asked_at))

    def _add(self, wait: MeasuredWait) -> None:
        self.waits.append(wait)
        self.on_wait(wait)


def _wait_of(generation: int) -> str:
    return READY if generation == 1 else CHANGED


def done_generation(document: _Document) -> int:
    """The newest generation that the object says is done; 0 while it says nothing.

    `status.observedGeneration` counts unless a `Ready` condition is there and not True. Without it the condition's own
    observedGeneration counts; a `Ready` condition without one answers the creation only.
    """
    status = document.status or _Status()
    ready = next((each for each in status.conditions or () if each.type == "Ready"), None)
    if ready is not None and ready.status != "True":
        return 0
    if status.observed_generation:
        return status.observed_generation
    if ready is None:
        return 0
    return ready.observed_generation or 1
