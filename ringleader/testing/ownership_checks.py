"""The two checks of *one owner*, as pure functions of records. Neither knows the sharder.

The overlap check judges the journals of the shards: no two reconciles of one object by different workers at one time.
The write check judges the server's own write log: an accepted write of a replica was to an object whose label named
that replica just before, and an object that it created bore the name of its controller.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from devcluster.plane import Write
from kubeio.protocol import SHARDER_HOLDER, RingKeys
from ringleader.testing.journal import Begin, End, Life, Record

LEASES = "leases.coordination.k8s.io"
_CHANGES = frozenset({"update", "patch", "delete", "deletecollection"})

EndedBy = Literal["end", "death", "take", "nothing"]


class TooFewReconcilesError(AssertionError):
    """The journals have so few reconciles that a check without findings proves nothing."""


@dataclass(frozen=True, slots=True)
class Interval:
    """One reconcile: *shard* worked on the object *uid* from *begin* to *end*."""

    uid: str
    key: str
    shard: str
    begin: float
    end: float
    ended_by: EndedBy

    def intersects(self, other: Interval) -> bool:
        """Whether both hold at some instant; intervals that only touch do not intersect."""
        return self.begin < other.end and other.begin < self.end


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two reconciles of one object at one time: it must never happen."""

    first: Interval
    second: Interval

    def __str__(self) -> str:
        both_s = min(self.first.end, self.second.end) - self.second.begin
        return (
            f"{self.first.key} was worked on by {self.first.shard} and {self.second.shard} "
            f"at once for {both_s * 1000:.0f} ms"
        )


@dataclass(frozen=True, slots=True)
class ForeignWrite:
    """The server accepted *write* of a replica to an object that bore the name *label*, not one of its own.

    Of a create: *label* is that of the new object's controller, and the new object bears another one.
    """

    write: Write
    label: str

    def __str__(self) -> str:
        write = self.write
        place = f"{write.namespace}/{write.name}" if write.namespace else write.name
        bore = f"bore the name {self.label}" if self.label else "bore no name"
        what = f"{write.verb} of /{write.subresource}" if write.subresource else write.verb
        whose = "its controller" if write.verb == "create" else "it"
        return f"{write.resource} {place}: {what} by {write.user} accepted while {whose} {bore}"


# -- overlap check ------------------------------------------------------------------------------------------


def intervals(
    records: Iterable[Record], *, deaths: Mapping[Life, float], takes: Mapping[str, float]
) -> list[Interval]:
    """Every reconcile of the journals as an interval, in the order of their begins.

    An interval ends at its end record, at the death of its process (*deaths*: by life, as the parent saw it) or
    when the Lease of its shard was taken (*takes*: by shard), whichever comes first. A take does not shorten an
    interval that begins after it.
    """
    ordered = sorted(records, key=lambda record: record.t)
    deaths_of: dict[str, list[float]] = defaultdict(list)  # several, if the next process took a life over
    for life in ordered:
        if isinstance(life, Life):
            deaths_of[life.shard].append(deaths.get(life, math.inf))
    ends: dict[tuple[str, str, str], deque[float]] = defaultdict(deque)
    for record in ordered:
        if isinstance(record, End):
            ends[record.shard, record.resource, record.uid].append(record.t)
    found = []
    for record in ordered:
        if not isinstance(record, Begin):
            continue
        waiting = ends[record.shard, record.resource, record.uid]
        ended = waiting.popleft() if waiting else math.inf
        died = min((death for death in deaths_of[record.shard] if death >= record.t), default=math.inf)
        taken = takes.get(record.shard, math.inf)
        found.append(_interval(record, ended=ended, died=died, taken=taken))
    return found


def _interval(begin: Begin, *, ended: float, died: float, taken: float) -> Interval:
    limits: list[tuple[float, EndedBy]] = [(ended, "end"), (died, "death")]
    if taken > begin.t:
        limits.append((taken, "take"))
    end, ended_by = min(limits, key=lambda limit: limit[0])
    if end == math.inf:
        ended_by = "nothing"
    return Interval(begin.uid, begin.key, begin.shard, begin.t, end, ended_by)


def overlaps(found: Iterable[Interval]) -> list[Overlap]:
    """Every pair of intervals of one object that intersect, also of one shard with itself.

    Cost: O(n log n + pairs); the open intervals of one object are few.
    """
    by_uid: dict[str, list[Interval]] = defaultdict(list)
    for interval in sorted(found, key=lambda interval: interval.begin):
        by_uid[interval.uid].append(interval)
    return [pair for history in by_uid.values() for pair in _pairs(history)]


def _pairs(history: list[Interval]) -> Iterator[Overlap]:
    still_open: list[Interval] = []
    for interval in history:
        still_open = [earlier for earlier in still_open if earlier.end > interval.begin]
        yield from (Overlap(earlier, interval) for earlier in still_open if earlier.intersects(interval))
        still_open.append(interval)


def require_reconciles(found: Collection[Interval], *, at_least: int) -> None:
    """Raises: TooFewReconcilesError for fewer than *at_least* intervals."""
    if len(found) < at_least:
        raise TooFewReconcilesError(
            f"the journals hold {len(found)} reconciles, fewer than {at_least}: too few to prove anything"
        )


# -- shards in the write log -------------------------------------------------------------------------------


def accepted(write: Write) -> bool:
    return 200 <= write.code < 300


def lease_takes(writes: Iterable[Write], *, keys: RingKeys) -> dict[str, float]:
    """When each shard's Lease was taken for good: held by a sharder and no longer contested.

    A contested Lease may still be worked under (protocol, section 4), so it ends no interval.
    """
    takes: dict[str, float] = {}
    for write in writes:
        if _is_of_ring(write, keys) and _is_dead(write, keys):
            takes.setdefault(write.name, write.t)
    return takes


def _is_of_ring(write: Write, keys: RingKeys) -> bool:
    """Whether *write* left behind a Lease of the ring."""
    is_lease = write.resource == LEASES and accepted(write)
    return is_lease and (write.labels_after or {}).get(keys.ring_label) == keys.ring


def _is_dead(write: Write, keys: RingKeys) -> bool:
    if write.object is None:
        return False
    spec, annotations = write.object.get("spec"), write.object.get("annotations")
    holder = spec.get("holderIdentity") if isinstance(spec, dict) else None
    contested = isinstance(annotations, dict) and keys.contested in annotations
    return isinstance(holder, str) and holder.startswith(SHARDER_HOLDER) and not contested


def lives(writes: Iterable[Write], *, keys: RingKeys) -> dict[str, str]:
    """The account that created the Lease of each shard of the ring."""
    created: dict[str, str] = {}
    for write in writes:
        if write.verb == "create" and _is_of_ring(write, keys):
            created.setdefault(write.name, write.user)
    return created


def members(writes: Iterable[Write], *, keys: RingKeys) -> dict[str, str]:
    """The member of each shard, as its Lease says; a Lease that names none is its own member."""
    found: dict[str, str] = {}
    for write in writes:
        if write.object is not None and _is_of_ring(write, keys):
            annotations = write.object.get("annotations")
            named = annotations.get(keys.member) if isinstance(annotations, dict) else None
            found[write.name] = str(named or found.get(write.name, write.name))
    return found


# -- write check --------------------------------------------------------------------------------------------


def replica_changes(
    writes: Iterable[Write], *, resources: Collection[str], replicas: Collection[str]
) -> Iterator[Write]:
    """The updates, patches and deletes that *replicas* sent for the ring's *resources*; creates have no fence."""
    return (
        write
        for write in writes
        if write.user in replicas and write.verb in _CHANGES and write.resource in resources
    )


def foreign_writes(
    writes: Collection[Write],
    *,
    keys: RingKeys,
    resources: Collection[str],
    controlled: Collection[str],
    replicas: Collection[str],
) -> list[ForeignWrite]:
    """Every change that the server accepted from a replica on an object that was not that replica's just before,
    and every create whose controller was not that replica's.

    The one change that a replica may make to another's object is to ask for it (protocol, 5.8), if it is of a
    *controlled* resource: see `_is_request`. Not judged: what the server refused, and creates whose controller the
    log does not show.
    """
    account_of = lives(writes, keys=keys)
    foreign = list(_foreign_creates(writes, keys=keys, resources=resources, replicas=replicas))
    for write in replica_changes(writes, resources=resources, replicas=replicas):
        label = (write.labels_before or {}).get(keys.shard, "")
        if not accepted(write) or account_of.get(label) == write.user:
            continue
        if write.resource in controlled and _is_request(write, keys, account_of):
            continue
        foreign.append(ForeignWrite(write, label))
    return foreign


def _foreign_creates(
    writes: Iterable[Write], *, keys: RingKeys, resources: Collection[str], replicas: Collection[str]
) -> Iterator[ForeignWrite]:
    """Creates of replicas that bear another name than their controller bore at that version of the log.

    A controller that is gone has no owner any more: what is created for it is the garbage collector's.
    """
    label_of: dict[str, str] = {}
    for write in writes:
        if not accepted(write) or write.resource not in resources:
            continue
        if write.labels_after is None:
            label_of.pop(write.uid, None)
            continue
        label = write.labels_after.get(keys.shard, "")
        above = label_of.get(write.controller) if write.controller else None
        if write.verb == "create" and write.user in replicas and above is not None and above != label:
            yield ForeignWrite(write, above)
        label_of[write.uid] = label


def _is_request(write: Write, keys: RingKeys, account_of: Mapping[str, str]) -> bool:
    """Whether *write* did nothing but ask another shard of the ring to pass the object on to the writer.

    A JSON Patch of labels alone, on the object itself, while that bore the name of a shard; what it left differs
    from what it met in nothing but the drain label, which names a life of the writer. Asking twice is asking.
    """
    before, after = write.labels_before or {}, write.labels_after or {}
    asked = after.get(keys.drain, "")
    is_narrow = write.verb == "patch" and write.only_labels and not write.subresource
    is_to_another = before.get(keys.shard, "") in account_of
    is_own = bool(asked) and account_of.get(asked) == write.user
    return is_narrow and is_to_another and is_own and after == {**before, keys.drain: asked}


def refused_writes(
    writes: Iterable[Write], *, resources: Collection[str], replicas: Collection[str]
) -> list[Write]:
    """The changes of replicas that the server refused because a precondition failed: what fences are for."""
    changes = replica_changes(writes, resources=resources, replicas=replicas)
    return [write for write in changes if write.code in (409, 422)]
