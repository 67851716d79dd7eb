"""The folder that runs the proxy in any container: nothing outside of it is used."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.runtime import PACKAGES, command, main, write_runtime

ROOT = Path(__file__).resolve().parents[2]
LATER = {"typer", "compression", "_typeshed"}
"""Imported by commands alone, by a Python that has it, and by type checkers."""
MAPPED = (
    "import proxy.app, uvloop, proxy.loopback, pathlib; print(pathlib.Path('/proc/self/maps').read_text())"
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="containers run Linux")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root") / "ringleader"
    write_runtime(folder)
    return folder


def run(
    folder: str, *words: str, enter: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(folder), *words],
        env={"PYTHONHOME": "/nowhere", "PYTHONPATH": "/nowhere"},  # the controller's
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=enter,
    )


def test_no_code_outside_of_the_folder_is_mapped(folder: Path) -> None:
    done = run(str(folder), "-c", MAPPED)
    assert done.returncode == 0, done.stderr
    mapped = {
        line.split(maxsplit=5)[5] for line in done.stdout.splitlines() if " r-xp " in line and "/" in line
    }
    assert len(mapped) > 20
    assert {name for name in mapped if not Path(name).is_relative_to(folder)} == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root")
def test_it_runs_in_an_empty_root_as_another_user(folder: Path) -> None:
    def enter() -> None:
        os.chroot(folder.parent)
        os.chdir("/")
        os.setgid(65532)
        os.setuid(65532)

    folder.parent.chmod(0o755)
    shown = run("/ringleader", "-m", "proxy", "--help", enter=enter)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--locks" in shown.stdout
    refused = run("/ringleader", "-m", "proxy", "--ring", "r", "--", "/manager", enter=enter)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: COMMAND: '/manager' is no program that can be run here")


def test_a_folder_is_filled_a_second_time(folder: Path) -> None:
    """A pod whose sandbox is made anew runs its init containers again."""
    assert main([str(folder)]) == 0
    assert run(str(folder), "-m", "proxy", "--help").returncode == 0


def test_every_package_that_the_proxy_imports_is_copied() -> None:
    imported = {name for path in ("kubeio", "proxy") for name in imports(ROOT / path)}
    assert imported - set(sys.stdlib_module_names) - LATER <= set(PACKAGES)


def imports(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]
            elif isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
