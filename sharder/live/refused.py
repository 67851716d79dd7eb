"""A ring that the sharder refuses to work: its last facts, and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from sharder.live.facts import RingFacts

if TYPE_CHECKING:
    from sharder.live.facts import RingSource


class RefusedRing:
    """A ring that is not worked because of *problem*. *before*: its last source; None: it was never worked."""

    def __init__(self, before: RingSource | None, problem: str) -> None:
        self.before = before
        self._problem = problem

    def facts(self) -> RingFacts:
        last = self.before.facts() if self.before is not None else RingFacts()
        note = "this ring is not worked"
        return msgspec.structs.replace(last, acting=False, converged=False, note=note, problem=self._problem)
