"""The reference says what the docstrings say."""

from __future__ import annotations

from pathlib import Path

from scripts.reference import reference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def test_the_reference_is_what_the_docstrings_say() -> None:
    """If this fails: python scripts/reference.py"""
    assert PAGE.read_text() == reference()


def test_everything_public_is_explained() -> None:
    """A heading with nothing below it helps nobody."""
    sections = PAGE.read_text().split("\n### ")[1:]
    bare = [section.splitlines()[0] for section in sections if len(section.split("```")[-1].split()) < 2]
    assert not bare
