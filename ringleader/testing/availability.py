"""How long objects had no working owner, and which of them changed their owner: from the write log. Pure.

An object is **attended** while its shard label names a working shard: its process has written a `Life` record,
has not ended (as its parent saw it), is not stopped, and its Lease is not taken.
An update is **waiting** from the moment the server accepted it until the first successful reconcile that began
at its generation or a later one has ended. The demo prints the longest of these stretches as `max_unattended_s`.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from devcluster.plane import Write
from kubeio.protocol import RingKeys
from ringleader.testing.journal import Begin, End, Record
from ringleader.testing.ownership_checks import accepted

Span = tuple[float, float]
"""From the first instant to the second; the second may be infinite."""


@dataclass(slots=True)
class History:
    """One object on the server: when it was created and deleted, and the shard label after each change."""

    uid: str
    key: str
    created_at: float
    deleted_at: float = math.inf
    labels: list[tuple[float, str]] = field(default_factory=list)

    def label_at(self, t: float) -> str:
        """The shard label at *t*: empty before the object existed and while it bore none."""
        index = bisect_right(self.labels, t, key=lambda change: change[0])
        return self.labels[index - 1][1] if index else ""


@dataclass(frozen=True, slots=True)
class Demand:
    """A client's change: the server accepted *generation* of the object *uid* at *t*."""

    uid: str
    key: str
    generation: int
    t: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """An object without a working owner, or with an update that waited, from *begin* to *end*."""

    key: str
    begin: float
    end: float
    reason: str

    @property
    def length_s(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Movement:
    """Objects whose member changed, and objects that only changed to another shard of the same member."""

    moved: int
    renamed: int


def histories(writes: Iterable[Write], *, keys: RingKeys, resource: str) -> dict[str, History]:
    """The history of every object of *resource*, by uid."""
    found: dict[str, History] = {}
    for write in writes:
        if write.resource != resource or not accepted(write) or not write.uid:
            continue
        key = f"{write.namespace}/{write.name}"
        history = found.setdefault(write.uid, History(write.uid, key, write.t))
        if write.labels_after is None:
            history.deleted_at = write.t
            continue
        label = write.labels_after.get(keys.shard, "")
        if not history.labels or history.labels[-1][1] != label:
            history.labels.append((write.t, label))
    return found


def movement(
    found: Iterable[History], *, member_of: Mapping[str, str], since: float, until: float = math.inf
) -> Movement:
    """How many objects changed their member, or only their shard, between *since* and *until*.

    An object that went away and came back has moved; having no owner in between is no change by itself.
    """
    moved = renamed = 0
    for history in found:
        owners = [history.label_at(since)]
        owners += [label for t, label in history.labels if since < t <= until]
        owners = [owner for owner in owners if owner]
        steps = list(itertools.pairwise(owners))
        if any(member_of.get(a, a) != member_of.get(b, b) for a, b in steps):
            moved += 1
        elif any(a != b for a, b in steps):
            renamed += 1
    return Movement(moved, renamed)


# -- availability -------------------------------------------------------------------------------------------


def unattended(
    found: Iterable[History], *, working: Mapping[str, Sequence[Span]], since: float, until: float
) -> Stretch | None:
    """The longest stretch between *since* and *until* in which an object existed and was not attended."""
    longest: Stretch | None = None
    for history in found:
        begin, end = max(since, history.created_at), min(until, history.deleted_at)
        for gap in _gaps(_attended(history, working), begin, end):
            if longest is None or gap[1] - gap[0] > longest.length_s:
                longest = Stretch(history.key, gap[0], gap[1], "no working owner")
    return longest


def _attended(history: History, working: Mapping[str, Sequence[Span]]) -> list[Span]:
    """When the label named a working shard, in order of time; spans may touch, not intersect."""
    ends = [t for t, _ in history.labels[1:]] + [history.deleted_at]
    attended = []
    for (begin, label), end in zip(history.labels, ends, strict=True):
        for from_, to in working.get(label, ()):
            if max(begin, from_) < min(end, to):
                attended.append((max(begin, from_), min(end, to)))
    return attended


def _gaps(attended: Iterable[Span], begin: float, end: float) -> list[Span]:
    """The parts of *begin* to *end* outside the *attended* spans."""
    gaps, position = [], begin
    for from_, to in attended:
        if position < min(from_, end):
            gaps.append((position, min(from_, end)))
        position = max(position, to)
    if position < end:
        gaps.append((position, end))
    return gaps


def waiting(demands: Iterable[Demand], records: Iterable[Record], *, until: float) -> Stretch | None:
    """The demand that waited longest for a successful reconcile that began at its generation or later."""
    served = _served(records)
    longest: Stretch | None = None
    for demand in demands:
        ends = (end for generation, end in served[demand.uid] if generation >= demand.generation)
        done_at = max(demand.t, min(ends, default=until))  # the answer may come after the work is done
        if longest is None or done_at - demand.t > longest.length_s:
            longest = Stretch(demand.key, demand.t, done_at, f"generation {demand.generation} not reconciled")
    return longest


def _served(records: Iterable[Record]) -> defaultdict[str, list[tuple[int, float]]]:
    """(generation at its begin, end) of every reconcile that ended well, by uid."""
    begun: dict[tuple[str, str], int] = {}
    served: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.t):
        if isinstance(record, Begin):
            begun[record.shard, record.uid] = record.gen
        elif isinstance(record, End) and record.outcome in ("done", "requeue"):
            served[record.uid].append((begun.pop((record.shard, record.uid), 0), record.t))
    return served
