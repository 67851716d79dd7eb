"""State of one ring, on which every decision about its objects depends: membership, selected namespaces, terms.

Components do not call each other when one of the three changes: each waits for a newer state and plans again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from sharder.membership.view import View
    from sharder.planning.planner import Terms


class ScanVersion(NamedTuple):
    """Version under which a pass finds objects at their place: the ring's, and that of namespaces and terms."""

    ring: int
    revision: int


@dataclass(frozen=True, slots=True)
class RingState:
    """The newest view, the selected namespaces and the terms, at one moment.

    *selected*: the namespaces whose objects belong to the ring; None: all. *revision* grows when the namespaces, the
    terms or a missing permission change.
    """

    view: View
    terms: Terms
    selected: AbstractSet[str] | None = None
    revision: int = 0

    @property
    def version(self) -> tuple[int, int]:
        """Version of everything: grows with every difference."""
        return self.view.version, self.revision

    @property
    def scan_version(self) -> ScanVersion:
        return ScanVersion(self.view.ring_version, self.revision)

    def selects(self, namespace: str) -> bool:
        """Whether objects of *namespace* belong to the ring; cluster-scoped ones (empty) always do."""
        return self.selected is None or not namespace or namespace in self.selected


class Views(Protocol):
    """Source of views: `sharder.membership.controller.MembershipController`."""

    @property
    def view(self) -> View: ...

    async def wait_newer(self, version: int) -> View: ...


class RingStates:
    """The present state of a ring, and those that follow it."""

    def __init__(self, membership: Views, terms: Terms, selected: AbstractSet[str] | None = None) -> None:
        self._membership: Final = membership
        self._current = RingState(membership.view, terms, selected)
        self._changed = asyncio.Event()

    @property
    def current(self) -> RingState:
        if self._current.view is not self._membership.view:
            self._current = replace(self._current, view=self._membership.view)
        return self._current

    async def wait_newer(self, seen: RingState) -> RingState:
        """The first state that differs from *seen*."""
        while self.current.version == seen.version:
            await self._changed.wait()
        return self.current

    def set_selected(self, selected: AbstractSet[str]) -> None:
        """Other namespaces are selected now."""
        self._revise(replace(self._current, selected=frozenset(selected)))

    def set_terms(self, terms: Terms) -> None:
        """The ring allows other writes now."""
        if terms != self._current.terms:
            self._revise(replace(self._current, terms=terms))

    def revise(self) -> None:
        """Something else changed on which writes depend: a permission that was missing is granted."""
        self._revise(self._current)

    async def run(self) -> None:
        """Follow the membership until cancelled."""
        version = self._current.view.version
        while True:
            version = (await self._membership.wait_newer(version)).version
            self._notify()

    def _revise(self, state: RingState) -> None:
        self._current = replace(state, revision=state.revision + 1)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
