"""Every limit by which a command judges a cluster, beside each other, each with its reason."""

from __future__ import annotations

from typing import Final

# ---- Leases

SILENT_AFTER: Final = 2.0
"""Lease durations without a renewal: the holder is silent. One missed renewal is a hiccup; a sharder takes then."""
LEFT_OVER_S: Final = 600.0
"""A Lease in the wrong namespace without a renewal for so long was left there by a replica that has ended."""
SKEW_S: Final = 2.0
"""Clocks that differ by less are well enough: nothing is decided by them, only shown."""
LOCAL_SKEW_S: Final = 5.0
"""The same for this machine, whose distance is known to a second or two."""

# ---- objects

NEW_S: Final = 10.0
"""A sharder assigns within a second; an object that waits longer is not just new."""
UNSEEN_S: Final = 10.0
"""A replica observes a change within a second or two, unless it has a backlog."""
LONG_S: Final = 60.0
"""A reconcile, a wait for a worker or for a finalizer of that length is worth a look."""
ALL_BUT: Final = 0.5
"""A shard is idle if more than this part of the objects looked at is behind in both looks."""
FOREIGN_OWNERS: Final = 2
"""A controller that ignores the shard label writes to objects of this many shards at least."""
