"""The tables of docs/metrics.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(?P<name>[a-z_]+)` \| (?P<labels>[a-z_, ]*?) ?\| .+ \|$", re.MULTILINE)


def documented() -> dict[str, list[str]]:
    """Labels of each metric in the tables of the page."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    return {found["name"]: found["labels"].replace(" ", "").split(",") for found in ROW.finditer(page)}
