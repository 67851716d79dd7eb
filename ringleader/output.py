"""How commands print: a table for people, JSON and YAML for programs, nothing coloured when it is piped.

Owns the forms, not the content: commands hand over a document and, for people, the rows of a table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec


class Form(StrEnum):
    """Values of `-o`; a table when the flag is absent."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    WIDE = "wide"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below their headings as kubectl prints them; *wide* columns appear with `-o wide` only."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    wide: tuple[str, ...] = ()

    def lines(self, *, is_wide: bool) -> list[str]:
        """Aligned lines: every column as wide as its widest cell, three blanks between columns."""
        hidden = set() if is_wide else set(self.wide)
        shown = [index for index, column in enumerate(self.columns) if column not in hidden]
        cells = [[row[index] for index in shown] for row in [self.columns, *self.rows]]
        widths = [max(len(row[index]) for row in cells) for index in range(len(shown))]
        return [
            "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]


def print_line(line: str = "") -> None:
    sys.stdout.write(line + "\n")


def print_table(table: Table, *, form: Form | None) -> None:
    for line in table.lines(is_wide=form is Form.WIDE):
        print_line(line)


def print_document(document: Any, *, form: Form) -> None:
    """Print *document* as JSON or YAML; msgspec Structs and dataclasses are plain data too."""
    plain = msgspec.to_builtins(document)
    if form is Form.YAML:
        import yaml

        sys.stdout.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    else:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n")


def age(seconds: float | None) -> str:
    """*seconds* as kubectl writes ages: 4s, 12m, 5h, 3d; `-` if unknown."""
    if seconds is None:
        return "-"
    for limit, unit_s, suffix in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{int(max(seconds, 0) // unit_s)}{suffix}"
    return f"{int(seconds // 86400)}d"
