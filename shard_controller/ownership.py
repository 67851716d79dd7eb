"""Whether this shard may work on an object, and how it gives one up. Pure: no I/O, no clock.

Owns what an acknowledgement leaves behind: per object the smallest version that still counts (`Floors`).
Called by `worker` when a key leaves the queue, and by `drain` around each acknowledgement.
Protocol: section 5, rules 3 and 4.

Versions are compared as integers: the API promises that since Kubernetes 1.35, etcd always did. Versions that are no
numbers (an aggregated server's own) order nothing: after an acknowledgement each look costs a consistent read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import msgspec

from kubeio.labels import RingKeys
from kubeio.models import Meta
from kubeio.watches.versions import order

K = TypeVar("K")


class State(msgspec.Struct, frozen=True, gc=False):
    """One version of one object, as far as its ownership goes. None: the label is absent."""

    version: int
    shard: str | None
    drain: str | None


class Directed(msgspec.Struct, frozen=True, gc=False):
    """Pass the object on to the shard *to*."""

    to: str


class Plain(msgspec.Struct, frozen=True, gc=False):
    """Remove both labels: whoever is responsible will be assigned."""


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The drain label names its owner: remove only the drain label."""


Handoff = Directed | Plain | Kept


class Reconcile(msgspec.Struct, frozen=True, gc=False):
    """The object is ours in this version."""

    state: State


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """The sharder asked for the object: give it up, testing this version."""

    state: State
    handoff: Handoff


class Reread(msgspec.Struct, frozen=True, gc=False):
    """An acknowledgement got no answer, and the cache knows nothing newer: only a consistent read can tell."""


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Ours, but the Lease is too old to start anything."""


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Not ours, as far as we know: nothing is done."""

    reason: Literal["absent", "foreign", "superseded"]


Decision = Reconcile | Acknowledge | Reread | Wait | Drop


def state_of(meta: Meta, keys: RingKeys) -> State:
    """What *meta* says about its object's owner."""
    labels = meta.labels
    return State(order(meta.resource_version), labels.get(keys.shard), labels.get(keys.drain))


def decide_handoff(drain: str, *, shard: str) -> Handoff:
    """What a drain label with the value *drain* asks of *shard*."""
    if drain == shard:
        return Kept()
    return Directed(drain) if drain else Plain()


def decide(state: State | None, *, shard: str, floor: int, unanswered: bool, held: bool) -> Decision:
    """What *shard* does with an object whose newest known state is *state*.

    *floor* is the smallest version that counts; *unanswered*: an acknowledgement is on its way or its answer was lost.
    A state at or above the floor was written after the acknowledgement was decided on, so it is the truth:
    the acknowledgement tested an older version, hence it either came before that state or can never succeed.
    """
    if state is None:
        return Drop("absent")
    if state.version < floor:
        return Reread() if unanswered else Drop("superseded")
    if state.shard != shard:
        return Drop("foreign")
    if not held:
        return Wait()
    if state.drain is not None:
        return Acknowledge(state, decide_handoff(state.drain, shard=shard))
    return Reconcile(state)


@dataclass(slots=True)
class _Floor:
    version: int
    unanswered: bool


class Floors(Generic[K]):
    """Per object the smallest version that still counts, for those we acknowledged or read directly.

    Empty at rest: an entry goes once the stream has passed it (`forget`).
    """

    def __init__(self) -> None:
        self._floors: dict[K, _Floor] = {}
        self._passed: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._floors)

    def floor(self, key: K) -> int:
        entry = self._floors.get(key)
        return entry.version if entry else 0

    def is_unanswered(self, key: K) -> bool:
        entry = self._floors.get(key)
        return entry is not None and entry.unanswered

    def acknowledging(self, key: K, *, tested: int) -> None:
        """An acknowledgement that tests version *tested* is about to be sent: it counts from now on."""
        self._raise_to(key, tested + 1, unanswered=True)

    def acknowledged(self, key: K, *, version: int) -> None:
        """The answer came: the object stands at *version*."""
        self._raise_to(key, version, unanswered=False)

    def read(self, key: K, *, version: int) -> None:
        """A consistent read showed *version*. One that is not newer than what was tested answers nothing."""
        entry = self._floors.get(key)
        if entry is not None and entry.unanswered and version < entry.version:
            return
        self._raise_to(key, version, unanswered=False)

    def shown(self, key: K, *, version: int) -> None:
        """The cache has *version*. If that counts, an acknowledgement without an answer needs none any more."""
        entry = self._floors.get(key)
        if entry is not None and version >= entry.version:
            entry.version, entry.unanswered = version, False

    def gone(self, key: K) -> None:
        """A consistent read found no such object: whatever was acknowledged, nothing older counts."""
        entry = self._floors.get(key)
        if entry is not None:
            entry.unanswered = False

    def ignore_up_to(self, key: K, *, version: int) -> None:
        """The object is gone although the cache has it in *version*: that state does not count."""
        self._raise_to(key, version + 1, unanswered=False)

    def forget(self, streamed: int) -> None:
        """Drop what the stream has passed: called now and then with the newest version seen on the object's watch.

        An entry goes at the second call above its floor, since events up to *streamed* may still be under way.
        """
        passed = {k: e.version for k, e in self._floors.items() if not e.unanswered and e.version <= streamed}
        for key, version in passed.items():
            if self._passed.get(key) == version:
                del self._floors[key]
        self._passed = {k: v for k, v in passed.items() if k in self._floors}

    def _raise_to(self, key: K, version: int, *, unanswered: bool) -> None:
        entry = self._floors.get(key)
        if entry is None:
            self._floors[key] = _Floor(version, unanswered)
        elif version >= entry.version:
            entry.version, entry.unanswered = version, unanswered
