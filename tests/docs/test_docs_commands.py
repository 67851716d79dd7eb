"""Every command that README and docs show is run as it stands there; a block that cannot run says why.

A fenced `sh` block belongs to a tag in the comment before it:

    <!-- run -->               run in a shell, in the order of the document; must exit 0
    <!-- run: exit 1 -->       the same, with the exit code that is expected
    <!-- not run: reason -->   shown only, because of *reason*
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md")]
)
FENCE = re.compile(r"(?:<!-- (?P<tag>[^>]+) -->\n)?```(?:sh|bash|console|shell)\n(?P<body>.*?)```", re.DOTALL)
TAG = re.compile(r"\Arun(?:: exit (?P<code>\d+))?\Z|\Anot run: .{8,}\Z", re.DOTALL)

CLEAN_UP = (
    "kill $(jobs -p) 2>/dev/null; for name in $(ringleader devcluster status -o name); do"
    ' ringleader devcluster down --name "${name##*/}"; done'
)
"""Also when a block fails in the middle: what it started must not outlive the test."""


@dataclass(frozen=True, slots=True)
class Block:
    tag: str
    body: str

    @property
    def exit_code(self) -> int | None:
        """What it must exit with; None if it is not run."""
        match = TAG.match(self.tag)
        if match is None or self.tag.startswith("not run"):
            return None
        return int(match["code"] or 0)


def blocks_of(text: str) -> list[Block]:
    return [Block((match["tag"] or "").strip(), match["body"]) for match in FENCE.finditer(text)]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_block_of_commands_is_run_or_says_why_not(document: Path) -> None:
    untold = [block.body for block in blocks_of(document.read_text()) if TAG.match(block.tag) is None]
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
    script = [f"trap '{CLEAN_UP}' EXIT", "set -u -o pipefail", f"cd {ROOT}"]
    for number, block in enumerate(blocks_of(document.read_text())):
        if block.exit_code is not None:
            check = f"block {number} ended with $code, expected {block.exit_code}"
            script += [
                f"echo '--- block {number}' >&2",
                f"{{\n{block.body}\n}}",
                f'code=$?; [ $code -eq {block.exit_code} ] || {{ echo "{check}" >&2; exit 9; }}',
            ]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
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
