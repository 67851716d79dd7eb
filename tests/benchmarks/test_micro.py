"""The scripts on pyperf, once each in the smallest size: they end well, with a table and pyperf's JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.fleet


@pytest.mark.parametrize(
    ("script", "flags", "figures"),
    [
        ("ring", "-l 1 --members 3 --virtual-nodes 50 --keys 300 --seeds 2", 12),
        ("client", "-l 50 --connections 2", 4),
        ("store", "-l 1 --count 600", 16),
        ("embedded", "-l 500 --objects 50 --watchers 1", 5),
    ],
)
def test_a_script_ends_with_a_table_and_pyperf_json(
    script: str, flags: str, figures: int, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    command = [
        sys.executable,
        "-m",
        f"benchmarks.{script}",
        *("-p", "1", "-n", "1", "-w", "0"),
        "-o",
        str(out),
        *flags.split(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "┃" in done.stdout
    assert len(json.loads(out.read_text())["benchmarks"]) == figures
