"""Every command that README and docs show is run as it stands there; a block that cannot run says why.

The tags that say so are those of scripts/document.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.document import TAG, blocks_of, script_of
from tests.warm_python import warm_python

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("README.md"),
    ]
)
FROM_NOTHING = ("tutorial.md",)
"""Begin in an empty folder; the others in the checkout."""
COLD = ("README.md",)
"""Run with the installed `ringleader`; the others with one that needs no imports."""
CLEAN_UP = (
    "kill $(jobs -p) 2>/dev/null; for name in $(ringleader devcluster list -o name); do"
    ' ringleader devcluster down --name "${name##*/}"; done'
)
"""Also when a block fails in the middle: what it started must not outlive the test."""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_block_of_commands_is_run_or_says_why_not(document: Path) -> None:
    shown = [block for block in blocks_of(document.read_text()) if block.is_shell]
    untold = [block.body for block in shown if TAG.match(block.tag) is None]
    assert not untold, f"{_name(document)}: say <!-- run --> or <!-- not run: reason --> before: {untold}"


@pytest.mark.fleet
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if any(b.exit_code is not None for b in blocks_of(d.read_text()))],
    ids=_name,
)
def test_the_commands_of_a_document_do_what_it_says(document: Path, tmp_path: Path) -> None:
    """In one shell session per document: `cd`, variables and files carry over from block to block."""
    place = ROOT
    if document.name in FROM_NOTHING:
        place = tmp_path / "empty"
        place.mkdir()
    script = [f"trap '{CLEAN_UP}' EXIT", "set -u -o pipefail", f"cd {place}"]
    script += script_of(document.read_text())
    environment = {
        **os.environ,
        "PATH": f"{'' if document.name in COLD else f'{Path(warm_python()).parent}:'}"
        f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, f"{_name(document)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_a_block_without_a_tag_is_noticed() -> None:
    assert [TAG.match(b.tag) for b in blocks_of("```sh\nls\n```\n")] == [None]
    assert [b.exit_code for b in blocks_of("<!-- run: exit 2 -->\n```sh\nls\n```\n")] == [2]
    assert [b.exit_code for b in blocks_of("<!-- not run: needs a cluster -->\n```sh\nls\n```\n")] == [None]
    assert [b.path for b in blocks_of("<!-- write: a/b.py -->\n```python\nx = 1\n```\n")] == ["a/b.py"]


def test_files_of_a_document_are_written_and_commands_run_in_its_order(tmp_path: Path) -> None:
    text = (
        "<!-- write: a/b.txt -->\n```text\n$one\n```\n<!-- run -->\n```sh\ncat a/b.txt\n```\n"
        "<!-- run: exit 3 -->\n```sh\n(exit 3)\n```\n<!-- run -->\n```sh\nfalse\n```\n```sh\ntouch never\n```\n"
    )
    ran = subprocess.run(
        ["bash", "-c", "\n".join(script_of(text))], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == ("$one\n", 9)
    assert "block 3 ended with 1, expected 0" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
