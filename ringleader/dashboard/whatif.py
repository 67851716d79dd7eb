"""Effect of another number of members: shares before and after, and the part that moves. Pure."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

import msgspec

from ring.movement import movement
from ring.ring import HashRing

MOST: Final = 200
"""Members; the answer for more takes longer than a slider should."""
_NUMBERED: Final = re.compile(r"\A(?P<base>.*?)(?P<number>\d{1,9})\Z")


class WhatIf(msgspec.Struct, frozen=True):
    """*moved* and *ideal* are parts of all objects; *rows* are name, share before, share after."""

    members: int
    joined: list[str]
    left: list[str]
    moved: float
    ideal: float
    rows: list[tuple[str, float, float]]


def what_if(ring: HashRing, members: int) -> WhatIf:
    """The ring with so many *members* of weight 1 more or less. Cost: half a second for a hundred members.

    Those that leave are the last by number, as those of a StatefulSet; those that join are numbered on.
    """
    order = in_order(ring.members)
    left = order[members:]
    joined = new_names(order, members - len(order))
    weights = {name: weight for name, weight in ring.weights.items() if name not in left}
    weights |= dict.fromkeys(joined, Fraction(1))
    after = HashRing(weights, virtual_nodes=ring.virtual_nodes, eps=ring.eps)
    moving = movement(ring, after)
    before_shares, after_shares = ring.shares(), after.shares()
    return WhatIf(
        members=members,
        joined=joined,
        left=left,
        moved=float(moving.moved),
        ideal=float(moving.ideal),
        rows=[
            (name, float(before_shares.get(name, 0)), float(after_shares.get(name, 0)))
            for name in [*order, *joined]
        ],
    )


def in_order(names: tuple[str, ...]) -> list[str]:
    """*names*, those that end in a number by that number."""
    return sorted(names, key=_rank)


def new_names(names: list[str], count: int) -> list[str]:
    """*count* names that are free: numbered on, if *names* are numbered."""
    if count <= 0:
        return []
    match = _NUMBERED.match(names[-1]) if names else None
    base, number = (match["base"], int(match["number"])) if match else ("new-", 0)
    known = set(names)
    found: list[str] = []
    while len(found) < count:
        number += 1
        if f"{base}{number}" not in known:
            found.append(f"{base}{number}")
    return found


def _rank(name: str) -> tuple[str, int, str]:
    match = _NUMBERED.match(name)
    return (match["base"], int(match["number"]), name) if match else (name, -1, name)
