"""What the documents name exists: links and their anchors, paths, targets of make, commands of `ringleader`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from ringleader.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("README.md"),
    ]
)
LINK = re.compile(r"\]\((?!https?:)([^)\s]*)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FOLDERS = "|".join(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and path.name[0].isalpha() and path.name not in ("build", "dist")
)
REPOSITORY_PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]*\w)`")
TEST_FILE = re.compile(r"`(test_\w+\.py)`")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)(?![\w*-])")
COMMAND = re.compile(r"(?:`|\$ |^)ringleader ([a-z]+)\b", re.MULTILINE)
ELSEWHERE = ("tutorial.md", "coming-from-controller-runtime.md")
"""Name files of a new project, and targets of kubebuilder's Makefile."""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors_of(text: str) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(without_code)
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), f"{_name(document)}: {target}"
        if anchor:
            assert anchor in anchors_of(path.read_text()), f"{_name(document)}: {target}"


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.name not in ELSEWHERE], ids=_name)
def test_every_path_exists(document: Path) -> None:
    text = document.read_text()
    missing = [name for name in REPOSITORY_PATH.findall(text) if not (ROOT / name).exists()]
    missing += [name for name in TEST_FILE.findall(text) if not list((ROOT / "tests").rglob(name))]
    assert not missing, _name(document)


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_target_of_make_and_every_command_exists(document: Path) -> None:
    text = document.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = set(typer.main.get_group(app).commands)
    code = " ".join(re.findall(r"`[^`]+`|^```.*?^```$", text, flags=re.DOTALL | re.MULTILINE))
    if document.name not in ELSEWHERE:
        assert not set(MAKE.findall(code)) - targets, _name(document)
    assert not set(COMMAND.findall(code)) - commands, _name(document)
