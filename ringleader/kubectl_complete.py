"""`kubectl_complete-ringleader`: what kubectl asks when TAB is pressed behind `kubectl ringleader`.

Owns the form that kubectl wants: a suggestion in each line, then a directive. The suggestions are those of `ringleader`
itself. kubectl finds this program by its name, on the PATH.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Final

_NO_FILES: Final = 4
_NO_SPACE: Final = 2
_VARIABLE: Final = "_RINGLEADER_COMPLETE"


def main(words: Sequence[str] | None = None) -> int:
    """Print suggestions for *words* (None: the process's own), the last of which is not finished."""
    found = suggestions(sys.argv[1:] if words is None else words)
    directive = _NO_FILES + (_NO_SPACE if found and all(each.endswith("/") for each in found) else 0)
    sys.stdout.write("".join(f"{line}\n" for line in (*found, f":{directive}")))
    return 0


def suggestions(words: Sequence[str]) -> list[str]:
    """What may stand in the place of the last of *words*; nothing if that cannot be told."""
    from kubeio.program.command_line import run_command
    from ringleader.cli import app

    asked = [*words] or [""]
    line = shlex.join(["ringleader", *asked[:-1]]) + f" {asked[-1]}"
    os.environ |= {_VARIABLE: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(asked))}
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        run_command(app, name="ringleader", arguments=[])
    return [each for each in out.getvalue().splitlines() if each]


if __name__ == "__main__":
    sys.exit(main())
