"""Words about kinds that no shard works, or that an object's owner does not watch (protocol, section 3). Pure."""

from __future__ import annotations

from typing import Final

START: Final = (
    "start replicas of the controller that works it, or take the resource out of the ring's spec.resources"
)
ROLL: Final = "roll the replicas: they learn at their start what the ring controls"


def unworked(ring: str, main: str) -> str:
    """Why objects of *main*, and what follows them, get no owner."""
    return f"no member of ring {ring} works {main}"


def unwatched(shard: str, kind: str) -> str:
    """Why an object of *kind* that bears the name *shard* is not worked on."""
    return f"{shard} does not watch {kind}: the object waits for the end of that shard"


def give_up(member: str, key: str) -> str:
    """What helps an object whose owner, a life of *member*, works other kinds; *key*: the label that names it."""
    return (
        f"delete pod {member}, or wait for its end: the sharder then gives the object to a shard that works it; "
        f"keep the label {key} out of git and manifests"
    )
