"""Ownership decisions: whether this shard may work on an object, and how it gives one up. Pure: no I/O, no clock.

Takes the smallest version of the object that still counts after an acknowledgement; `min_versions` keeps it.
Protocol: section 5, rules 3 and 4.

Versions are compared as integers: the API promises that since Kubernetes 1.35, etcd always did. Versions that are no
numbers (an aggregated server's own) order nothing: after an acknowledgement each check costs a consistent read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kubeio.models import Meta
from kubeio.protocol import RingKeys
from kubeio.shard.handoff import HandoffMode, decide_handoff
from kubeio.versions import order


class OwnershipState(msgspec.Struct, frozen=True, gc=False):
    """One version of one object, as far as its ownership goes. None: the label is absent."""

    version: int
    shard: str | None
    drain: str | None


class Reconcile(msgspec.Struct, frozen=True, gc=False):
    """The object is ours in this version."""

    state: OwnershipState


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """The sharder asked for the object: give it up, testing this version."""

    state: OwnershipState
    handoff: HandoffMode


class Reread(msgspec.Struct, frozen=True, gc=False):
    """An acknowledgement got no answer, and the cache knows nothing newer: only a consistent read can decide."""


class Defer(msgspec.Struct, frozen=True, gc=False):
    """Ours, but the Lease is too old to start anything."""


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Not ours, as far as we know: nothing is done."""

    reason: Literal["absent", "foreign", "superseded"]


OwnershipDecision = Reconcile | Acknowledge | Reread | Defer | Drop


def state_of(meta: Meta, keys: RingKeys) -> OwnershipState:
    """Ownership of the object that *meta* describes: version, owner and drain label."""
    labels = meta.labels
    return OwnershipState(order(meta.resource_version), labels.get(keys.shard), labels.get(keys.drain))


def decide(
    state: OwnershipState | None, *, shard: str, floor: int, unanswered: bool, held: bool
) -> OwnershipDecision:
    """OwnershipDecision of *shard* about an object whose newest known state is *state*.

    *floor* is the smallest version that counts; *unanswered*: an acknowledgement is on its way or its answer was lost.
    A state at or above the floor was written after the acknowledgement was decided on, so it is the truth:
    the acknowledgement tested an older version, hence it either came before that state or can never succeed.
    """
    if state is None:
        return Drop("absent")
    if state.version < floor:
        return Reread() if unanswered else Drop("superseded")
    if state.shard != shard:
        return Drop("foreign")
    if not held:
        return Defer()
    if state.drain is not None:
        return Acknowledge(state, decide_handoff(state.drain, shard=shard))
    return Reconcile(state)
