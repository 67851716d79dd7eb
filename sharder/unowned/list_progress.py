"""Progress of a list: objects handled meanwhile that it may still show. Pure; owned by `sharder.unowned.pending`.

A list shows objects as they were when it began, in the order of `namespace/name`. Reading all its pages may take a
minute, in which the assigner goes on. An object handled behind the list's position cannot come again. One handled ahead
of it is remembered until the list has passed it. While a second watch of the same objects runs, every handled object is
remembered.
"""

from __future__ import annotations


class ListProgress:
    """One list; names are those of `sharder.unowned.pending`."""

    __slots__ = ("_handled", "is_complete", "is_overlapping", "position")

    def __init__(self, *, is_overlapping: bool) -> None:
        self.position = ""
        """The last name that was shown."""
        self.is_complete = False
        self.is_overlapping = is_overlapping
        """Two watches run, and each may show late what the other showed before."""
        self._handled: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of remembered objects."""
        return len(self._handled)

    def mark_handled(self, name: str, version: int) -> None:
        """Remember that *version* of *name* was handled."""
        if self.is_overlapping or (not self.is_complete and name > self.position):
            self._handled[name] = max(version, self._handled.get(name, 0))

    def is_handled(self, name: str, version: int) -> bool:
        """Whether *version* of *name* was handled already."""
        return self._handled.get(name, -1) >= version

    def prune(self) -> None:
        """Forget what can no longer be shown."""
        if self.is_overlapping:
            return
        if self.is_complete:
            self._handled = {}
        else:
            self._handled = {name: seen for name, seen in self._handled.items() if name > self.position}
