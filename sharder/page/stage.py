"""Registers one page view per ring of the sharder; replaced when the ring's spec changes.

Owns the state that outlives a spec: histories (the board's) and the drawn circles of rings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharder.page.facts import RingCircles
from sharder.page.page_ring import PageRing
from sharder.page.unworked import Unworked

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.rest.client import Client
    from sharder.membership.controller import MembershipController
    from sharder.page.board import Board
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.spec import RingSpec


class Stage:
    """Shows rings on *board*; *client* reads the objects that viewers search."""

    def __init__(self, board: Board, client: Client, *, clock: Clock) -> None:
        self._board = board
        self._client = client
        self._clock = clock
        self._circles: dict[str, RingCircles] = {}

    def open(self, spec: RingSpec, kinds: RingKinds, membership: MembershipController) -> PageRing:
        """The ring under this spec, on the page from now on."""
        page_ring = PageRing(
            spec,
            kinds,
            membership,
            self._client,
            self._board.history(spec.name),
            circles=self._circles.setdefault(spec.name, RingCircles()),
            clock=self._clock,
        )
        self._board.show(spec.name, page_ring)
        return page_ring

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
