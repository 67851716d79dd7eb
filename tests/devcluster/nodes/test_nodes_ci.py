"""What .ci/run does where nodes cannot run: it names the reason in one line and goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run_ci(path: Path) -> tuple[str, list[str]]:
    """What .ci/run prints with *path* as its PATH, and which targets it makes."""
    made = path / "made"
    make = path / "make"
    make.write_text(f'#!/bin/sh\necho "$1" >> {made}\n')
    make.chmod(0o755)
    for name in ("bash", "dirname", "env", "id"):
        (path / name).symlink_to(shutil.which(name) or name)
    done = subprocess.run(
        [str(ROOT / ".ci" / "run")],
        env={"PATH": str(path), "VENV": str(Path(sys.prefix)), "HOME": os.environ["HOME"]},
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
