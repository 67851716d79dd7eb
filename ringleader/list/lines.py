"""Lines that name objects, as `kubectl get -o name` writes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_LONGEST: Final = 80
FORM: Final = "write KIND/NAME or KIND/NAMESPACE/NAME, as website/blog"


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object that a line names; *namespace* is empty where the line does not say one."""

    line: int
    text: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that cannot be used, and why."""

    line: int
    text: str
    problem: str

    def __str__(self) -> str:
        text = self.text if len(self.text) <= _LONGEST else self.text[:_LONGEST] + "..."
        return f"line {self.line}: {text!r} {self.problem}"


def parse_lines(text: str) -> Iterator[NamedObject | BrokenLine]:
    """`KIND/NAME` or `KIND/NAMESPACE/NAME` in each line; empty lines and text after a # do not count."""
    for number, line in enumerate(text.splitlines(), start=1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        parts = said.split("/")
        if len(parts) not in (2, 3) or not all(parts) or len(said.split()) > 1:
            yield BrokenLine(number, said, f"does not name one object; {FORM}")
        else:
            yield NamedObject(number, said, parts[0], parts[1] if len(parts) == 3 else "", parts[-1])
