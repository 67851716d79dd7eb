"""Foreign packages called `ring` or `sharder` (PyPI has both) in the place of ours: told in one line, and never run."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import kubeio
from ringleader.testing.commands import FleetSpec, sharder_command

ROOT = Path(kubeio.__file__).parents[1]
CONTROLLER = str(ROOT / "examples" / "website" / "controller.py")
RUNS = "raise SystemExit('the foreign package was run')\n"
COMMANDS = {
    "ringleader": ["-m", "ringleader", "status"],
    "ringleader demo": ["-m", "ringleader", "demo", "--headless"],
    "sharder": ["-m", "sharder"],
    "shard_controller": ["-m", "shard_controller", "run", f"{CONTROLLER}:websites"],
}


@dataclass(frozen=True, slots=True)
class Ended:
    code: int | None
    out: str
    err: str


async def run(words: list[str], folder: Path, **environment: str) -> Ended:
    """How `python WORDS` ends in *folder*."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    return Ended(process.returncode, out.decode(), err.decode())


def package(folder: Path, name: str, text: str = RUNS) -> Path:
    """A package *name* in *folder*, as `pip install` leaves it."""
    path = folder / name / "__init__.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
async def test_a_foreign_ring_is_named_with_its_place_and_what_to_do(
    command: list[str], tmp_path: Path
) -> None:
    foreign = package(tmp_path / "site-packages", "ring")
    ended = await run(command, tmp_path, PYTHONPATH=str(foreign.parents[1]))
    assert ended == Ended(
        2,
        "",
        f"error: import: 'ring' finds {foreign}, which is not Ringleader's package of that name; "
        "remove it (pip uninstall ring), then install Ringleader again in an environment of its own\n",
    )


async def test_a_foreign_sharder_is_named_by_the_command_that_would_run_it(tmp_path: Path) -> None:
    foreign = package(tmp_path / "site-packages", "sharder")
    ended = await run(["-m", "ringleader", "sharder"], tmp_path, PYTHONPATH=str(foreign.parents[1]))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(
        f"error: import: 'sharder' finds {foreign}, which is not Ringleader's package"
    )
    assert "pip uninstall sharder" in ended.err


async def test_a_file_of_the_users_own_is_to_be_renamed(tmp_path: Path) -> None:
    own = tmp_path / "ring.py"
    own.write_text(RUNS)
    ended = await run(["-m", "sharder"], tmp_path, PYTHONPATH=str(ROOT))
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert f"'ring' finds {own}" in ended.err
    assert "rename it, or take its folder off the path" in ended.err


async def test_a_foreign_package_written_over_ours_is_noticed(tmp_path: Path) -> None:
    """What pip does when the other distribution is installed afterwards: both have a file `ring/__init__.py`."""
    for name in ("kubeio", "ring", "ringleader", "sharder", "shard_controller", "devcluster"):
        shutil.copytree(ROOT / name, tmp_path / "site-packages" / name)
    site = tmp_path / "site-packages"
    assert (await run(["-m", "ringleader", "--version"], tmp_path, PYTHONPATH=str(site))).code == 0
    (site / "ring" / "__init__.py").write_text(RUNS)
    ended = await run(["-m", "ringleader", "--version"], tmp_path, PYTHONPATH=str(site))
    assert ended.code == 2
    assert f"'ring' finds {site / 'ring' / '__init__.py'}" in ended.err


async def test_what_pip_uninstall_left_over_is_noticed(tmp_path: Path) -> None:
    """It takes away what was written over ours; here only `kubeio` is left."""
    shutil.copytree(ROOT / "kubeio", tmp_path / "kubeio")
    libraries = Path(typer.__file__).parents[1]
    program = "from kubeio.program.import_check import check_packages; check_packages()"
    ended = await run(["-S", "-P", "-c", program], tmp_path, PYTHONPATH=f"{tmp_path}:{libraries}")
    assert ended.err.splitlines()[-1].endswith(
        "import: 'ring' finds nothing, though the rest of Ringleader is there; "
        "install Ringleader again (pip install --force-reinstall ringleader)"
    )


async def test_an_import_says_the_same(tmp_path: Path) -> None:
    foreign = package(tmp_path / "site-packages", "ring")
    ended = await run(["-c", "import ringleader.testing"], tmp_path, PYTHONPATH=str(foreign.parents[1]))
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert last.startswith("kubeio.program.import_check.ForeignPackage: import: 'ring' finds ")


async def test_a_fleet_may_be_started_in_any_folder(tmp_path: Path) -> None:
    """`python -m` looks into the current folder first: a file `ring.py` there is none of a fleet's business."""
    (tmp_path / "ring.py").write_text(RUNS)
    words = sharder_command(FleetSpec(), identity="a", kubeconfig=tmp_path / "gone", ports=tmp_path / "port")
    ended = await run(words[1:], tmp_path, PYTHONPATH=str(ROOT))
    assert ended.code == 2
    assert "--kubeconfig" in ended.err
