"""Content of the page: every ring's facts and its last hour, as one document and as the changes since.

Owns the histories; the facts are the subjects'. Sends nothing: `live` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sharder.page.frames import Document
from sharder.page.history import RingHistory

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from sharder.page.facts import RingSource


class Board:
    """Rings by name. *title* names the source: a sharder, or the server that `ringleader dashboard` asks."""

    def __init__(self, *, title: str, clock: Clock) -> None:
        self.title = title
        self._clock = clock
        self._subjects: dict[str, RingSource] = {}
        self._histories: dict[str, RingHistory] = {}
        self._sent: dict[str, int] = {}

    def at(self) -> float:
        """Seconds since 1970, to the millisecond."""
        return round(self._clock.wall().timestamp(), 3)

    def history(self, ring: str) -> RingHistory:
        """History of *ring*: it outlives the ring's subjects."""
        return self._histories.setdefault(ring, RingHistory())

    def show(self, ring: str, subject: RingSource) -> None:
        """*subject* is *ring* from now on."""
        self._subjects[ring] = subject

    def forget(self, ring: str) -> None:
        """The ring is gone."""
        self._subjects.pop(ring, None)
        self._histories.pop(ring, None)
        self._sent.pop(ring, None)

    def subject(self, ring: str) -> RingSource | None:
        return self._subjects.get(ring)

    def now(self) -> dict[str, Document]:
        """Every ring's facts, and the counts of the present half minute."""
        at = self.at()
        return {name: self._ring(name, at) for name in sorted(self._subjects)}

    def picture(self, rings: dict[str, Document]) -> Document:
        """The whole document around *rings* (from `now`): with the last hour."""
        at = self.at()
        hours = {
            name: {
                "timeline": self.history(name).timeline(at=at),
                "happenings": msgspec.to_builtins(self.history(name).recent(at=at)),
            }
            for name in rings
        }
        return {
            "title": self.title,
            "at": at,
            "rings": {name: {**ring, **hours[name]} for name, ring in rings.items()},
        }

    def fresh(self) -> dict[str, Document]:
        """News since the last call, by ring: `moves`, the number of `more`, and `happened`, the members' events."""
        found: dict[str, Document] = {}
        for name in self._subjects:
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
        facts: Document = msgspec.to_builtins(self._subjects[name].facts())
        return {**facts, "bucket": self.history(name).timeline(at=at)[-1:]}
