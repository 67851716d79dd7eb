"""The write that one Lease needs now, and the instants at which that may change (protocol, section 4). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sharder.membership.actions import (
    ClearContested,
    CreateTombstone,
    DeleteOrphan,
    Intent,
    MarkState,
    NeedOrphanCheck,
    Take,
)
from sharder.membership.freshness import DURATIONS
from sharder.membership.shards import Holding, Shard, ShardState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sharder.ringspec.spec import RingSpec

ORPHAN_AFTER_S: Final = 60.0
"""Objects with a dead name are searched for this long after its death, and as often again while one carries it."""


def decide_lease(
    shard: Shard,
    spec: RingSpec,
    *,
    at: float,
    fresh_at: float,
    longest_s: float,
    is_failing: bool,
    is_hold_over: bool,
    is_forced: bool,
) -> Intent | None:
    """Intent for *shard* at *at*, by reads fresh at *fresh_at*; None if its Lease stays as it is.

    *longest_s*: how long a process may work whose Lease was not seen. *is_failing*: it is one of many that fall silent,
    so it gets one duration more. *is_hold_over*: it is released, and its place is not held for it any more.
    """
    if shard.lease is None:
        return CreateTombstone(shard.name, shard.member, shard.longest_duration_s)
    state = shard.state(fresh_at)
    durations = DURATIONS + 1 if is_failing else DURATIONS
    match state:
        case ShardState.MISSING:
            return Take(shard.lease, contested=True, reason="its name is on objects of the ring")
        case ShardState.CONTESTED if shard.facts.holding is Holding.FOREIGN:
            return Take(shard.lease, contested=True, reason="held by neither its shard nor a sharder")
        case ShardState.CONTESTED if at >= _contested_until(shard, longest_s):
            return ClearContested(shard.lease)
        case ShardState.DEAD if shard.is_orphaned:
            return DeleteOrphan(shard.lease)
        case ShardState.DEAD if at >= _orphan_check_at(shard):
            return NeedOrphanCheck(shard.name)
        case ShardState.RELEASED if is_hold_over:
            return Take(shard.lease, contested=False, reason="released")
        case ShardState.UNCERTAIN if shard.silence_s(fresh_at) >= durations * shard.longest_duration_s:
            contested = not shard.has_known_duration
            return Take(shard.lease, contested=contested, reason="silent for two durations")
        case _ if is_forced and state is not ShardState.DEAD:
            return Take(shard.lease, contested=True, reason="forced")
    is_marked = shard.lease.metadata.labels.get(spec.keys.state) == state.value
    return None if is_marked else MarkState(shard.lease, state)


def lease_deadlines(shard: Shard, spec: RingSpec, *, longest_s: float) -> Iterator[float]:
    """Instants at which time alone may change the state of *shard*, or the decision about its Lease."""
    if shard.is_held:
        yield from (shard.counted_from + n * shard.longest_duration_s for n in (1, DURATIONS, DURATIONS + 1))
    elif shard.facts.holding is Holding.RELEASED:
        yield shard.entered_at + spec.hold_s
    elif shard.facts.contested:
        yield _contested_until(shard, longest_s)
    else:
        yield _orphan_check_at(shard)


def _contested_until(shard: Shard, longest_s: float) -> float:
    return shard.entered_at + max(longest_s, shard.longest_duration_s)


def _orphan_check_at(shard: Shard) -> float:
    return max(shard.entered_at, shard.carried_at) + ORPHAN_AFTER_S
