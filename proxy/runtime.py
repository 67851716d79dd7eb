"""`python -m proxy.runtime DIR`: copy to DIR what runs the proxy, in any container of this architecture.

Owns which files these are: this Python with its dynamic loader, libraries and standard library, and the packages that
the proxy imports. A controller's image may be empty, or be built on musl: nothing of it is used.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from kubeio.errors import InputError
from kubeio.program.command_line import run_guarded

PACKAGES: Final = (
    "_cffi_backend",
    "_yaml",
    "backports",
    "cryptography",
    "httptools",
    "kubeio",
    "msgspec",
    "prometheus_client",
    "proxy",
    "ring",
    "sharder",
    "structlog",
    "typing_extensions",
    "uvloop",
    "yaml",
)
"""What the proxy imports, directly or not, and what `kubeio.program.import_check` looks for.

One that this Python lacks is left out: the proof below decides.
"""
_LEFT_OUT: Final = (
    "__pycache__",  # the proof writes what is needed
    "_codecs_*",
    "_ctypes_test*",
    "_curses*",
    "_dbm*",
    "_gdbm*",
    "_sqlite3*",
    "_test*",
    "_tkinter*",
    "_xx*",
    "config-*",
    "curses",
    "dist-packages",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "nis*",
    "pydoc_data",
    "readline*",
    "site-packages",
    "sqlite3",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "unittest",
    "xxlimited*",
)
"""Of the standard library and the packages: half of their size."""
_OPENED_LATE: Final = ("libgcc_s.so.*", "libnss_dns.so.*", "libnss_files.so.*", "libresolv.so.*")
"""Libraries beside libc that glibc opens by name: no program is linked with them."""
_LOADER: Final = re.compile(r"/ld-[^/\s]*\.so[^/\s]*$")
_LISTED: Final = re.compile(r"=> (/\S+) \(0x")
_AT_ONCE: Final = 4
_PROOF: Final = "import ctypes, proxy.__main__, proxy.app, proxy.settings, kubeio.program.runtime, uvloop"


def command(folder: str) -> list[str]:
    """The words that run this Python from *folder*; `-m proxy` and its flags come behind.

    Nothing of the environment is obeyed (-I): it is the controller's.
    """
    return [f"{folder}/lib/ld.so", "--library-path", f"{folder}/lib", f"{folder}/bin/python3", "-I", "-S"]


def write_runtime(folder: Path) -> None:
    """Fill *folder*; what is there is replaced. It has been run once, and has bytecode.

    Raises: InputError if this Python cannot be copied or does not run from there.
    """
    if sys.platform != "linux":
        raise InputError(
            "DIR", str(folder), "cannot be filled by this Python", "run it in Ringleader's image"
        )
    libraries = folder / "lib"
    modules = libraries / f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = folder / "bin/python3"
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(sys.executable).resolve(), program)
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        modules,
        ignore=shutil.ignore_patterns(*_LEFT_OUT),
        dirs_exist_ok=True,
        ignore_dangling_symlinks=True,  # Debian's lead to /etc
    )
    for name in PACKAGES:
        _copy_package(name, modules)
    _copy_metadata(modules)
    loader = _loader()
    shutil.copy(loader, libraries / "ld.so")
    (libraries / "ld.so").chmod(0o755)
    for library in _linked(loader, [program, *modules.rglob("*.so")]):
        shutil.copy(library, libraries)
        if library.name.startswith("libc."):
            for pattern in _OPENED_LATE:
                for late in library.parent.glob(pattern):
                    shutil.copy(late, libraries)
    _prove(folder)


def _copy_package(name: str, target: Path) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return
    folders = list(spec.submodule_search_locations or ())
    for each in folders:
        shutil.copytree(each, target / name, ignore=shutil.ignore_patterns(*_LEFT_OUT), dirs_exist_ok=True)
    if not folders and spec.origin is not None:
        shutil.copy(spec.origin, target)


def _copy_metadata(target: Path) -> None:
    """The version of this program."""
    found = distribution("ringleader")
    metadata = target / f"ringleader-{found.version}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(found.read_text("METADATA") or "")


def _loader() -> Path:
    """What has loaded this Python."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split(maxsplit=5)[5]) for line in lines if _LOADER.search(line))


def _linked(loader: Path, programs: Iterable[Path]) -> set[Path]:
    """The libraries that *programs* are linked with, and those of these: the loader lists them, and runs nothing."""

    def listed(program: Path) -> list[str]:
        words = [str(loader), "--list", str(program)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return _LISTED.findall(done.stdout)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return {Path(name) for names in threads.map(listed, programs) for name in names}


def _prove(folder: Path) -> None:
    """Run it. What it imports leaves bytecode, which saves each later start most of a second."""
    words = [*command(str(folder)), "-c", _PROOF]
    done = subprocess.run(words, env={}, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(
            "DIR", str(folder), f"does not run the proxy: {reason}", "report this with the image's name"
        )


def main(arguments: list[str]) -> int:
    """Fill the folder that *arguments* name."""
    if len(arguments) != 1:
        raise InputError(
            "DIR", " ".join(arguments), "is not one folder", "write python -m proxy.runtime /ringleader"
        )
    try:
        write_runtime(Path(arguments[0]))
    except OSError as error:
        raise InputError(
            "DIR", arguments[0], f"cannot be filled ({error.strerror})", "name a folder of 150 MB"
        ) from None
    return 0


if __name__ == "__main__":
    sys.exit(run_guarded(lambda: main(sys.argv[1:])))
