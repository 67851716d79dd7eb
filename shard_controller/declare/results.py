"""Results of a reconcile. Pure; users import these from `shard_controller`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """The object is as it should be; the next change of it, or of what it owns, starts the next reconcile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueAfter:
    """Look again in *seconds*, or sooner if something changes. The delay does not survive a handoff:
    the next owner reconciles at once.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"RequeueAfter(seconds={self.seconds!r}): a number of at least 0 is needed")


Result = Done | RequeueAfter
