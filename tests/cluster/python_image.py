"""The project's image on a base made from this machine: its Python, the libraries that ldd finds, and a wheel.

`manifests/Containerfile` is for machines that reach a registry of images; this one needs none. Entry point, user and
command names are the Containerfile's.
"""

from __future__ import annotations

import compileall
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from devcluster.image.oci import ImageConfig, write_archive

APP = Path("app")
"""Folder of the image with the wheel and what it requires."""
_LEFT_OUT = (
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "site-packages",
    "lib2to3",
    "config-*",
    "*.a",
)
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


def write_python_image(archive: Path, *, wheel: Path, extras: Iterable[str], tag: str) -> Path:
    """Write an image archive of *wheel* with its *extras*, in the versions of this environment; returns its path."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        root = Path(scratch)
        _copy_python(root / "usr" / "local")
        app = root / APP
        with zipfile.ZipFile(wheel) as file:
            file.extractall(app)
        for found in _required(wheel.name.partition("-")[0], frozenset(extras)):
            _copy_distribution(found, app)
        compileall.compile_dir(app, quiet=1, stripdir=str(root), prependdir="/")
        _copy_libraries(root)
        _write_command(root / "usr" / "local" / "bin" / "ringleader", "from ringleader.__main__ import main")
        for folder in ("tmp", "proc", "sys", "dev", "etc"):
            (root / folder).mkdir(exist_ok=True)
        config = ImageConfig(
            tag,
            ("ringleader",),
            user="65532:65532",
            environment={"PATH": "/usr/local/bin", "PYTHONPATH": f"/{APP}", "PYTHONHOME": "/usr/local"},
        )
        return write_archive(archive, [root], config, epoch=0)


def _copy_python(prefix: Path) -> None:
    """The interpreter and its standard library, without tests and without other packages."""
    program = Path(sys.executable).resolve()
    library = Path(sysconfig.get_paths()["stdlib"])
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(program, prefix / "bin" / "python")
    shutil.copytree(library, prefix / "lib" / library.name, ignore=shutil.ignore_patterns(*_LEFT_OUT))


def _required(name: str, extras: frozenset[str]) -> list[Distribution]:
    """The distributions that *name* with *extras* requires here, directly or not."""
    found: dict[str, Distribution] = {}
    left = [(name, extras)]
    while left:
        parent, wanted = left.pop()
        for text in distribution(parent).requires or ():
            requirement = Requirement(text)
            if not _applies(requirement, wanted) or requirement.name in found:
                continue
            found[requirement.name] = distribution(requirement.name)
            left.append((requirement.name, frozenset(requirement.extras)))
    return list(found.values())


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ["", *extras])


def _copy_distribution(found: Distribution, app: Path) -> None:
    for path in found.files or ():
        source = Path(str(path.locate()))
        if ".." in path.parts or "__pycache__" in path.parts or not source.is_file():
            continue
        target = app / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _copy_libraries(root: Path) -> None:
    """The shared libraries of the interpreter and of every extension module, at the places that they have here."""
    programs = [root / "usr" / "local" / "bin" / "python", *root.rglob("*.so"), *root.rglob("*.so.*")]
    answer = subprocess.run(["ldd", *programs], capture_output=True, text=True, timeout=120, check=False)
    for name in set(_LIBRARY.findall(answer.stdout)):
        if name.startswith(str(root)):
            continue
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)


def _write_command(path: Path, imports: str) -> None:
    path.write_text(f"#!/usr/local/bin/python\nimport sys\n{imports}\nsys.exit(main())\n")
    path.chmod(0o755)
