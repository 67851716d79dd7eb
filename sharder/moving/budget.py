"""How many handoffs may be under way at once. Pure; owned by the pass that sends drains."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Handoff:
    """One drain that its owner has not answered yet."""

    owner: str
    since: float


class DrainBudget:
    """Handoffs in flight, by object, and the room that is left under the ring's two limits.

    A handoff past *timeout_s* no longer takes room, so that one shard that hangs does not stop all others; it is
    still in flight and shows in `overdue`. Fed by the watch of drain labels: that, not our own writes, is the truth.
    """

    def __init__(self, *, max_in_flight: int, max_per_owner: int, timeout_s: float) -> None:
        self.max_in_flight = max_in_flight
        self.max_per_owner = max_per_owner
        self.timeout_s = timeout_s
        self._handoffs: dict[Hashable, Handoff] = {}

    def begin(self, key: Hashable, *, owner: str, at: float) -> None:
        """The object *key* carries a drain label and belongs to *owner*; a repeated call keeps the first instant."""
        known = self._handoffs.get(key)
        if known is None or known.owner != owner:
            self._handoffs[key] = Handoff(owner, at)

    def begun_before(self, at: float) -> list[Hashable]:
        """Objects whose handoffs were known before *at*."""
        return [key for key, handoff in self._handoffs.items() if handoff.since < at]

    def end(self, key: Hashable) -> None:
        """The object *key* carries no drain label any more, or is gone."""
        self._handoffs.pop(key, None)

    def room(self, owner: str, *, at: float) -> int:
        """How many more drains may be asked of *owner* now."""
        counted = self._counted(at)
        return max(0, min(self.max_in_flight - counted.total(), self.max_per_owner - counted[owner]))

    def in_order(self, owners: Iterable[str], *, at: float) -> list[str]:
        """*owners* in the order in which they should be asked: who is late with a handoff comes last.

        Or one that hangs would be given all the room again at each timeout.
        """
        late = {handoff.owner for handoff in self.overdue(at=at).values()}
        return sorted(owners, key=lambda owner: owner in late)

    def in_flight(self) -> Mapping[str, int]:
        """Handoffs under way by owner, overdue ones included."""
        return Counter(handoff.owner for handoff in self._handoffs.values())

    def is_moving(self, *, at: float) -> bool:
        """Whether some handoff is under way that is not overdue."""
        return any(at - handoff.since < self.timeout_s for handoff in self._handoffs.values())

    def overdue(self, *, at: float) -> Mapping[Hashable, Handoff]:
        """Handoffs past the timeout."""
        return {key: h for key, h in self._handoffs.items() if at - h.since >= self.timeout_s}

    def next_deadline(self, *, at: float) -> float | None:
        """When the next handoff will be overdue."""
        due = (h.since + self.timeout_s for h in self._handoffs.values())
        return min((instant for instant in due if instant > at), default=None)

    def _counted(self, at: float) -> Counter[str]:
        return Counter(h.owner for h in self._handoffs.values() if at - h.since < self.timeout_s)
