"""The objects that need an owner, as the unowned watches show them. Pure: one owner, sync methods.

Filled by `sharder.unowned`, emptied by `sharder.mover`. Holds metadata only, and only of what waits: its size
follows the work to be done, not the number of objects that exist.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubeio.models import Meta, ObjectKey
from kubeio.resource import Resource


class WorkKey(msgspec.Struct, frozen=True, gc=False, order=True):
    """One object of one resource (`websites.example.com`)."""

    resource: str
    key: ObjectKey

    def __str__(self) -> str:
        return f"{self.resource}/{self.key}"


class WaitingObject(msgspec.Struct, frozen=True, gc=False):
    """The version of an object that waits for an owner, and since when (seconds of the sharder's clock)."""

    work: WorkKey
    meta: Meta
    since: float


class Waiting:
    """What waits, by object; with an index of controlled objects by their controller's uid."""

    def __init__(self) -> None:
        self._objects: dict[WorkKey, WaitingObject] = {}
        self._controlled: dict[str, set[WorkKey]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[WaitingObject]:
        return iter(tuple(self._objects.values()))

    def get(self, work: WorkKey) -> WaitingObject | None:
        return self._objects.get(work)

    def put(self, work: WorkKey, meta: Meta, *, at: float) -> bool:
        """Remember *meta* unless a newer version is known; true if there is something new to decide."""
        known = self._objects.get(work)
        if known is not None and known.meta.uid == meta.uid and not is_newer(meta, known.meta):
            return False
        since = known.since if known is not None and known.meta.uid == meta.uid else at
        self.drop(work)
        self._objects[work] = WaitingObject(work, meta, since)
        controller = meta.controller
        if controller is not None:
            self._controlled.setdefault(controller.uid, set()).add(work)
        return True

    def drop(self, work: WorkKey) -> None:
        """Forget an object: it has an owner, or is gone."""
        known = self._objects.pop(work, None)
        controller = known.meta.controller if known is not None else None
        if controller is not None:
            siblings = self._controlled[controller.uid]
            siblings.discard(work)
            if not siblings:
                del self._controlled[controller.uid]

    def drop_up_to(self, work: WorkKey, version: int) -> None:
        """Forget an object unless a version newer than *version* is known."""
        known = self._objects.get(work)
        if known is not None and int(known.meta.resource_version or 0) <= version:
            self.drop(work)

    def of_resource(self, resource: Resource) -> list[WorkKey]:
        return [work for work in self._objects if work.resource == resource.group_resource]

    def controlled_by(self, uid: str) -> list[WaitingObject]:
        """Waiting objects whose controller has *uid*."""
        return [self._objects[work] for work in self._controlled.get(uid, ())]

    def oldest_s(self, now: float) -> float:
        """Age of what waits longest; 0 when nothing waits. O(n)."""
        return max((now - waiting.since for waiting in self._objects.values()), default=0.0)


def is_newer(meta: Meta, than: Meta) -> bool:
    """Whether *meta* is a later version of the same object: resourceVersions of one resource are ordered."""
    return int(meta.resource_version or 0) > int(than.resource_version or 0)
