"""Base system made of this machine: its Python, the standard library, and the shared libraries that ldd names.

For machines without Debian packages. Its libraries have this machine's versions, and no list of packages names them:
releases are not made of it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from devcluster.image.base_system import DROPPED_MODULES, BaseSystem, write_accounts

_LEFT_OUT: Final = (
    *DROPPED_MODULES,
    "ensurepip",
    "tkinter",
    "_tkinter*",
    "__pycache__",
    "site-packages",
    "dist-packages",
    "config-*",
)
_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x")


def machine_base(tree: Path) -> BaseSystem:
    """Python of this process, copied to *tree*."""
    library = Path(sysconfig.get_path("stdlib"))
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    programs = tree / "usr/bin"
    programs.mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), programs / python)
    (programs / "python3").symlink_to(python)
    modules = tree / "usr/lib" / python
    shutil.copytree(library, modules, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    packages = Path(
        sysconfig.get_path("platlib")
    )  # of the same lock as the image's: they name the same libraries
    _copy_libraries(tree, [programs / python, *modules.rglob("*.so"), *packages.rglob("*.so")])
    write_accounts(tree)
    return BaseSystem(tree, python)


def _copy_libraries(tree: Path, programs: Iterable[Path]) -> None:
    """The shared libraries that *programs* load, the loader included, at the places that they have here."""
    answer = subprocess.run(["ldd", *programs], capture_output=True, text=True, timeout=120, check=False)
    own = sysconfig.get_path("platlib")
    for name in sorted(set(_LIBRARY.findall(answer.stdout))):
        if not name.startswith(own):
            target = tree / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, target)
