"""Decides the write to one object: the protocol's sections 6.3 to 6.6 and 7, as a pure function.

`plan` reads one version of one object, one view of the membership and the ring's terms; it decides, and the I/O half
acts. The same input gives the same answer. An object that was acted on gives `Nothing` (or `Wait`) the next time.
Invariant of every answer: an object leaves a live or contested owner only by a write of that owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sharder.membership.shards import ShardState
from sharder.membership.view import OwnerState, WaitReason
from sharder.planning.decisions import (
    NOTHING,
    Assign,
    Decision,
    Drain,
    NeedController,
    ReleaseDrain,
    ReportUnknown,
    Strip,
    UpdateDrain,
    Wait,
)
from sharder.planning.keys import Controlled, Outsider, Role

if TYPE_CHECKING:
    from kubeio.models import Meta
    from kubeio.protocol import RingKeys
    from sharder.membership.view import Desired, View

CHILDREN_FIRST_S: Final = 10.0
"""A dead shard's controlled objects move before their parent; after this long the parent goes anyway."""


class Terms(msgspec.Struct, frozen=True, gc=False):
    """Terms of the ring at the moment: the writes that it allows.

    `releasing`: the ring is being deleted or switched off. `activated`: the former controller's Lease is ours, or
    there is none to wait for. `former_controller_works`: another holder has that Lease and may work on everything.
    """

    paused: bool = False
    activated: bool = True
    releasing: bool = False
    former_controller_works: bool = False


class ControllerSeen(msgspec.Struct, frozen=True, gc=False):
    """The controller of a controlled object, read not before it: its owner label, None if it has none.

    Of controllers that are controlled themselves, the nearest that has an owner counts. `exists` is false if the
    controller is gone (404, or the same name with another uid), `is_outsider` true if the ring has nothing to do with
    it. `key`: the one that its tree has; `main`: the kind at its root.
    """

    owner: str | None = None
    exists: bool = True
    key: str | None = None
    is_outsider: bool = False
    main: str = ""


class Subject(msgspec.Struct, frozen=True, gc=False):
    """One object to plan for.

    `selected`: its namespace belongs to the ring. `controller`: for controlled objects, if it was read; needed for
    unlabelled ones (`NeedController` asks for it), and to recognize one that was left behind. `children_since`: for a
    parent of a dead shard, since when it is held back because controlled objects of it still carry the dead name.
    """

    meta: Meta
    role: Role
    selected: bool = True
    controller: ControllerSeen | None = None
    children_since: float | None = None


def plan(subject: Subject, *, view: View, terms: Terms, keys: RingKeys) -> Decision:
    """Decide the write to *subject*, or the reason for none."""
    owner = subject.meta.labels.get(keys.shard)
    drain = subject.meta.labels.get(keys.drain)
    if isinstance(subject.role, Outsider) and subject.role.unserved and not terms.releasing:
        return NOTHING
    if is_given_up(subject, terms):
        return _plan_release(subject, owner, drain, view=view)
    if owner is None:
        return _plan_unowned(subject, view=view, terms=terms)
    if terms.former_controller_works:
        return _plan_release(subject, owner, drain, view=view)
    match view.owner_state(owner):
        case OwnerState.DEAD:
            return _plan_unowned(subject, view=view, terms=terms, was=owner)
        case OwnerState.CONTESTED:
            return Wait(WaitReason.OWNER_CONTESTED)
        case OwnerState.UNKNOWN:
            return _unknown(owner, view=view)
        case OwnerState.LIVE:
            return _plan_owned(subject, owner, drain, view=view, terms=terms)


def is_given_up(subject: Subject, terms: Terms) -> bool:
    """Whether the ring does not want *subject*, or no longer."""
    if terms.releasing or not subject.selected or isinstance(subject.role, Outsider):
        return True
    follows_outsider = subject.controller is not None and subject.controller.is_outsider
    return subject.role.given_up or follows_outsider


def may_be_left_behind(subject: Subject, *, view: View, terms: Terms, keys: RingKeys) -> bool:
    """Whether *subject* is a controlled object that its live owner keeps although its controller may be elsewhere.

    Nothing is planned for such a one unless `Subject.controller` is given: its owner passes it with its controller.
    """
    owner, drain = subject.meta.labels.get(keys.shard), subject.meta.labels.get(keys.drain)
    if (
        not isinstance(subject.role, Controlled)
        or owner is None
        or view.owner_state(owner) is not OwnerState.LIVE
    ):
        return False
    if not view.shards[owner].hands_over:
        return False
    if is_given_up(subject, terms) or terms.former_controller_works:
        return drain != ""
    desired = _desired(subject, view=view)
    return drain is None and desired is not None and desired.shard not in (None, owner)


def _unknown(owner: str, *, view: View) -> Decision:
    if view.hold is not None and view.hold.reason is WaitReason.NOT_SYNCED:
        return Wait(WaitReason.NOT_SYNCED)
    return ReportUnknown(owner)


# ---- objects without a live owner -----------------------------------------------------------------------------


def _plan_unowned(subject: Subject, *, view: View, terms: Terms, was: str = "") -> Decision:
    if not terms.activated:
        return Wait(WaitReason.ACTIVATION)
    if view.hold is not None:
        return Wait(view.hold.reason, view.hold.until)
    if view.ring is None:
        return Wait(WaitReason.NO_MEMBERS)
    if isinstance(subject.role, Controlled) and _key(subject) is None:
        return NeedController(subject.role.controller)
    desired = _desired(subject, view=view)
    if desired is None:
        return Wait(WaitReason.KIND_UNWORKED)
    until = (subject.children_since or 0.0) + CHILDREN_FIRST_S
    if was and subject.children_since is not None and view.at < until:
        return Wait(WaitReason.CHILDREN_FIRST, until)
    if isinstance(subject.role, Controlled):
        return _plan_unowned_child(subject, subject.role, desired, view=view, was=was)
    return _assign(subject.role, desired, view=view, was=was)


def _plan_unowned_child(
    subject: Subject, role: Controlled, desired: Desired, *, view: View, was: str
) -> Decision:
    """With its controller while that one has a live owner, else where both will be."""
    if subject.controller is None:
        return _assign(role, desired, view=view, was=was) if was else NeedController(role.controller)
    if not subject.controller.exists and not was:
        return NOTHING  # the garbage collector's: no uid comes back
    with_parent = subject.controller.owner
    if with_parent is None or with_parent == desired.shard:
        return _assign(role, desired, view=view, was=was)
    match view.owner_state(with_parent):
        case OwnerState.LIVE:
            return _assign_to(role, with_parent, view=view, was=was)
        case OwnerState.DEAD:
            return _assign(role, desired, view=view, was=was)
        case OwnerState.CONTESTED:
            return Wait(WaitReason.CONTROLLER_CONTESTED)
        case OwnerState.UNKNOWN:
            return ReportUnknown(with_parent)


def _assign(role: Role, desired: Desired, *, view: View, was: str) -> Decision:
    if desired.shard is None:
        return Wait(WaitReason.PLACE_SETTLING, view.settles_at)
    return _assign_to(role, desired.shard, view=view, was=was)


def _assign_to(role: Role, shard: str, *, view: View, was: str) -> Decision:
    if not view.holds(shard):
        return Wait(WaitReason.TARGET_SILENT)
    return Assign(shard, was) if _works(role, shard, view=view) else Wait(WaitReason.KIND_UNWORKED)


def _works(role: Role, shard: str, *, view: View) -> bool:
    """Whether *shard* watches objects of this kind."""
    return isinstance(role, Outsider) or view.works(shard, role.kind)


# ---- objects of a live owner ----------------------------------------------------------------------------------


def _plan_owned(subject: Subject, owner: str, drain: str | None, *, view: View, terms: Terms) -> Decision:
    desired = _desired(subject, view=view)
    if not _works(subject.role, owner, view=view):
        return Wait(WaitReason.OWNER_BLIND)
    if isinstance(subject.role, Controlled) and view.shards[owner].hands_over:
        return _plan_owned_child(subject, owner, drain, desired, view=view, terms=terms)
    if drain is not None:
        return _plan_in_flight(owner, drain, desired, view=view, terms=terms)
    if desired is None or desired.shard == owner:
        return NOTHING
    return _plan_move(owner, desired.shard, view=view, terms=terms)


def _plan_owned_child(
    subject: Subject, owner: str, drain: str | None, desired: Desired | None, *, view: View, terms: Terms
) -> Decision:
    """Its owner passes it with its parent; only one left behind, its parent having arrived, is sent after it."""
    seen = subject.controller
    if drain is not None or desired is None or seen is None or desired.shard == owner:
        return NOTHING
    parent = seen.owner
    if parent is None:
        return Wait(WaitReason.CONTROLLER_UNOWNED) if seen.exists else NOTHING
    if parent != desired.shard or parent == owner:
        return NOTHING
    if not _works(subject.role, parent, view=view):
        return Wait(WaitReason.KIND_UNWORKED)
    return _plan_move(owner, parent, view=view, terms=terms)


def _plan_move(owner: str, to: str | None, *, view: View, terms: Terms) -> Decision:
    if terms.paused:
        return Wait(WaitReason.PAUSED)
    if not terms.activated:
        return Wait(WaitReason.ACTIVATION)
    if to is None:
        return Wait(WaitReason.PLACE_SETTLING, view.settles_at)
    if not view.may_receive(to):
        return Wait(WaitReason.TARGET_SILENT)
    if view.shards[owner].state is not ShardState.READY:
        return Wait(WaitReason.OWNER_SILENT)
    return Drain(owner, to)


def _plan_in_flight(owner: str, drain: str, desired: Desired | None, *, view: View, terms: Terms) -> Decision:
    """A request the owner has not answered yet: leave it, or point it to where the object belongs now."""
    if terms.paused or desired is None or not view.shards[owner].hands_over:
        return NOTHING
    if desired.shard is None:
        return Wait(WaitReason.PLACE_SETTLING, view.settles_at)
    if drain == desired.shard:
        return NOTHING
    if desired.shard != owner and not view.may_receive(desired.shard):
        return Wait(WaitReason.TARGET_SILENT)
    return UpdateDrain(owner, desired.shard, was=drain)


# ---- objects that are given up --------------------------------------------------------------------------------


def _plan_release(subject: Subject, owner: str | None, drain: str | None, *, view: View) -> Decision:
    if owner is None:
        return NOTHING if drain is None else Strip()
    match view.owner_state(owner):
        case OwnerState.DEAD:
            return Strip(owner if view.is_dead_without_lease(owner) else "")
        case OwnerState.CONTESTED:
            return Wait(WaitReason.OWNER_CONTESTED)
        case OwnerState.UNKNOWN:
            return _unknown(owner, view=view)
        case OwnerState.LIVE:
            return _release(subject, owner, drain, view=view)


def _release(subject: Subject, owner: str, drain: str | None, *, view: View) -> Decision:
    if drain == "":
        return NOTHING
    if isinstance(subject.role, Controlled) and view.shards[owner].hands_over:
        left_behind = subject.controller is not None and subject.controller.owner is None
        return ReleaseDrain(owner) if left_behind else NOTHING
    return ReleaseDrain(owner)


def _desired(subject: Subject, *, view: View) -> Desired | None:
    """Desired owner of *subject*; None for an outsider, without a known key, or if no member works its main kind."""
    key, role, seen = _key(subject), subject.role, subject.controller
    if key is None or isinstance(role, Outsider):
        return None
    return view.desired(key, role.main or (seen.main if seen is not None else ""))


def _key(subject: Subject) -> str | None:
    """The key, from its controller or from its own metadata; None if neither has it."""
    if isinstance(subject.role, Outsider):
        raise TypeError("an outsider has no key")
    if subject.role.key is not None:
        return subject.role.key
    return subject.controller.key if subject.controller is not None else None
