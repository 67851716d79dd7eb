"""An environment with a former version of Ringleader: its wheel, and the dependencies of this one."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
VARIABLE: Final = "RINGLEADER_FORMER"
"""A tag or commit to compare with."""
BEFORE_ANY_TAG: Final = "5f297bdc1e06"
"""The commit that stands for a former release until there is one."""


def former_commit() -> str | None:
    """The commit of the former version: RINGLEADER_FORMER, or the last tag before this commit; None without it."""
    tag = _output("git", "-C", ROOT, "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    name = os.environ.get(VARIABLE) or tag or BEFORE_ANY_TAG
    return _output("git", "-C", ROOT, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


def install_former(commit: str, folder: Path) -> Path:
    """Build the wheel of *commit* and install it below *folder*. Returns the environment's Python."""
    source, built, environment = folder / "source", folder / "built", folder / "venv"
    archived = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archived)) as archive:
        archive.extractall(source, filter="tar")
    _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", built, source)
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin/python"
    packages = Path(_output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))") or "")
    wheel = next(built.glob("*.whl"))
    _run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, wheel)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _output(*command: str | Path) -> str | None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
