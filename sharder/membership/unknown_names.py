"""Names on objects that no shard's Lease ever bore. Pure; owned by `sharder.membership.membership`.

The right to label an object is enough to make such a name, so few of them are cared for at a time (protocol, section 4:
a name without a Lease).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sharder.errors import FieldProblem
from sharder.membership.shards import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sharder.membership.shards import Shard

MAX_UNKNOWN_NAMES: Final = 100
"""Names that no shard's Lease ever bore and that are not dead yet: each costs a Lease and a minute's wait."""
MAX_TOMBSTONES: Final = 1000
"""The same names with the dead ones, whose Leases stay while objects carry them."""
DEFERRED_S: Final = 60.0
"""A name that waits for care is counted for so long after its last report."""
FORGET_AFTER_S: Final = 600.0
"""Memory of foreign names; one that matters is found again."""


class UnknownNames:
    """Foreign names, names that wait for care, and names for which no tombstone may be created.

    A foreign name belongs to a Lease of another ring, or of none: no shard of this ring works under it.
    """

    def __init__(self) -> None:
        self.refused: dict[str, FieldProblem] = {}
        """Problem of each name for which the API server refused a tombstone."""
        self.awaited: set[str] = set()
        """Names whose tombstone may have been created, and was not seen yet."""
        self.complete_since = math.inf
        """Begin of the list after which the Lease watch shows every version; infinity: it lists anew."""
        self.releasing_since = math.inf
        """Instant at which the ring's deletion was seen."""
        self._foreign: dict[str, float] = {}
        self._deferred: dict[str, float] = {}
        self._left = 0

    @property
    def foreign(self) -> frozenset[str]:
        return frozenset(self._foreign)

    @property
    def deferred(self) -> int:
        """Names reported within the last minute that wait until fewer are under care; counted up to 1,000."""
        return len(self._deferred)

    def dead_at(self, *, max_lease_duration_s: float) -> float:
        """Instant from which no process works under an unknown name: one whose Lease went before has stopped.

        By then each sharder that still acts knows of the deletion too, and gives no object that a late birth may have
        found under its name to another shard. No tombstone is needed any more. Infinity while the ring stays.
        """
        return max(self.complete_since, self.releasing_since) + max_lease_duration_s

    def note_foreign(self, name: str, *, at: float) -> None:
        """*name*'s Lease is of another ring, or its holder is: the name is dead at once."""
        self._foreign[name] = at

    def note_known(self, name: str) -> None:
        """*name* has a Lease of this ring."""
        self._foreign.pop(name, None)

    def is_foreign(self, name: str, *, at: float) -> bool:
        """Whether *name*, which an object carries, is foreign; it is remembered longer then."""
        if name not in self._foreign:
            return False
        self._foreign[name] = at
        return True

    def admit(self, name: str, *, at: float) -> bool:
        """Whether *name* may have a tombstone now. Otherwise it is deferred, and has to be reported again."""
        if self._left > 0:
            self._left -= 1
            self._deferred.pop(name, None)
            return True
        if name in self._deferred or len(self._deferred) < MAX_TOMBSTONES:
            self._deferred[name] = at
        return False

    def refuse(self, name: str, *, why: str) -> None:
        """The API server refused a tombstone for *name*: a policy or a missing right forbids it."""
        self.awaited.discard(name)
        self.refused[name] = FieldProblem(
            f"leases/{name}",
            name,
            f"has objects and no Lease, and the sharder may not create one ({why}): its objects wait",
            "let the sharder's account create Leases in the ring's lease namespace",
        )

    def advance(self, shards: Mapping[str, Shard], *, fresh_at: float, now: float) -> None:
        """Drop what was not reported for long, and recount the tombstones that may be wanted beside *shards*."""
        horizon = now - FORGET_AFTER_S
        self._foreign = {name: at for name, at in self._foreign.items() if at > horizon}
        self._deferred = {name: at for name, at in self._deferred.items() if at > now - DEFERRED_S}
        if self.refused or self.awaited:
            wanted = {name for name, shard in shards.items() if shard.lease is None}
            self.awaited &= wanted
            self.refused = {name: problem for name, problem in self.refused.items() if name in wanted}
        unknown = [shard for shard in shards.values() if not shard.had_lease]
        undead = sum(1 for shard in unknown if shard.state(fresh_at) is not ShardState.DEAD)
        self._left = max(0, min(MAX_UNKNOWN_NAMES - undead, MAX_TOMBSTONES - len(unknown)))
