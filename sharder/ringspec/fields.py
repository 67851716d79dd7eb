"""Reader of a document that a person wrote, field by field: every problem is collected, none is raised. Pure.

Owns paths, types, ranges and unknown names; the meaning of a ControllerRing's fields is in `sharder.ringspec.parsing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from kubeio.suggestions import closest
from sharder.errors import FieldProblem


def shown(value: object) -> str:
    """The type of *value* as YAML names it."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
        case _:
            return type(value).__name__


class Problems:
    """Problems found so far."""

    def __init__(self) -> None:
        self.found: list[FieldProblem] = []

    def add(self, field: str, value: object, problem: str, remedy: str) -> None:
        self.found.append(FieldProblem(field, value, problem, remedy))


class Fields:
    """One mapping of a document under *path*; reads are recorded, so that `refuse_unknown` knows the rest.

    An absent field, and one of the wrong type (which is reported), reads as its default.
    """

    def __init__(self, document: object, path: str, problems: Problems) -> None:
        self.path = path
        self._problems = problems
        self._asked: dict[str, None] = {}
        self._document: Mapping[str, object] = {}
        if isinstance(document, Mapping):
            self._document = document
        elif document is not None:
            problems.add(path, document, f"is {shown(document)}, not a mapping", "write its fields below it")

    def __contains__(self, name: str) -> bool:
        return self._document.get(name) is not None

    def at(self, name: str) -> str:
        """The path of field *name*."""
        return f"{self.path}.{name}" if self.path else name

    def problem(self, name: str, problem: str, remedy: str) -> None:
        """Report field *name*."""
        self._problems.add(self.at(name), self._document.get(name), problem, remedy)

    def raw(self, name: str) -> object:
        """Value of field *name*, of any type; None if it is absent."""
        self._asked[name] = None
        return self._document.get(name)

    def text(self, name: str, default: str = "", *, required: bool = False) -> str:
        value = self.raw(name)
        if value is None:
            value = default
        if value == "" and required:
            self.problem(name, "is missing", "it has no default")
        if isinstance(value, str):
            return value
        self.problem(name, f"is {shown(value)}, not a string", "put it in quotes")
        return default

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.problem(name, f"is {shown(value)}, not a boolean", "write true or false")
        return default

    def number(
        self,
        name: str,
        default: float,
        *,
        least: float = 0.0,
        most: float,
        above: bool = False,
        whole: bool = False,
    ) -> float:
        """A number from *least* (or *above* it) to *most*; *whole* numbers only if asked for."""
        value = self.raw(name)
        if value is None:
            return default
        kind = "a whole number" if whole else "a number"
        lower = f"above {least:g}" if above else f"from {least:g}"
        remedy = f"write {kind} {lower} to {most:g} (default {default:g})"
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(name, f"is {shown(value)}, not a number", remedy)
        elif not math.isfinite(value) or (whole and value != int(value)):
            self.problem(name, f"is not {kind}", remedy)
        elif value < least or (above and value == least):
            self.problem(name, "is too small", remedy)
        elif value > most:
            self.problem(name, "is too large", remedy)
        else:
            return float(value)
        return default

    def count(self, name: str, default: int, *, least: int = 0, most: int) -> int:
        """A whole number from *least* to *most*."""
        return int(self.number(name, default, least=least, most=most, whole=True))

    def choice(self, name: str, default: str, *, of: Iterable[str]) -> str:
        """One of the texts *of*."""
        value = self.text(name, default)
        known = [str(each) for each in of]
        if value in known:
            return value
        nearest = closest(value, known, most=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        self.problem(name, "is not known", f"{hint}use {', '.join(known)}")
        return default

    def mapping(self, name: str) -> Fields:
        """The mapping at *name*, empty if absent."""
        return Fields(self.raw(name), self.at(name), self._problems)

    def entries(self, name: str) -> list[tuple[str, Fields]]:
        """The mappings that a mapping at *name* holds, by their free keys."""
        inner = self.mapping(name)
        return [(key, inner.mapping(key)) for key in inner._document]

    def items(self, name: str) -> list[Fields]:
        """The mappings in the list at *name*, empty if absent."""
        return [
            Fields(item, f"{self.at(name)}[{i}]", self._problems) for i, item in enumerate(self.many(name))
        ]

    def many(self, name: str) -> list[object]:
        """The list at *name*, empty if absent."""
        value = self.raw(name)
        if value is None or isinstance(value, list):
            return value or []
        self.problem(name, f"is {shown(value)}, not a list", "write its items below it, each after a dash")
        return []

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of strings to strings."""
        inner = self.mapping(name)
        return {key: inner.text(key) for key in inner._document}

    def refuse_unknown(self) -> None:
        """Report every field that was not read, with the nearest name that exists."""
        for name, value in self._document.items():
            if name in self._asked:
                continue
            nearest = closest(str(name), self._asked, most=1, cutoff=0.6)
            remedy = (
                f"did you mean {nearest[0]!r}?"
                if nearest
                else f"known here: {', '.join(sorted(self._asked))}"
            )
            self._problems.add(self.at(str(name)), value, "is not a field", remedy)
