"""A newcomer's way: the commands of docs/operate.md, "On nodes of your own machine", as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.real.binaries import find_binaries, helm_recipe, kubernetes_recipe
from scripts.document import blocks_of
from tests.chart.helm import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TEN_MINUTES_S = 600.0


def test_the_page_leads_from_nothing_to_a_sharded_controller(image: Path, tmp_path: Path) -> None:
    blocks = blocks_of((ROOT / "docs" / "operate.md").read_text())
    for name in ("values.yaml", "local.yaml"):
        (values,) = (block.body for block in blocks if block.body.startswith(f"# {name}\n"))
        (tmp_path / name).write_text(values)
    (commands,) = (
        block.body for block in blocks if "tests/cluster/test_cluster_page.py runs it" in block.tag
    )
    for name in ("manifests", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    for folder in ("dist", "bin"):
        (tmp_path / folder).mkdir()
    (tmp_path / "dist" / "image.tar").symlink_to(image)
    programs = find_binaries(["helm"], helm_recipe()) | find_binaries(["kubectl"], kubernetes_recipe())
    for name, program in programs.items():
        (tmp_path / "bin" / name).symlink_to(program)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": os.environ["HOME"], "XDG_STATE_HOME": str(tmp_path / "state")}
    try:
        done = subprocess.run(
            ["bash", "-euc", commands],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TEN_MINUTES_S,
            check=False,
        )
    finally:
        down = [sys.executable, "-m", "ringleader", "devcluster", "down"]
        subprocess.run(down, env=environment, timeout=120, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "image.tar is on node-1, node-2" in done.stdout
    assert "nothing is wrong: 21 checks of 1 ring" in done.stdout
    assert "Phase:          Succeeded" in done.stdout
    owners = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith(("blog ", "shop "))]
    assert len(owners) == 2
    assert all(owner.startswith("websites-") for owner in owners), done.stdout
