"""State of all rings that a sharder publishes: their facts and their last hour, as one document and as changes.

Owns the histories, which outlive a ring's spec; the facts are the rings' own. Sends nothing: `stream` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sharder.live.facts import RingCircles
from sharder.live.frames import Document
from sharder.live.history import RingHistory
from sharder.live.refused import RefusedRing
from sharder.live.ring_view import RingView

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from sharder.live.facts import RingSource
    from sharder.membership.controller import MembershipController
    from sharder.planning.keys import RingKinds
    from sharder.ringspec.spec import RingSpec


class LiveState:
    """Rings by name, of the sharder *identity*."""

    def __init__(self, *, identity: str, clock: Clock) -> None:
        self._identity = identity
        self._leader = ""
        self._clock = clock
        self._rings: dict[str, RingSource] = {}
        self._histories: dict[str, RingHistory] = {}
        self._circles: dict[str, RingCircles] = {}
        self._sent: dict[str, int] = {}

    def at(self) -> float:
        """Seconds since 1970, to the millisecond."""
        return round(self._clock.wall().timestamp(), 3)

    def set_leader(self, sharder: str) -> None:
        """*sharder* leads from now on; empty: none does, or it is not known."""
        self._leader = sharder

    def history(self, ring: str) -> RingHistory:
        """History of *ring*: it outlives the ring's spec."""
        return self._histories.setdefault(ring, RingHistory())

    def open(self, spec: RingSpec, kinds: RingKinds, membership: MembershipController) -> RingView:
        """Publish the ring under this spec from now on."""
        view = RingView(
            spec,
            kinds,
            membership,
            self.history(spec.name),
            circles=self._circles.setdefault(spec.name, RingCircles()),
            leader=lambda: self._leader,
            clock=self._clock,
        )
        self.publish(spec.name, view)
        return view

    def publish(self, ring: str, source: RingSource) -> None:
        """Publish *ring* from *source* from now on."""
        self._rings[ring] = source

    def refuse(self, ring: str, problem: str) -> None:
        """Publish that *ring* cannot be worked, until it is opened again."""
        before = self._rings.get(ring)
        if isinstance(before, RefusedRing):
            before = before.before
        self._rings[ring] = RefusedRing(before, problem)

    def forget(self, ring: str) -> None:
        """The ring is gone."""
        for known in (self._rings, self._histories, self._circles, self._sent):
            known.pop(ring, None)

    def rings(self) -> dict[str, Document]:
        """Every ring's facts, and the counts of the present half minute."""
        at = self.at()
        return {name: self._ring(name, at) for name in sorted(self._rings)}

    def document(self, rings: dict[str, Document] | None = None) -> Document:
        """The whole document around *rings* (from `rings`; None: as they are now): with the last hour."""
        at = self.at()
        rings = self.rings() if rings is None else rings
        hours = {
            name: {
                "timeline": self.history(name).timeline(at=at),
                "happenings": msgspec.to_builtins(self.history(name).recent(at=at)),
            }
            for name in rings
        }
        return {
            "sharder": self._identity,
            "leader": self._leader,
            "at": at,
            "rings": {name: {**ring, **hours[name]} for name, ring in rings.items()},
        }

    def fresh(self) -> dict[str, Document]:
        """News since the last call, by ring: `moves`, the number of `more`, and `happened`, the members' events."""
        found: dict[str, Document] = {}
        for name in self._rings:
            history = self.history(name)
            moves, more = history.take_fresh()
            count = min(history.news - self._sent.get(name, 0), len(history.happenings))
            self._sent[name] = history.news
            news: dict[str, Any] = {}
            if moves:
                news |= {"moves": msgspec.to_builtins(moves), "more": more}
            if count:
                news["happened"] = msgspec.to_builtins(list(history.happenings)[-count:])
            if news:
                found[name] = news
        return found

    def _ring(self, name: str, at: float) -> Document:
        facts: Document = msgspec.to_builtins(self._rings[name].facts())
        return {**facts, "bucket": self.history(name).timeline(at=at)[-1:]}
