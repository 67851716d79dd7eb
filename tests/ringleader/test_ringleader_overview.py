"""The help of `ringleader` shows every command, by purpose, and none of its lines is cut off."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
import typer

from ringleader.cli import app
from ringleader.overview import PURPOSES


def test_every_command_has_one_purpose() -> None:
    placed = Counter(chain.from_iterable(PURPOSES.values()))
    assert set(placed) == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert set(placed.values()) == {1}


def test_help_fits_into_eighty_columns_without_cutting_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    typer.main.get_command(app).main(["-h"], prog_name="ringleader", standalone_mode=False)
    page = capsys.readouterr().out
    assert [line for line in page.splitlines() if line.endswith("...") and "COMMAND" not in line] == []
    assert all(f"\n  {name} " in page for name in chain.from_iterable(PURPOSES.values()))
