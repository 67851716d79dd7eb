"""Base system of the image: python3 and the libraries that it needs, from Debian packages or from a given folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubeio.errors import InputError

STATUS: Final = "var/lib/dpkg/status.d"
"""Folder with the control data of each package of the image."""
_WANTED: Final = ("python3", "libgcc-s1", "libstdc++6", "tzdata")
"""libstdc++ and libgcc are what binary wheels may expect of a system (manylinux)."""
_LEFT_OUT: Final = frozenset({"dpkg", "tar", "debconf", "cdebconf", "perl-base", "install-info"})
"""Dependencies of maintainer scripts, and these are not run."""
_DROPPED: Final = (
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bug",
    "usr/share/pixmaps",
    "usr/share/applications",
    "usr/share/binfmts",
    "usr/lib/*/gconv",
)
DROPPED_MODULES: Final = ("idlelib", "lib2to3", "pydoc_data", "test", "turtledemo")
"""Modules of the standard library that no program of the image imports."""
_FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


@dataclass(frozen=True, slots=True)
class BaseSystem:
    """Root file system in the folder *tree*, with its *python* (`python3.11`)."""

    tree: Path
    python: str

    @property
    def site_packages(self) -> str:
        """Folder that the system's Python imports from, without the leading slash."""
        library = f"usr/lib/{self.python}"
        is_debian = "dist-packages" in (self.tree / library / "site.py").read_text()
        return f"usr/local/lib/{self.python}/dist-packages" if is_debian else f"{library}/site-packages"

    @property
    def loader(self) -> Path:
        """The dynamic loader, which starts the base's Python on this machine without chroot."""
        found = [*self.tree.glob("lib64/ld-linux-*.so.*"), *self.tree.glob("lib/ld-linux-*.so.*")]
        if not found:
            raise InputError(
                "base", str(self.tree), "has no dynamic loader", "give a Debian root file system"
            )
        return found[0]


def debian_base(tree: Path) -> BaseSystem:
    """Python 3 of this machine's Debian release, from packages that apt-get fetches and verifies.

    Maintainer scripts are not run. No shell and no package manager are in the result.

    Raises: InputError if apt-get or dpkg-deb is missing, or the packages cannot be had.
    """
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise InputError(
                "base",
                None,
                f"is not given and there is no {program}",
                "pass base=ROOTFS.tar with python3 inside",
            )
    cache = tree.with_name("debian")
    archives = _download(cache)
    tree.mkdir(parents=True)
    for archive in archives:
        name = _run("dpkg-deb", "-f", archive, "Package").strip()
        if name not in _LEFT_OUT:
            _run("dpkg-deb", "-x", archive, tree)
            control = tree / STATUS / name  # where scanners of images look
            control.parent.mkdir(parents=True, exist_ok=True)
            control.write_text(_run("dpkg-deb", "-f", archive))
    _tidy(tree)
    return BaseSystem(tree, _python_of(tree))


def unpacked_base(base: Path, tree: Path) -> BaseSystem:
    """The root file system *base*, a folder or a tar archive, copied to *tree*.

    Raises: InputError if it is neither, or has no python3.
    """
    if base.is_dir():
        shutil.copytree(base, tree, symlinks=True)
    elif base.is_file() and tarfile.is_tarfile(base):
        with tarfile.open(base) as archive:
            archive.extractall(tree, filter="tar")
    else:
        raise InputError(
            "base", str(base), "is neither a folder nor a tar archive", "give a root file system"
        )
    return BaseSystem(tree, _python_of(tree))


def _download(cache: Path) -> list[Path]:
    (cache / "archives/partial").mkdir(parents=True)
    (cache / "status").touch()  # as if nothing were installed: every dependency is fetched
    options = {
        "Dir::State::status": cache / "status",
        "Dir::Cache": cache,
        "Dir::Cache::archives": cache / "archives",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
    }
    settings = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    command = ["apt-get", "-qq", "-y", "install", "--download-only", "--no-install-recommends"]
    try:
        _run(*command, *settings, *_WANTED)
    except subprocess.CalledProcessError as failure:
        lines = [line for line in failure.stderr.splitlines() if line.startswith("E:")] or ["no reason given"]
        raise InputError(
            "base", None, f"cannot be fetched: {lines[0]}", "run `apt-get update` first"
        ) from failure
    return sorted((cache / "archives").glob("*.deb"))


def _tidy(tree: Path) -> None:
    for pattern in (*_DROPPED, *(f"usr/lib/python3*/{name}" for name in DROPPED_MODULES)):
        for path in tree.glob(pattern):
            shutil.rmtree(path)
    for path in (tree / "usr/share/doc").rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "copyright":  # licences stay
            path.unlink()
    write_accounts(tree)


def write_accounts(tree: Path) -> None:
    """The files of accounts and name resolution in *tree*, and its /tmp."""
    for name, text in _FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    (tree / "tmp").mkdir(exist_ok=True)
    (tree / "tmp").chmod(0o1777)


def _python_of(tree: Path) -> str:
    link = tree / "usr/bin/python3"
    target = link.readlink().name if link.is_symlink() else ""
    if not re.fullmatch(r"python3\.\d+", target):
        raise InputError(
            "base", str(link), "does not lead to python3.N", "give a Debian root file system with python3"
        )
    return target


def _run(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
