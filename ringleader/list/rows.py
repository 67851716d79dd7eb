"""Rows of `ringleader list`, written as they come, in each form. Nothing is kept."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from ringleader.cluster.placement import RELEASE, Row
from ringleader.output import print_line

_COLUMNS: Final = (
    "resource",
    "namespace",
    "name",
    "ring",
    "owner",
    "drain",
    "desired",
    "member",
    "placed",
    "state",
    "key",
    "hash",
    "token",
)


class RowWriter:
    """Writes rows in one form as they come; *form* is csv, json, yaml, name, wide or a plain table.

    Nothing is written before the first `write` or `end`: a list that fails at once leaves stdout empty.
    """

    def __init__(self, form: str) -> None:
        self._form = form
        self._comma = ""
        self.is_empty = True
        self._is_begun = False
        self._csv = csv.writer(sys.stdout, lineterminator="\n")

    def _begin(self) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        match self._form:
            case "csv":
                self._csv.writerow(_COLUMNS)
            case "json":
                sys.stdout.write('{"objects": [')
            case "yaml":
                sys.stdout.write("objects:")
            case "name":
                pass
            case _:
                self._line("OBJECT", "OWNER", "DESIRED", "DRAIN", "HASH", "TOKEN")

    def write(self, rows: Sequence[Row]) -> None:
        """*rows*, after those that were written before."""
        self._begin()
        self.is_empty = self.is_empty and not rows
        match self._form:
            case "csv":
                self._csv.writerows(map(_cells, rows))
            case "json":
                for row in rows:
                    sys.stdout.write(f"{self._comma}\n  {msgspec.json.encode(row).decode()}")
                    self._comma = ","
            case "yaml":  # JSON is YAML, and a mapping on one line of it is quick to read and to write
                for row in rows:
                    sys.stdout.write(f"\n- {msgspec.json.encode(row).decode()}")
            case "name":
                for row in rows:
                    sys.stdout.write(f"{row.owner}\n")
            case _:
                for row in rows:
                    drain = "-" if row.drain_to is None else row.drain_to or RELEASE
                    owner, desired = row.owner or "-", row.desired_shard or "-"
                    self._line(_shown(row), owner, desired, drain, row.hash, row.token)

    def end(self) -> None:
        self._begin()
        if self._form == "json":
            sys.stdout.write("\n]}\n")
        elif self._form == "yaml":
            sys.stdout.write(" []\n" if self.is_empty else "\n")

    def _line(self, *cells: str) -> None:
        """Columns of fixed width: the widest cell is not known before the last row."""
        widths = (44, 24, 24, 24, 16, 16) if self._form == "wide" else (44, 24, 24, 0)
        shown = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        print_line("  ".join(shown).rstrip())


def _shown(row: Row) -> str:
    place = f"{row.namespace}/" if row.namespace else ""
    return f"{row.resource}/{place}{row.name}"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.resource,
        row.namespace,
        row.name,
        row.ring,
        row.owner,
        "" if row.drain_to is None else row.drain_to or RELEASE,
        row.desired_shard,
        row.desired_member,
        "true" if row.is_placed else "false",
        row.owner_state,
        row.key,
        row.hash,
        row.token,
    )
