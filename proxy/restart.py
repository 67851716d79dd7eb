"""When a restart of the controller is due: what waits for one, since when. Pure.

Knows no process and writes nothing: `proxy.runs` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proxy.trees import Node, Trees

_AGAIN_S: Final = 60.0
"""What could not be given up or made visible is tried again in a restart after so long."""
_NEW_AGAIN_S: Final = 10.0
"""A new root that is still not visible is taken again after so long."""


class Cause(StrEnum):
    """Why the controller was started again: objects moved, or it had ended by itself."""

    HANDOFF = "handoff"
    EXIT = "exit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When a restart is due: *settle_s* after the last change that needs one, at most *longest_s* after the first.

    A run lasts ten times as long as the restart before it at least, without its calm, or two minutes. *calm_s*: before
    a start nothing has arrived for so long, but for *longest_calm_s* at most: it spares restarts, and proves nothing.
    """

    settle_s: float = 2.0
    longest_s: float = 10.0
    calm_s: float = 2.0
    longest_calm_s: float = 10.0


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What was done before a run, by uid. *versions*: of what was handled; *absent*: what the trees of hidden objects
    wait for, as far as it was unknown."""

    versions: Mapping[str, str]
    absent: Mapping[str, frozenset[str]]


class Restart:
    """Whether a restart is due for *trees*. *before*: what was handled before this run."""

    def __init__(self, trees: Trees, before: HandedOver, *, now: float) -> None:
        self.trees: Final = trees
        self.size = 0
        """Objects that wait for a restart."""
        self._before: Final = before
        self._again_at: Final = now + _AGAIN_S
        self._taken: dict[str, float] = {}
        """New roots that are not visible yet: when they were taken."""
        self._first_at = self._last_at = 0.0

    def take_new(self, now: float) -> list[Node]:
        """Roots that can become visible now. What fails is taken again after a while."""
        new = {
            node.uid: node for node in nodes_of(self.trees, self.trees.due.arrived) if self.trees.is_new(node)
        }
        self._taken = {uid: at for uid, at in self._taken.items() if uid in new and now < at + _NEW_AGAIN_S}
        taken = [node for uid, node in new.items() if uid not in self._taken]
        self._taken |= dict.fromkeys((node.uid for node in taken), now)
        return taken

    @property
    def new_again_at(self) -> float | None:
        """When `take_new` takes one again; None without one."""
        return min(self._taken.values()) + _NEW_AGAIN_S if self._taken else None

    def at(self, now: float, *, pace: Pace) -> float | None:
        """When a restart is due by what waits *now*; None if nothing does."""
        due = self.trees.due
        waiting = [node for node in nodes_of(self.trees, due.arrived | due.asked) if self._waits(node, now)]
        if len(waiting) != self.size:
            self._first_at, self._last_at = (self._first_at if self.size else now), now
            self.size = len(waiting)
        if not waiting:
            return self._again_at if due and now < self._again_at else None
        return min(self._first_at + pace.longest_s, self._last_at + pace.settle_s)

    def _waits(self, node: Node, now: float) -> bool:
        """What could not be handled before this run is tried again after a while."""
        if node.drain is not None and not self.trees.may_go(node):
            return False
        is_handled = self._before.versions.get(node.uid) == node.resource_version and now < self._again_at
        absent = self._before.absent.get(node.uid)
        has_come = bool(absent) and all(self.trees.get(uid) is not None for uid in absent or ())
        return (has_come or not is_handled) and not self.trees.is_new(node)


def nodes_of(trees: Trees, uids: Iterable[str]) -> list[Node]:
    """The objects of *uids* that are still there."""
    return [node for uid in list(uids) if (node := trees.get(uid)) is not None]
