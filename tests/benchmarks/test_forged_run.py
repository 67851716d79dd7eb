"""The benchmark of forged labels, small and on the embedded control plane: what it measures and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.fleet


@pytest.mark.slow
def test_forged_labels_are_measured_beside_honest_objects(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.forged", "--plane", "embedded", "--out", str(tmp_path)]
    command += ["--forged", "200", "--per-s", "20", "--honest", "40", "--no-strict", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = {figure["key"]: figure for figure in json.loads(done.stdout)["figures"]}
    assert all(figure["value"] is not None for figure in figures.values()), figures
    assert set(figures) == {"assign-p50", "assign-p99", "handed-over", "cpu", "relabels", "leases", "peak"}
    assert figures["relabels"]["value"] > 10
    assert figures["leases"]["value"] < 150, "names under care are bounded"
