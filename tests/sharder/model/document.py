"""The table of docs/protocol.md that says what of the model was explored: reading it, and writing it anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.sharder.model.exploration import Explored
from tests.sharder.model.settings import SETTINGS

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "protocol.md"
HEAD: Final = "| what happens, in any order | worlds | explored | breaks | s |\n|---|---|---|---|---|\n"


def row_of(name: str, explored: Explored, *, took_s: float) -> str:
    """One line of the table."""
    whole = "all" if explored.is_complete and explored.broken is None else "in part"
    found = "nothing" if explored.broken is None else "SOMETHING"
    return f"| {name} | {len(explored.came_from):,} | {whole} | {found} | {took_s:.0f} |"


def read_rows() -> dict[str, list[str]]:
    """The cells of the table by the name of their setting."""
    text = DOCUMENT.read_text()
    lines = text.split(HEAD)[1].splitlines() if HEAD in text else []
    cells: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith("| "):
            break
        name, *rest = (cell.strip() for cell in line.strip("|").split("|"))
        cells[name] = rest
    return cells


def put_rows(rows: Mapping[str, str]) -> None:
    """Replace the rows of these settings; those of settings that are no more go."""
    kept = {name: "| " + " | ".join([name, *cells]) + " |" for name, cells in read_rows().items()}
    table = "".join(f"{line}\n" for name in SETTINGS if (line := {**kept, **rows}.get(name)))
    before, after = DOCUMENT.read_text().split(HEAD)
    rest = after.splitlines(keepends=True)
    while rest and rest[0].startswith("| "):
        rest.pop(0)
    DOCUMENT.write_text(before + HEAD + table + "".join(rest))
