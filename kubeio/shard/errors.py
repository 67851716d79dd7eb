"""Errors that end a shard."""

from __future__ import annotations


class ShardError(Exception):
    """Root of everything that a shard raises."""


class LeaseLost(ShardError):
    """The shard's Lease cannot be trusted any more: the process ends with exit code 3."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"lease {name}: {reason}")


class Stalled(ShardError):
    """The process no longer makes progress; its heartbeat stops so that others can take over."""

    def __init__(self, what: str, *, for_s: float) -> None:
        self.what = what
        self.for_s = for_s
        super().__init__(f"{what} for {for_s:.0f} s")
