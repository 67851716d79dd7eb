"""Findings of one pass over the objects with an owner. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kubeio.models import ObjectRef
    from sharder.planning.state import ScanVersion

MAX_DISPLACED: Final = 10_000
"""Roots remembered as not at their place, a megabyte; with more, what they control waits for a later pass."""
MAX_SUSPECTS: Final = 2_000
"""Objects remembered until the next pass because their page may be stale; with more, a later one finds the rest."""


@dataclass(slots=True)
class Pass:
    """Findings of one pass. *clean*: nothing had to be done or waited for; *whole*: nothing was left out.

    *deferred*: an object is not at its place, and no request was written: it waits, or the write failed.
    *listed_s*: how long the lists took; *held_s*: how long the pass waited for the drain budget.
    *former* counts labelled objects that the ring gave up with their kind. *displaced* are the uids of objects that are
    not at their place: the objects that they control move with them, and are not judged. *suspects* are the versions of
    objects that bear a dead shard's name and are not known to wait; *suspected* are the suspects of the pass before.
    """

    version: ScanVersion
    seen: int = 0
    asked: int = 0
    former: int = 0
    listed_s: float = 0.0
    held_s: float = 0.0
    clean: bool = True
    whole: bool = True
    deferred: bool = False
    displaced: set[str] = field(default_factory=set)
    suspects: dict[ObjectRef, str] = field(default_factory=dict)
    suspected: dict[ObjectRef, str] = field(default_factory=dict)

    def displace(self, uid: str) -> None:
        """An object is not at its place."""
        if len(self.displaced) <= MAX_DISPLACED:
            self.displaced.add(uid)

    @property
    def knows_displaced(self) -> bool:
        """Whether *displaced* is complete."""
        return len(self.displaced) <= MAX_DISPLACED

    def confirms(self, ref: ObjectRef, version: str) -> bool:
        """Whether the pass before showed *version* of the suspect *ref* too; the next pass can ask for this one."""
        if self.suspected.get(ref) == version:
            return True
        if len(self.suspects) < MAX_SUSPECTS:
            self.suspects[ref] = version
        return False
