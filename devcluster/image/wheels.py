"""Python packages of the image: which of the lock it needs, and wheels unpacked where the base's Python looks.

A wheel is a zip archive whose content is what an installer copies. Commands of packages are left out.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devcluster.image.base_system import BaseSystem
from kubeio.errors import InputError

LOCK: Final = Path(__file__).resolve().parents[2] / "requirements.lock"
_BLOCK: Final = re.compile(r"^(?P<name>[a-z][\w.-]*)==(?:.*\\\n)(?:    --hash=.*\n)+", re.MULTILINE)
_GLIBC: Final = (17, 24, 26, 27, 28, 31, 34)
"""Minor versions of glibc 2 that names of manylinux wheels use, up to Debian 12's 36."""
_UNCOMPILED: Final = r"/kubernetes/(aio/)?client/(models|api)/"
"""2,000 modules of the kubernetes package: Ringleader imports none of them, and compiled they are 60 MB."""


def locked_requirements(name: str, extras: Iterable[str] = ()) -> dict[str, str]:
    """Lines of the lock, with their hashes, for everything that *name* with *extras* needs, by normalized name."""
    if not LOCK.is_file():
        raise InputError("requirements.lock", str(LOCK), "does not exist", "build the image in a checkout")
    locked = {str(canonicalize_name(match["name"])): match[0] for match in _BLOCK.finditer(LOCK.read_text())}
    return {
        needed: locked[needed]
        for needed in sorted(set(_closure(name, tuple(extras), set())))
        if needed in locked
    }


def unpack_locked(requirements: dict[str, str], tree: Path, system: BaseSystem) -> None:
    """Download the wheels of *requirements* for the base's Python, verify their hashes and unpack them in *tree*."""
    wheels = tree.with_name("wheels")
    wheels.mkdir()
    pinned = wheels / "requirements.txt"
    pinned.write_text("".join(requirements.values()))
    version = system.python.removeprefix("python")
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC] + [f"manylinux2014_{machine}"]
    target = [word for tag in tags for word in ("--platform", tag)]
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
    ]
    options += ["--implementation=cp", f"--python-version={version}", "-d", str(wheels), "-r", str(pinned)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, *target], check=True)
    for wheel in sorted(wheels.glob("*.whl")):
        unpack_wheel(wheel, tree / system.site_packages)


def unpack_wheel(wheel: Path, site_packages: Path) -> None:
    """Put the modules and the metadata of *wheel* into *site_packages*."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            top, _, rest = member.filename.partition("/")
            if not top.endswith(".data"):
                archive.extract(member, site_packages)
            elif rest.startswith(("purelib/", "platlib/")):
                raise InputError(
                    "wheel", wheel.name, f"has modules in {top}", "take another version of the package"
                )


def compile_modules(tree: Path, system: BaseSystem) -> None:
    """Write the bytecode of the modules in *tree*, by the base's own Python; a read-only root cannot keep it later."""
    base = system.tree
    libraries = sorted(
        {str(path.parent) for path in base.glob("**/*-linux-gnu/*.so*") if "python3" not in str(path)}
    )
    python = [
        str(system.loader),
        "--library-path",
        ":".join(libraries),
        str(base / "usr/bin" / system.python),
    ]
    folders = [
        folder for folder in (f"usr/lib/{system.python}", system.site_packages) if (tree / folder).is_dir()
    ]
    options = ["-q", "-x", _UNCOMPILED, "--invalidation-mode", "unchecked-hash", "-s", str(tree), "-p", "/"]
    subprocess.run(
        [*python, "-S", "-m", "compileall", *options, *(str(tree / folder) for folder in folders)],
        env={
            "PYTHONHOME": str(base / "usr"),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",  # what the compiler imports would carry times
            "LANG": "C.UTF-8",
        },
        check=True,
    )


def _closure(name: str, extras: tuple[str, ...], seen: set[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    """Names of what *name* with *extras* needs on this machine, itself included, as installed metadata says."""
    key = (str(canonicalize_name(name)), extras)
    if key in seen:
        return
    seen.add(key)
    yield key[0]
    try:
        needed = distribution(name).requires or []
    except PackageNotFoundError:
        return  # its marker excludes it here; the lock knows its version
    for text in needed:
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in environments):
            yield from _closure(requirement.name, tuple(sorted(requirement.extras)), seen)
