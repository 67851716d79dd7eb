"""Limits on handoffs in flight, in all and per owner. Pure; owned by `sharder.moving.handoffs`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kubeio.models import ObjectRef

UNASKED_PART: Final = 0.1
"""Drain labels that no sharder wrote take this part of the limits at most: any client may write one."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """One drain that its owner has not answered yet; *asked* for by a sharder, or written by another client."""

    owner: str
    since: float
    asked: bool = True


class DrainBudget:
    """Handoffs in flight, by object, and what is left of the ring's two limits.

    A handoff past *timeout_s* no longer counts, so that one shard that hangs does not stop all others; it is still in
    flight and shows in `overdue`. The shard itself gets one more handoff per timeout until it answers one.
    Fed by the watch of drain labels: that, not our own writes, is the truth.
    Instants never go back, so handoffs are in the order in which they will be overdue: no answer costs more than
    those that are.
    """

    def __init__(self, *, max_in_flight: int, max_per_owner: int, timeout_s: float) -> None:
        self.max_in_flight = max_in_flight
        self.max_per_owner = max_per_owner
        self.timeout_s = timeout_s
        self._handoffs: dict[ObjectRef, Handoff] = {}
        self._of_owner: Counter[str] = Counter()
        self._unasked: Counter[str] = Counter()
        """Those of them that no sharder asked for."""
        self._answered_at: dict[str, float] = {}
        """Instant of the last answer of each owner of what is in flight."""

    def __contains__(self, ref: ObjectRef) -> bool:
        return ref in self._handoffs

    def begin(self, ref: ObjectRef, *, owner: str, at: float, asked: bool = True) -> None:
        """*ref* carries a drain label and belongs to *owner*; a repeated call keeps the first instant."""
        known = self._handoffs.get(ref)
        if known is None or known.owner != owner:
            self.end(ref)
            self._handoffs[ref] = Handoff(owner, at, asked)
            self._of_owner[owner] += 1
            self._unasked[owner] += not asked

    def begun_before(self, at: float) -> list[ObjectRef]:
        """Objects whose handoffs were known before *at*."""
        return [ref for ref, _ in self._until(at, including=False)]

    def end(self, ref: ObjectRef) -> None:
        """*ref* carries no drain label any more, or is gone."""
        known = self._handoffs.pop(ref, None)
        if known is not None:
            self._of_owner[known.owner] -= 1
            self._unasked[known.owner] -= not known.asked
            if not self._of_owner[known.owner]:
                del self._of_owner[known.owner], self._unasked[known.owner]
                self._answered_at.pop(known.owner, None)

    def answered(self, ref: ObjectRef, *, at: float) -> Handoff | None:
        """The owner of *ref* gave it up, or it is gone. Returns the handoff that ended; None if none was known."""
        known = self._handoffs.get(ref)
        if known is not None:
            self._answered_at[known.owner] = at
        self.end(ref)
        return known

    def available(self, owner: str, *, at: float) -> int:
        """Number of further drains that may be sent to *owner* now."""
        in_all, unasked = len(self._handoffs), self._unasked.total()
        of_owner, unasked_of_owner = self._of_owner[owner], self._unasked[owner]
        for _, late in self._overdue(at):
            in_all -= 1
            unasked -= not late.asked
            of_owner -= late.owner == owner
            unasked_of_owner -= late.owner == owner and not late.asked
        limit = min(1, self.max_per_owner) if self.hangs(owner, at=at) else self.max_per_owner
        return max(
            0, min(_left(self.max_in_flight, in_all, unasked), _left(limit, of_owner, unasked_of_owner))
        )

    def hangs(self, owner: str, *, at: float) -> bool:
        """Whether *owner* is late with a handoff and has answered none for the timeout."""
        if at - self._answered_at.get(owner, float("-inf")) < self.timeout_s:
            return False
        return any(handoff.owner == owner for _, handoff in self._overdue(at))

    def hangs_at(self, owner: str) -> float:
        """Instant from which *owner*, which is late, counts as hanging if it answers nothing."""
        return self._answered_at.get(owner, float("-inf")) + self.timeout_s

    def in_order(self, owners: Iterable[str], *, at: float) -> list[str]:
        """*owners* in the order in which they should be asked: those late with a handoff come last.

        Or one that hangs would be given all the budget again at each timeout.
        """
        late = {handoff.owner for _, handoff in self._overdue(at)}
        return sorted(owners, key=lambda owner: owner in late)

    def oldest(self, count: int) -> list[tuple[ObjectRef, Handoff]]:
        """The first *count* handoffs under way, oldest first."""
        return list(islice(self._handoffs.items(), count))

    def in_flight(self) -> Mapping[str, int]:
        """Handoffs under way by owner, overdue ones included."""
        return +self._of_owner

    def is_moving(self, *, at: float) -> bool:
        """Whether some handoff is under way that is not overdue."""
        return self.next_deadline(at=at) is not None

    def overdue(self, *, at: float) -> Mapping[ObjectRef, Handoff]:
        """Handoffs past the timeout."""
        return dict(self._overdue(at))

    def next_deadline(self, *, at: float) -> float | None:
        """Instant at which the next handoff will be overdue; None if there is none."""
        due = (handoff.since + self.timeout_s for handoff in self._handoffs.values())
        return next((instant for instant in due if instant > at), None)

    def _overdue(self, at: float) -> Iterator[tuple[ObjectRef, Handoff]]:
        return self._until(at - self.timeout_s, including=True)

    def _until(self, at: float, *, including: bool) -> Iterator[tuple[ObjectRef, Handoff]]:
        """Those begun before *at*, oldest first."""
        for ref, handoff in self._handoffs.items():
            if handoff.since > at or (handoff.since == at and not including):
                return
            yield ref, handoff


def _left(limit: int, count: int, unasked: int) -> int:
    """Rest of *limit* after *count* handoffs; the *unasked* ones take a tenth of it at most, rounded up."""
    return limit - (count - unasked) - min(unasked, math.ceil(limit * UNASKED_PART))
