"""Versions of consecutive views of one ring. Pure; owned by `sharder.membership.membership`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sharder.membership.view import OwnerState, owner_state_of

if TYPE_CHECKING:
    from sharder.membership.view import View


class ViewVersions:
    """Numbers the views of one ring: `View.version` and `View.ring_version`."""

    def __init__(self) -> None:
        self._last: View | None = None
        self._version = 0
        self._ring_content: object = None
        self._ring_version = 0

    def numbered(self, view: View) -> View:
        """*view* with its versions; the last ones unless it differs from the last view in more than its instant."""
        content = _ring_content(view)
        if content != self._ring_content:
            self._ring_version += 1
            self._ring_content = content
        timeless = replace(view, version=0, ring_version=self._ring_version, at=0.0)
        if timeless != self._last:
            self._version += 1
            self._last = timeless
        return replace(view, version=self._version, ring_version=self._ring_version)


def _ring_content(view: View) -> object:
    """Differs if an object's desired owner or the fate of an owner may: names that no shard had change nothing."""
    fates = {
        name: owner_state
        for name, shard in view.shards.items()
        if shard.had_lease and (owner_state := owner_state_of(shard.state)) is not OwnerState.LIVE
    }
    # a shard that joins the rings has no object to move yet
    filled = {member: place for member, place in view.places.items() if member in (view.ring or ())}
    return fates, view.foreign, filled, view.ring, view.rings, view.unknown_are_dead
