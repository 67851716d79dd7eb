"""Container image of Ringleader as an OCI image layout, built without a container engine and without root.

Owns which layers the image has and its configuration. Layer 1 is a base system, of Debian packages in releases, layer 2
the locked Python packages, layer 3 Ringleader's own wheel. Equal inputs give equal bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from devcluster.image.base_system import BaseSystem, debian_base, unpacked_base
from devcluster.image.oci import ImageConfig, tar_of, write_layout
from devcluster.image.wheels import compile_modules, locked_requirements, unpack_locked, unpack_wheel
from kubeio.errors import InputError

__all__ = [
    "NAME",
    "ROOT",
    "SOURCE_DATE_EPOCH",
    "BaseSystem",
    "build_image",
    "build_wheel",
    "commit_time",
    "tar_of",
]

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE_DATE_EPOCH: Final = "SOURCE_DATE_EPOCH"
"""Seconds since 1970 that all built files carry (reproducible-builds.org)."""
NAME: Final = "localhost/ringleader"
"""Repository part of the image's name in its layout; whoever pushes it chooses another."""
_USER: Final = "65532:65532"
_EXTRAS: Final = ("admission",)
"""The sharder's webhook is served from the same image."""


def build_image(out: Path, *, base: Path | None = None, wheel: Path | None = None) -> str:
    """Write the image to the folder *out* and return the digest of its manifest.

    *base* is a Debian root file system with python3, a folder or a tar archive; without it, Debian packages are
    fetched by apt-get. *wheel* is built from this checkout unless it is given.

    Raises: InputError naming the missing program or file and the remedy.
    """
    epoch = commit_time()
    with tempfile.TemporaryDirectory(prefix="ringleader-image-") as scratch:
        work = Path(scratch)
        system = debian_base(work / "base") if base is None else unpacked_base(base, work / "base")
        wheel = wheel or build_wheel(work / "wheel", epoch=epoch)
        packages, program = work / "packages", work / "program"
        unpack_locked(locked_requirements("ringleader", _EXTRAS), packages, system)
        unpack_wheel(wheel, program / system.site_packages)
        (packages / "usr/local/bin").mkdir(parents=True)
        (packages / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        _link_certificates(packages, system)
        _write_command(program)
        for tree in (system.tree, packages, program):
            compile_modules(tree, system)
        version = wheel.name.split("-")[1]
        config = ImageConfig(
            name=f"{NAME}:{version}",
            entrypoint=("ringleader",),
            user=_USER,
            environment={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": "/tmp",  # noqa: S108 - the one folder that may be written
                "LANG": "C.UTF-8",
                "PYTHONDONTWRITEBYTECODE": "1",
                "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
            },
            labels={
                "org.opencontainers.image.title": "ringleader",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        )
        return write_layout(out, [system.tree, packages, program], config, epoch=epoch)


def build_wheel(folder: Path, *, epoch: int) -> Path:
    """The wheel of this checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--quiet", "--no-isolation", "--wheel", "--outdir", folder, ROOT],
        env={**os.environ, SOURCE_DATE_EPOCH: str(epoch)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return next(folder.glob("*.whl"))


def commit_time() -> int:
    """Time that built files carry: SOURCE_DATE_EPOCH, or the time of the checkout's commit.

    Raises: InputError if the variable is no number, or if this is no checkout.
    """
    given = os.environ.get(SOURCE_DATE_EPOCH)
    if given is not None:
        if not given.isascii() or not given.isdigit():
            raise InputError(
                SOURCE_DATE_EPOCH, given, "is not a number of seconds", "use `git log -1 --format=%ct`"
            )
        return int(given)
    done = subprocess.run(
        ["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise InputError(
            SOURCE_DATE_EPOCH,
            None,
            "is not set and this is no git checkout",
            "set it to the time of the release",
        )
    return int(done.stdout)


def _link_certificates(packages: Path, system: BaseSystem) -> None:
    """Certificate authorities for TLS: those of the locked package certifi, unless the base has its own."""
    bundle = "etc/ssl/certs/ca-certificates.crt"
    if not (system.tree / bundle).exists():
        (packages / bundle).parent.mkdir(parents=True)
        (packages / bundle).symlink_to(f"/{system.site_packages}/certifi/cacert.pem")


def _write_command(program: Path) -> None:
    command = program / "usr/local/bin/ringleader"
    command.parent.mkdir(parents=True)
    command.write_text("#!/usr/bin/python3\nfrom ringleader.__main__ import main\n\nmain()\n")
    command.chmod(0o755)
