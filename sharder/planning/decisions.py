"""Decisions about one object, as frozen values; each write is one patch.

`sharder.planning.planner` makes them, `sharder.planning.patches` gives the patch, the I/O half sends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from sharder.membership.view import WaitReason
    from sharder.planning.keys import ControllerName


class Assign(msgspec.Struct, frozen=True, gc=False):
    """Give an object without a live owner to shard *to*; *was* is the dead owner, empty if it had none.

    Needs evidence first: a consistent read of the Leases, begun after this version of the object was read, that
    shows *to*'s Lease held. A 409 means: read the object again and decide anew.
    """

    to: str
    was: str = ""


class Drain(msgspec.Struct, frozen=True, gc=False):
    """Ask the live *owner* to pass the object on to shard *to*. Counts against the limits."""

    owner: str
    to: str


class UpdateDrain(msgspec.Struct, frozen=True, gc=False):
    """Point a request in flight to another shard; to *owner* itself: it may keep the object after all."""

    owner: str
    to: str
    was: str


class ReleaseDrain(msgspec.Struct, frozen=True, gc=False):
    """Ask the live *owner* to give the object up: drain label with an empty value."""

    owner: str


class Strip(msgspec.Struct, frozen=True, gc=False):
    """Remove the ring's labels from an object that is given up and has no live owner.

    `without_lease`: its owner, if that is dead for want of a Lease. A read that began after the object's version was
    known has to show it so: the label may be younger than what we know of the Leases.
    """

    without_lease: str = ""


class Touch(msgspec.Struct, frozen=True, gc=False):
    """Give an object without an owner, which the ring gives up, another version: older assignments cannot land then.

    It gets an empty drain label, for which `Strip` is planned next.
    """


class Wait(msgspec.Struct, frozen=True, gc=False):
    """The object is not where it should be, and nothing may be written now. *until*: plan again then, if known."""

    reason: WaitReason
    until: float | None = None


class ReportUnknown(msgspec.Struct, frozen=True, gc=False):
    """The owner has no Lease that we know of: report it to `Membership.unknown_name_seen`; the object waits."""

    name: str


class NeedController(msgspec.Struct, frozen=True, gc=False):
    """Undecided until the controller was read: GET it and plan again with `Subject.controller` set."""

    controller: ControllerName


class Nothing(msgspec.Struct, frozen=True, gc=False):
    """The object is where it should be, or on its way, or not ours."""


Planned = Assign | Drain | UpdateDrain | ReleaseDrain | Strip
ObjectWrite = Planned | Touch
Decision = Planned | Wait | ReportUnknown | NeedController | Nothing

NOTHING = Nothing()


def reason_of(decision: ObjectWrite) -> str:
    """Reason of a write, one of seven: the label of a metric."""
    match decision:
        case Assign(was=""):
            return "new"
        case Assign():
            return "owner_dead"
        case Drain():
            return "rebalance"
        case UpdateDrain():
            return "redirect"
        case ReleaseDrain():
            return "release"
        case Strip():
            return "strip"
        case Touch():
            return "touch"
