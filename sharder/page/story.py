"""Explanations of an object's owner, in sentences for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ring.ring import Explanation


def ring_story(explanation: Explanation | None, *, unworked: str = "") -> list[str]:
    """Explain the ring's choice of a member; *unworked*: the object's main resource, if no member works it."""
    if explanation is None and unworked:
        return [f"No member of the ring works {unworked}: such objects wait."]
    if explanation is None:
        return ["No member is on the ring: no replica of it is live."]
    first = f"The first token at or after its hash is one of {explanation.token_member}."
    if not explanation.passed:
        return [first]
    passed = ", ".join(explanation.passed)
    return [first, f"Passed on clockwise, because full: {passed}. {explanation.owner} is the next with room."]


def owner_story(owner: str, desired: str, drain: str | None, *, is_live: bool) -> list[str]:
    """Explain the difference between owner and desired owner, if there is one."""
    if drain is not None:
        return [f"It is on its way to {drain}." if drain else "It is being released from the ring."]
    if not owner:
        return ["It has no owner yet: it is new, or waits."]
    if not is_live:
        return [f"{owner} is not live: the sharder gives the object to a living replica."]
    if owner != desired:
        return ["Its owner is live but not the desired one: a handoff will be asked for."]
    return ["It is where it belongs."]


def unwatched(owner: str, kind: str) -> str:
    """Explain why an object of *kind* that bears the name *owner* is not worked on."""
    return f"{owner} does not watch {kind}: the object waits for the end of that shard."
