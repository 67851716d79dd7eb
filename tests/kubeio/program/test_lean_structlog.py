"""Import of structlog without rich: in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["shard_controller", "sharder.__main__"])
def test_rich_is_not_imported_until_the_program_does(package: str) -> None:
    code = f"import sys, {package}, structlog; early = 'rich' in sys.modules; import rich; print(early, rich.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False rich\n"
