"""Where rings of the sharder step onto the page: one room for each, made anew with each spec.

Owns what outlives a spec: histories (the board's) and pictures of rings. Given by `sharder.app` to those that work
rings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharder.page.facts import Circles
from sharder.page.rooms import RingRoom
from sharder.page.unworked import Unworked

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.rest.client import Client
    from sharder.membership.roster import Roster
    from sharder.page.board import Board
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.spec import RingSpec


class Stage:
    """Shows rings on *board*; *client* reads the objects that are looked for."""

    def __init__(self, board: Board, client: Client, *, clock: Clock) -> None:
        self._board = board
        self._client = client
        self._clock = clock
        self._circles: dict[str, Circles] = {}

    def open(self, spec: RingSpec, kinds: RingKinds, roster: Roster) -> RingRoom:
        """The ring under this spec, on the page from now on."""
        room = RingRoom(
            spec,
            kinds,
            roster,
            self._client,
            self._board.history(spec.name),
            circles=self._circles.setdefault(spec.name, Circles()),
            clock=self._clock,
        )
        self._board.show(spec.name, room)
        return room

    def refuse(self, ring: str, problem: str) -> None:
        """*ring* cannot be worked, until it is opened again."""
        before = self._board.subject(ring)
        if isinstance(before, Unworked):
            before = before.before
        self._board.show(ring, Unworked(before, problem))

    def forget(self, ring: str) -> None:
        """The ring is gone."""
        self._circles.pop(ring, None)
        self._board.forget(ring)
