"""What .ci/run does where nodes can run, and where they cannot: it names the reason in one line and goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.nodes.__main__ import main as check_nodes

ROOT = Path(__file__).parents[3]


def run_ci(path: Path, *, others: str = "") -> tuple[str, list[str]]:
    """What .ci/run prints with *path* and *others* as its PATH, and which targets it makes."""
    made = path / "made"
    make = path / "make"
    make.write_text(f'#!/bin/sh\necho "$1" >> {made}\n')
    make.chmod(0o755)
    for name in ("bash", "dirname", "env", "id"):
        (path / name).symlink_to(shutil.which(name) or name)
    done = subprocess.run(
        [str(ROOT / ".ci" / "run")],
        env={
            "PATH": f"{path}:{others}" if others else str(path),
            "VENV": str(Path(sys.prefix)),
            "HOME": os.environ["HOME"],
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, made.read_text().split()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: without it, apt-get is not asked")
def test_packages_that_cannot_be_installed_are_a_reason_not_a_failure(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    apt.chmod(0o755)
    said, made = run_ci(tmp_path)
    first, second = said.splitlines()
    assert first.startswith("ci: the packages iproute2 ")
    assert first.endswith("not installed: E: no network")
    assert second.startswith("ci: make test-cluster does not run here: nodes: no ip on PATH")
    assert made == ["test", "test-long"]


def test_without_apt_get_the_missing_commands_are_named(tmp_path: Path) -> None:
    said, made = run_ci(tmp_path)
    assert "ci: make test-cluster does not run here: nodes: " in said
    assert made == ["test", "test-long"]


def test_where_nodes_can_run_they_do(tmp_path: Path) -> None:
    if check_nodes() != 0:
        pytest.skip("nodes cannot run here: python -m devcluster.nodes says why")
    assert run_ci(tmp_path, others=os.environ["PATH"]) == ("", ["test", "test-cluster", "test-long"])
