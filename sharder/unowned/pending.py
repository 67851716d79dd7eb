"""Objects that need an owner, as the unowned watches show them. Pure: one owner, sync methods.

The reflectors fill it, the assigner empties it. It holds only what a decision needs, and only of pending objects: its
size follows the work to be done, not the number of objects that exist. Each takes about 200 bytes: a dict entry, the
key, a record of `sharder.unowned.packing`. `Meta` is made when it is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from enum import IntEnum
from typing import Final

import msgspec

from kubeio.models import Meta, ObjectKey, ObjectRef, OwnerReference
from kubeio.versions import order
from sharder.unowned.list_progress import ListProgress
from sharder.unowned.packing import (
    LONGEST_MS,
    NO_UID,
    RECORD,
    UNPACKED,
    Labels,
    Marks,
    PackedController,
    Rest,
    SharedValues,
    labels_of,
    marked,
    marks_of,
    packed_controller,
    packed_uid,
    reference_to,
    text_uid,
    unpacked,
    version_of,
)

ENOUGH: Final = 50_000
"""Objects of one resource that wait, 10 MB: nothing but watches adds more, since what they show is new."""
_FIRST_PREFIX: Final = 48
"""Behind `/`, which ends the namespace."""


class PendingObject(msgspec.Struct, frozen=True, gc=False):
    """The version of an object that waits for an owner, and since when (seconds of the sharder's clock).

    *meta* has the labels that `PendingObjects` keeps, and no annotations.
    """

    ref: ObjectRef
    meta: Meta
    since: float
    reads_before: int = 0
    """Reads of the Leases that had begun when this version came (`PendingObjects.begin_read`)."""


class AssignmentPriority(IntEnum):
    """Urgency of a pending object: an object whose delay people notice first comes first."""

    NEW = 2
    """Made just now, its owner's label was taken off, or written since its owner died: a user waits for it."""
    ORPHANED = 1
    """Its owner died: it was reconciled until then, and is not now."""
    BACKLOG = 0
    """Never had an owner and was found by a list: a first assignment."""


class ListedMeta(msgspec.Struct, gc=False, rename="camel"):
    """Metadata read of an object in a list: the part of `Meta` that is kept."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class PendingObjects:
    """Pending objects, with an index of controlled ones by their controller's uid.

    *labels*: names of the labels to keep; None keeps all. Inside, an object is a short string, its *name*.
    """

    def __init__(self, *, labels: Iterable[str] | None = None) -> None:
        self._kept = None if labels is None else tuple(sorted(set(labels)))
        self._records: dict[str, bytes] = {}
        self._rest: dict[str, Rest] = {}
        self._counts: defaultdict[str, int] = defaultdict(int)
        """Objects by the prefix of their resource."""
        self._controlled: dict[str, set[str]] = {}
        self._repeated = SharedValues()
        self._prefixes: dict[str, str] = {}
        self._resources: dict[str, str] = {}
        self._interned: dict[PackedController, PackedController] = {}
        self._epoch: float | None = None
        self._reads = 0
        self._lists: dict[str, ListProgress] = {}
        self._overlapping: set[str] = set()

    def __len__(self) -> int:
        return len(self._records)

    def is_full(self, resource: str) -> bool:
        """Whether lists and passes should enqueue no more of *resource*: the unowned lists show everything in time."""
        return self._counts[self.prefix(resource)] >= ENOUGH

    def __iter__(self) -> Iterator[PendingObject]:
        """Every object; what changes meanwhile may be left out."""
        for name in tuple(self._records):
            found = self.by_name(name)
            if found is not None:
                yield found

    # ---- objects ----------------------------------------------------------------------------------------------

    def get(self, ref: ObjectRef) -> PendingObject | None:
        return self.by_name(self.name(ref))

    def put(
        self,
        ref: ObjectRef,
        meta: Meta,
        *,
        at: float,
        priority: AssignmentPriority = AssignmentPriority.ORPHANED,
    ) -> bool:
        """Remember *meta* unless a newer version is known; true if there is something new to decide."""
        return self.put_named(self.name(ref), meta, at=at, priority=priority)

    def oldest_s(self, now: float, *, refused: Container[ObjectRef] = ()) -> float:
        """Age in seconds of the object that waits longest, *refused* ones left out; 0 when none waits."""
        for name, record in self._records.items():  # the oldest first: what is renewed keeps its place
            if self.ref(name) not in refused:
                return max(0.0, now - self._since(unpacked(record).since_ms))
        return 0.0

    # ---- the same by name -------------------------------------------------------------------------------------

    def prefix(self, resource: str) -> str:
        """Prefix of the names of *resource*'s objects; `namespace/name` follows."""
        prefix = self._prefixes.get(resource)
        if prefix is None:
            prefix = self._prefixes[resource] = chr(_FIRST_PREFIX + len(self._prefixes))
            self._resources[prefix] = resource
        return prefix

    def area(self, resource: str, namespace: str) -> str:
        """Prefix of the names of *resource*'s objects in *namespace*; empty: of all of them."""
        return f"{self.prefix(resource)}{namespace}/" if namespace else self.prefix(resource)

    def name(self, ref: ObjectRef) -> str:
        return f"{self.prefix(ref.resource)}{ref.key.namespace}/{ref.key.name}"

    def ref(self, name: str) -> ObjectRef:
        namespace, _, object_name = name[1:].partition("/")
        return ObjectRef(self._resources[name[0]], ObjectKey(namespace, object_name))

    def names(self) -> Iterable[str]:
        """Names of all objects that wait; not to be iterated while they change."""
        return self._records.keys()

    def knows(self, name: str) -> bool:
        return name in self._records

    def label(self, name: str, key: str) -> str | None:
        """The label *key* of the object; cheap, since most objects have one of few sets of labels."""
        record = self._records.get(name)
        number = labels_of(record) if record is not None else 0
        if not number:
            return None
        labels = self._rest[name].labels if number == UNPACKED else self._repeated.labels(number)
        return next((value for label, value in labels if label == key), None)

    def controller(self, name: str) -> str:
        """The uid of the object's controller; empty without one."""
        rest = self._rest.get(name)
        return rest.controller.uid if rest is not None and rest.controller is not None else ""

    def controlled_by(self, uid: str) -> Iterable[str]:
        """Names of waiting objects whose controller has *uid*; not to be iterated while they change."""
        return self._controlled.get(uid, ())

    def by_name(self, name: str) -> PendingObject | None:
        record = self._records.get(name)
        return self._made(name, record) if record is not None else None

    def put_named(
        self, name: str, meta: Meta | ListedMeta, *, at: float, priority: AssignmentPriority
    ) -> bool:
        """`put` for an object whose name is known."""
        known = self._records.get(name)
        version = order(meta.resource_version)
        if known is not None and self._uid(name, known) != meta.uid:
            self.drop(name)
            known = None
        if known is None:
            marks, since = int(priority), self._since_ms(at)
            self._counts[name[0]] += 1
        elif version <= version_of(known):
            return False
        else:
            marks, since = self._known_marks(known), unpacked(known).since_ms
            self._forget(name)
        labels = self._kept_labels(meta)
        number = self._repeated.number(labels)
        uid = packed_uid(meta.uid)
        rest = self._rest_of(meta, uid, labels if number == UNPACKED else ())
        if rest is not None:
            self._rest[name] = rest
            marks |= Marks.HAS_REST
            if rest.controller is not None:
                self._controlled.setdefault(rest.controller.uid, set()).add(name)
        self._records[name] = RECORD.pack(uid, version, since, self._reads, number, marks)
        return True

    def drop(self, name: str) -> None:
        """Forget an object: it has an owner, or is gone."""
        record = self._records.pop(name, None)
        if record is None:
            return
        self._counts[name[0]] -= 1
        self._forget(name)
        if not self._records:  # a dict that grew stays large: begin a new one
            self._records, self._rest, self._interned = {}, {}, {}
            self._repeated = SharedValues()
            self._epoch = None

    def drop_up_to(self, name: str, version: int) -> None:
        """Forget an object unless a version newer than *version* is known."""
        known = self._records.get(name)
        if known is not None and version_of(known) <= version:
            self.drop(name)
        listing = self._listing(name)
        if listing is not None:
            listing.mark_handled(name, version)

    # ---- for the assigner -------------------------------------------------------------------------------------

    def priority(self, name: str) -> AssignmentPriority:
        return AssignmentPriority(marks_of(self._records[name]) & Marks.PRIORITY)

    def version(self, name: str) -> int:
        """The version of *name* that is known; 0 if it does not wait."""
        record = self._records.get(name)
        return version_of(record) if record is not None else 0

    def raise_priority(self, name: str) -> None:
        """Give *name* the highest priority."""
        record = self._records.get(name)
        if record is not None:
            marks = marks_of(record) & ~Marks.PRIORITY | AssignmentPriority.NEW
            self._records[name] = marked(record, marks)

    def begin_read(self) -> int:
        """A read of the Leases begins: evidence for every version that is known. Its number, from 1."""
        self._reads += 1
        return self._reads

    # ---- for lists --------------------------------------------------------------------------------------------

    # An area is what one list shows: a resource, or its objects in one namespace.

    def begin_list(self, area: str) -> None:
        """A new list of *area* is asked for; one that did not come to its end counts for nothing."""
        self._lists[area] = ListProgress(is_overlapping=area in self._overlapping)
        for name, record in self._records.items():
            if marks_of(record) & Marks.IS_LISTED and name.startswith(area):
                self._records[name] = marked(record, marks_of(record) & ~Marks.IS_LISTED)

    def put_listed(
        self, area: str, name: str, meta: Meta | ListedMeta, *, at: float, priority: AssignmentPriority
    ) -> bool:
        """`put` of an object that the list under way shows, unless that version or a later one was handled since."""
        listing = self._lists[area]
        listing.position = max(listing.position, name)
        if listing.is_handled(name, order(meta.resource_version)):
            return False
        is_new = self.put_named(name, meta, at=at, priority=priority)
        record = self._records[name]
        self._records[name] = marked(record, marks_of(record) | Marks.IS_LISTED)
        return is_new

    def put_seen(
        self, name: str, meta: Meta | ListedMeta, *, at: float, priority: AssignmentPriority
    ) -> bool:
        """`put` of an object that a watch shows: two watches may show the same one, and one of them late."""
        listing = self._listing(name)
        if listing is not None and listing.is_handled(name, order(meta.resource_version)):
            return False
        return self.put_named(name, meta, at=at, priority=priority)

    def end_list(self, area: str, version: int) -> None:
        """End the list, of *version*: objects that it did not show no longer wait."""
        listing = self._lists[area]
        for name, record in tuple(self._records.items()):
            if not marks_of(record) & Marks.IS_LISTED and name.startswith(area):
                self.drop_up_to(name, version)
        listing.is_complete = True
        listing.prune()

    def overlap(self, area: str, is_overlapping: bool) -> None:
        """Set whether two watches of *area* run: one may show late what the other showed, handled since."""
        if is_overlapping:
            self._overlapping.add(area)
        else:
            self._overlapping.discard(area)
        listing = self._lists.get(area)
        if listing is not None:
            listing.is_overlapping = is_overlapping
            listing.prune()

    @property
    def remembered(self) -> int:
        """Number of handled objects that a list or a second watch may still show."""
        return sum(map(len, self._lists.values()))

    def _listing(self, name: str) -> ListProgress | None:
        """The list, if any, that shows *name*."""
        found = self._lists.get(name[0])
        return found if found is not None else self._lists.get(name[: name.index("/") + 1])

    # ---- inside -----------------------------------------------------------------------------------------------

    def _kept_labels(self, meta: Meta | ListedMeta) -> Labels:
        labels = meta.labels
        if not labels:
            return ()
        if self._kept is None:
            return tuple(sorted(labels.items()))
        return tuple([(name, labels[name]) for name in self._kept if name in labels])

    def _rest_of(self, meta: Meta | ListedMeta, uid: bytes, labels: Labels) -> Rest | None:
        controller = packed_controller(meta.owner_references) if meta.owner_references else None
        if controller is not None:  # many objects may have the same one
            controller = self._interned.setdefault(controller, controller)
        text = meta.uid if uid is NO_UID else ""
        return Rest(controller, text, labels) if controller or text or labels else None

    def _made(self, name: str, record: bytes) -> PendingObject:
        uid, version, since, reads_before, number, marks = unpacked(record)
        rest = self._rest[name] if marks & Marks.HAS_REST else Rest()
        ref = self.ref(name)
        meta = Meta(
            name=ref.key.name,
            namespace=ref.key.namespace,
            uid=rest.uid or (text_uid(uid) if uid != NO_UID else ""),
            resource_version=str(version) if version else "",
            labels=dict(self._repeated.labels(number) if number != UNPACKED else rest.labels),
            owner_references=[reference_to(rest.controller)] if rest.controller is not None else [],
        )
        return PendingObject(ref, meta, self._since(since), reads_before)

    def _since_ms(self, at: float) -> int:
        if self._epoch is None:
            self._epoch = at
        return min(max(0, int((at - self._epoch) * 1000)), LONGEST_MS)

    def _since(self, kept_ms: int) -> float:
        return (self._epoch or 0.0) + kept_ms / 1000

    @staticmethod
    def _known_marks(record: bytes) -> int:
        return marks_of(record) & ~Marks.HAS_REST

    def _uid(self, name: str, record: bytes) -> str:
        uid = record[:16]
        if uid != NO_UID:
            return text_uid(uid)
        return self._rest[name].uid if marks_of(record) & Marks.HAS_REST else ""

    def _forget(self, name: str) -> None:
        """Take *name* out of every index but the records."""
        rest = self._rest.pop(name, None)
        if rest is None or rest.controller is None:
            return
        siblings = self._controlled[rest.controller.uid]
        siblings.discard(name)
        if not siblings:
            del self._controlled[rest.controller.uid]
            self._interned.pop(rest.controller, None)
