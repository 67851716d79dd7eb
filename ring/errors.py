"""Errors of a ring: one class per decision a caller can take. Raised by this package only."""

from __future__ import annotations


class RingError(Exception):
    """Root of everything that `ring` raises."""


class EmptyRingError(RingError):
    """A ring without members was asked for an owner: the caller waits for a member to join."""

    def __init__(self, attempted: str) -> None:
        self.attempted = attempted
        super().__init__(f"{attempted}: the ring has no member; it needs one with a weight above 0")


class InvalidRing(RingError):
    """A ring cannot be built like this.

    *field* says where, in the words of a ControllerRing's spec, *value* what stands there, *remedy* what to
    write instead.
    """

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{field}: {value!r} {problem}; {remedy}")
