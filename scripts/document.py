"""The blocks of a document, and the shell script that does what it says. Used by tests/docs and by scripts/wheel-test.

A fenced block belongs to a tag in the comment before it:

    <!-- run -->               run in a shell, in the order of the document; must exit 0
    <!-- run: exit 1 -->       the same, with the exit code that is expected
    <!-- write: a/b.py -->     the block is the content of that file, in the order of the document
    <!-- not run: reason -->   shown only, because of *reason*

`python scripts/document.py docs/tutorial.md` prints the script.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(
    r"^(?:<!-- (?P<tag>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)
TAG = re.compile(r"\Arun(?:: exit (?P<code>\d+))?\Z|\Awrite: (?P<path>\S+)\Z|\Anot run: .{8,}\Z", re.DOTALL)
SHELLS = ("sh", "bash", "console", "shell")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. *tag* is empty without one."""

    tag: str
    body: str
    language: str = "sh"

    @property
    def is_shell(self) -> bool:
        return self.language in SHELLS

    @property
    def exit_code(self) -> int | None:
        """What it must exit with; None if it is not run."""
        match = TAG.match(self.tag)
        if match is None or not self.tag.startswith("run"):
            return None
        return int(match["code"] or 0)

    @property
    def path(self) -> str:
        """The file that it is; empty if it is none."""
        match = TAG.match(self.tag)
        return (match["path"] or "") if match is not None else ""


def blocks_of(text: str) -> list[Block]:
    """Every fenced block, in order."""
    return [
        Block((match["tag"] or "").strip(), match["body"], match["language"])
        for match in FENCE.finditer(text)
    ]


def script_of(text: str) -> Iterator[str]:
    """Lines of a bash script that does what *text* says and ends with 9 where a block ends otherwise than it says."""
    for number, block in enumerate(blocks_of(text)):
        if block.path:
            path = shlex.quote(block.path)
            yield f"mkdir -p $(dirname {path}) && cat > {path} <<'END_OF_BLOCK'\n{block.body}END_OF_BLOCK"
        elif block.exit_code is not None:
            check = f"block {number} ended with $code, expected {block.exit_code}"
            yield f"echo '--- block {number}' >&2"
            yield f"{{\n{block.body}\n}}"
            yield f'code=$?; [ $code -eq {block.exit_code} ] || {{ echo "{check}" >&2; exit 9; }}'


if __name__ == "__main__":
    print("\n".join(script_of(Path(sys.argv[1]).read_text())))
