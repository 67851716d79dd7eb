"""Judge of reconciles: one owner, work that ends with the Lease, and nothing after an acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulation.judges.known import Known

if TYPE_CHECKING:
    from simulation.fleet import Replica
    from simulation.process import Process

_SLACK_S: Final = 0.6
"""A heartbeat looks twice a second."""


@dataclass(slots=True)
class _Reconcile:
    """One reconcile that runs."""

    replica: Replica
    key: str
    began_at: float


class ReconcileJudge:
    """Judges what runs, and when."""

    def __init__(self, known: Known) -> None:
        self.number = 0
        self._known: Final = known
        self._running: Final[dict[str, list[_Reconcile]]] = {}
        self._given: Final[set[tuple[Process, str]]] = set()
        """Uids of what a process acknowledged, and was not given again."""

    @contextmanager
    def reconcile(self, replica: Replica, uid: str, key: str) -> Iterator[None]:
        """The length of one reconcile of *uid* by *replica*."""
        running = self._running.setdefault(uid, [])
        own = _Reconcile(replica, key, self._known.world.now)
        self._judge_begin(own, uid)
        self._judge_lease(own, begins=True)
        self._judge_overlap(uid, own, running)
        running.append(own)
        self.number += 1
        try:
            yield
        finally:
            if not replica.process.has_ended:
                self._judge_lease(own, begins=False)
                running.remove(own)
                if not running:
                    self._running.pop(uid, None)
                self._judge_overlap(uid, own, running)

    def running(self) -> Iterator[tuple[str, str]]:
        """Key and shard of each reconcile that runs, but for those that no promise covers."""
        for uid, running in self._running.items():
            for each in running:
                is_excused = self._known.is_lagging(uid) or self._is_excused(each)
                if each.replica.is_responsible and not is_excused:
                    yield each.key, each.replica.shard

    def acknowledged(self, replica: Replica, uid: str) -> None:
        """The store accepted that *replica* gives *uid* up: what ran of it has ended."""
        if any(each.replica is replica for each in self._running.get(uid, ())):
            self._known.violate(
                "a drain ends the work first", f"{replica.shard} gives {uid} up, and reconciles it"
            )
        self._given.add((replica.process, uid))

    def owned(self, replica: Replica, uid: str) -> None:
        """The store shows *replica* as the owner."""
        self._given.discard((replica.process, uid))

    def ended(self, replica: Replica) -> None:
        """The process of *replica* has ended: nothing of it runs."""
        for uid, running in list(self._running.items()):
            left = [each for each in running if each.replica is not replica]
            if left:
                self._running[uid][:] = left
            else:
                del self._running[uid]

    def begin_history(self) -> None:
        self._given.clear()

    def _judge_begin(self, own: _Reconcile, uid: str) -> None:
        if (own.replica.process, uid) in self._given:
            self._known.violate(
                "what was given up rests", f"{own.replica.shard} reconciles {own.key}, which it acknowledged"
            )

    def _judge_lease(self, own: _Reconcile, *, begins: bool) -> None:
        """Nothing begins when two thirds of the Lease are over, and nothing goes on when all of it is."""
        replica, age_s = own.replica, own.replica.lease_age_s
        most_s = replica.lease_s * (2 / 3 if begins else 1) + _SLACK_S
        if age_s is not None and age_s > most_s and replica.process.runs_well:
            what = "begins" if begins else "still runs"
            self._known.violate(
                "work ends with the lease",
                f"a reconcile of {own.key} {what} {age_s:.2f} s after the last renewal of {replica.shard}",
            )

    def _judge_overlap(self, uid: str, own: _Reconcile, running: list[_Reconcile]) -> None:
        if not own.replica.is_responsible:
            return
        for other in running:
            is_excused = self._known.is_lagging(uid) or self._is_excused(own, other)
            if other.replica is not own.replica and other.replica.is_responsible and not is_excused:
                self._known.violate(
                    "one owner",
                    f"{own.key} is reconciled by {own.replica.shard} and by {other.replica.shard}"
                    f" (since {other.began_at:.3f}), and neither was kept from noticing it",
                )

    def _is_excused(self, *each: _Reconcile) -> bool:
        """An edited Lease, a copy of a process, and a machine that was stopped are beyond the promise."""
        known = self._known
        return any(known.is_beyond_promises(one.replica) or one.replica.shard in known.forged for one in each)
