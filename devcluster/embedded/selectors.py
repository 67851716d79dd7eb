"""Label and field selectors: parsed once, matched often. Pure.

Grammar of the API: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`, `a>1`, `a<1`, joined by
commas. `!=` and `notin` match objects without the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from devcluster.embedded.status import bad_request

_KEY = re.compile(
    r"\A([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z"
)
_VALUE = re.compile(r"\A([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?\Z")
_SET = re.compile(r"\A(\S+)\s+(in|notin)\s*\((.*)\)\Z", re.DOTALL)
_COMPARE = re.compile(r"\A([^=!<>\s]+)\s*(==|!=|=|>|<)\s*(\S*)\Z")

_UNFINISHED = re.compile(r"\A\S+\s+(?:in|notin)\Z")
_TWO_VALUES = re.compile(r"\A[^=!<>\s(]+\s*(?:==|!=|=|>|<)\s*[^\s=]+\s+(\S+)")


def is_label_key(key: str) -> bool:
    return _KEY.match(key) is not None


def is_label_value(value: str) -> bool:
    return _VALUE.match(value) is not None


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One term of a label selector."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        try:
            left, right = int(value), int(next(iter(self.values)))
        except ValueError:
            return False
        return left > right if self.operator == ">" else left < right


class LabelSelector:
    """All of its requirements must hold; none means everything."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: tuple[Requirement, ...]) -> None:
        self.requirements: Final = requirements

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


@lru_cache(maxsize=256)
def parse_label_selector(text: str) -> LabelSelector:
    """Raises: 400 that quotes the term at fault."""
    return LabelSelector(tuple(_requirement(term.strip()) for term in _terms(text)))


def _terms(text: str) -> list[str]:
    """*text* cut at the commas that stand outside parentheses."""
    terms, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            terms.append(text[start:at])
            start = at + 1
    terms.append(text[start:])
    return [] if terms == [""] or not text.strip() else terms


def _requirement(term: str) -> Requirement:
    if _UNFINISHED.match(term):
        raise bad_request("unable to parse requirement: found '' expected: '('")
    if found := _TWO_VALUES.match(term):
        raise bad_request(
            f"unable to parse requirement: found '{found[1]}', expected: ',' or 'end of string'"
        )
    if found := _SET.match(term):
        values = frozenset(value.strip() for value in found[3].split(","))
        return _checked(term, Requirement(found[1], found[2], values))
    if found := _COMPARE.match(term):
        operator = {"=": "in", "==": "in", "!=": "notin"}.get(found[2], found[2])
        return _checked(term, Requirement(found[1], operator, frozenset({found[3]})))
    if term.startswith("!"):
        return _checked(term, Requirement(term[1:].strip(), "absent", frozenset()))
    return _checked(term, Requirement(term, "exists", frozenset()))


def _checked(term: str, requirement: Requirement) -> Requirement:
    if not is_label_key(requirement.key):
        raise bad_request(f"unable to parse requirement: {term!r}: {requirement.key!r} is not a label key")
    for value in requirement.values:
        if not is_label_value(value):
            raise bad_request(f"unable to parse requirement: {term!r}: {value!r} is not a label value")
    if requirement.operator in (">", "<") and not all(v.lstrip("-").isdigit() for v in requirement.values):
        raise bad_request(f"unable to parse requirement: {term!r}: the value must be an integer")
    return requirement


class FieldTerm(msgspec.Struct, frozen=True, gc=False):
    """`metadata.name=a`: *equal* false for `!=`."""

    path: str
    value: str
    equal: bool


FieldValue = Callable[[str], str]
"""Reads the value that stands at a path of one object."""


class FieldSelector:
    """All of its terms must hold."""

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[FieldTerm, ...]) -> None:
        self.terms: Final = terms

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, value_at: FieldValue) -> bool:
        return all((value_at(term.path) == term.value) == term.equal for term in self.terms)

    def required(self, path: str) -> str | None:
        """The value that a term requires at *path*, if any."""
        return next((term.value for term in self.terms if term.path == path and term.equal), None)


@lru_cache(maxsize=256)
def parse_field_selector(text: str, supported: frozenset[str]) -> FieldSelector:
    """Raises: 400 for a path outside *supported*, as the real server does."""
    terms = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = re.match(r"\A([^=!]+?)\s*(==|!=|=)(.*)\Z", part)
        if found is None:
            raise bad_request(f"invalid selector: {part!r}; can't understand it")
        if found[1] not in supported:
            raise bad_request(f"field label not supported: {found[1]}")
        terms.append(FieldTerm(found[1], found[3].strip(), found[2] != "!="))
    return FieldSelector(tuple(terms))
