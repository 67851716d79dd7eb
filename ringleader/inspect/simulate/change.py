"""Members as a person writes them, and what a change makes of them. Pure.

Owns the words of `--members` and `--change`, the names that members to come are given, and the ring of a set of
members.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubeio.errors import InputError
from kubeio.suggestions import nearest
from ring import HashRing, InvalidRing

Weights = Mapping[str, float]

_MOST_MEMBERS: Final = 10_000
_NUMBER: Final = re.compile(r"[+-]?\d+")
_NUMBERED: Final = re.compile(r"(?P<stem>.*-)(?P<number>0|[1-9]\d*)")
_CHANGE_REMEDY: Final = "write +2, -1, +NAME, +NAME=WEIGHT, -NAME or NAME=WEIGHT"
_MEMBERS_REMEDY: Final = "write a number from 1 such as 4, or names such as web-0,web-1,web-2=2"
_FLAGS: Final = {"virtualNodes": "--virtual-nodes"}


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """Members before and after. *leaving* are those that end; who only loses its weight works on and hands over."""

    before: Weights
    after: Weights
    leaving: frozenset[str]
    told: tuple[str, ...]
    """One phrase for each word of the change: `web-4 joins`."""


def parse_members(text: str) -> dict[str, float]:
    """Names and weights of `4` or `web-0,web-1=2`. Raises: InputError."""
    if _NUMBER.fullmatch(text.strip()) and not text.strip().startswith("+"):
        number = int(text)
        if not 1 <= number <= _MOST_MEMBERS:
            problem = "is no member at all" if number == 0 else "is not a number of members"
            remedy = f"write a number from 1 to {_MOST_MEMBERS}, or their names"
            raise InputError("--members", text, problem, remedy)
        return {f"member-{index}": 1.0 for index in range(number)}
    members: dict[str, float] = {}
    for word in text.split(","):
        name, weight = _named(word.strip(), "--members", _MEMBERS_REMEDY)
        if name in members:
            raise InputError("--members", name, "is there twice", "name every member once")
        if weight == 0:
            raise InputError("--members", word, "has no place on the ring", "give it a weight above 0")
        members[name] = 1.0 if weight is None else weight
    return members


def apply_change(before: Weights, words: Sequence[str]) -> MembershipChange:
    """*before* after each of *words* in its order; a word may hold several, with commas.

    Raises: InputError for a word that cannot be done.
    """
    state = _State(dict(before))
    parts = [part.strip() for word in words for part in word.split(",")]
    for part in parts:
        state.take(part)
    if not any(state.after.values()):
        raise InputError("--change", ",".join(parts), "leaves no member on the ring", "leave at least one")
    return MembershipChange(before, state.after, frozenset(state.leaving), tuple(state.told))


def ring_of(members: Weights, *, virtual_nodes: int, eps: float) -> HashRing:
    """The ring of *members*. Raises: InputError for a weight or a number of virtual nodes that cannot be."""
    try:
        return HashRing(members, virtual_nodes=virtual_nodes, eps=eps)
    except InvalidRing as error:
        field = _FLAGS.get(error.field, error.field)
        raise InputError(field, error.value, error.problem, error.remedy) from error


def next_names(members: Sequence[str], count: int) -> list[str]:
    """Names for *count* more members: the next ordinals of a StatefulSet's pods, or `new-1`, `new-2`, ..."""
    stem = _stem(members)
    numbers = [_number(name, stem) for name in members if name.startswith(stem)] if stem else []
    stem, first = (stem, max(numbers) + 1) if stem else ("new-", 1)
    names: list[str] = []
    while len(names) < count:
        if (name := f"{stem}{first}") not in members:
            names.append(name)
        first += 1
    return names


def last_names(members: Sequence[str], count: int) -> list[str]:
    """Who goes first when *count* go: a StatefulSet's highest ordinals, otherwise the last by name."""
    stem = _stem(members)
    return sorted(members, key=lambda name: (_number(name, stem) if stem else 0, name), reverse=True)[:count]


def in_order(members: Sequence[str]) -> list[str]:
    """*members* as people count: web-2 before web-10."""
    return sorted(members, key=_counted)


def _counted(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts if part]


def _stem(members: Sequence[str]) -> str:
    """What stands before the ordinal of most members; empty if they are not numbered."""
    stems = Counter(match["stem"] for name in members if (match := _NUMBERED.fullmatch(name)))
    stem, count = stems.most_common(1)[0] if stems else ("", 0)
    return stem if count * 2 > len(members) else ""


def _number(name: str, stem: str) -> int:
    """The ordinal of *name*; -1 if it is not one of those with *stem*."""
    match = _NUMBERED.fullmatch(name)
    return int(match["number"]) if match and match["stem"] == stem else -1


def _named(word: str, field: str, remedy: str) -> tuple[str, float | None]:
    """Name and weight of `web-0=2`; None without a weight."""
    name, equals, weight = word.partition("=")
    if (
        not name
        or name[0] in "+-"
        or any(character.isspace() or not character.isprintable() for character in word)
    ):
        raise InputError(field, word, "does not name a member", remedy)
    if not equals:
        return name, None
    try:
        number = float(weight)
    except ValueError:
        raise InputError(
            field, word, "has a weight that is no number", "write a weight such as 2 or 0.5"
        ) from None
    if not 0 <= number <= 1000:  # also what is not a number
        raise InputError(field, word, "has a weight that is out of range", "write one from 0 to 1000")
    return name, number


class _State:
    """The members while a change is read."""

    def __init__(self, members: dict[str, float]) -> None:
        self.after = members
        self.leaving: set[str] = set()
        self.told: list[str] = []

    def take(self, word: str) -> None:
        """Do what *word* says."""
        if _NUMBER.fullmatch(word) and word[0] in "+-":
            self._count(word)
        elif word.startswith("+"):
            name, weight = _named(word[1:], "--change", _CHANGE_REMEDY)
            self._join(name, 1.0 if weight is None else weight)
        elif word.startswith("-"):
            name, weight = _named(word[1:], "--change", _CHANGE_REMEDY)
            if weight is not None:
                raise InputError("--change", word, "gives a weight to a member that leaves", _CHANGE_REMEDY)
            self._leave(name)
        else:
            name, weight = _named(word, "--change", _CHANGE_REMEDY)
            if weight is None:
                raise InputError("--change", word, "does not say what is to change", _CHANGE_REMEDY)
            self._weigh(name, weight)

    def _count(self, word: str) -> None:
        number, present = int(word), len(self.after)
        if number == 0:
            raise InputError("--change", word, "changes nothing", _CHANGE_REMEDY)
        if number > _MOST_MEMBERS - present:
            raise InputError("--change", word, "makes too many members", f"make it {_MOST_MEMBERS} at most")
        if -number >= present:
            raise InputError("--change", word, f"leaves none of {present} members", "leave at least one")
        for name in next_names(list(self.after), number):
            self._join(name, 1.0)
        for name in last_names(list(self.after), -number) if number < 0 else ():
            self._leave(name)

    def _join(self, name: str, weight: float) -> None:
        if name in self.after:
            remedy = f"write {name}=WEIGHT to change its weight, or another name"
            raise InputError("--change", f"+{name}", "is already a member", remedy)
        if weight == 0:
            raise InputError(
                "--change", f"+{name}=0", "would have no place on the ring", "give it a weight above 0"
            )
        self.after[name] = weight
        self.leaving.discard(name)
        self.told.append(f"{name} joins" + ("" if weight == 1 else f" with weight {weight:g}"))

    def _leave(self, name: str) -> None:
        self._check_known(name, f"-{name}")
        del self.after[name]
        self.leaving.add(name)
        self.told.append(f"{name} leaves")

    def _weigh(self, name: str, weight: float) -> None:
        self._check_known(name, f"{name}={weight:g}")
        self.after[name] = weight
        self.told.append(f"{name} has weight {weight:g}" if weight else f"{name} is cordoned")

    def _check_known(self, name: str, word: str) -> None:
        if name not in self.after:
            known = nearest(name, list(self.after))
            raise InputError(
                "--change", word, "names no member with a place on the ring", f"{known} (+{name} adds it)"
            )
