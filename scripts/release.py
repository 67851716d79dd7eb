"""`python scripts/release.py 0.1.0`: everything that a release consists of, in `dist/`, from the commit checked out.

Owns the list of artifacts and their names. The same commit, the same packages of the base system and the same pip and
Helm give the same bytes; `SHA256SUMS` tells. Nothing is signed and nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402 - a script: its folder's parent is where packages are

from devcluster.image import SOURCE_DATE_EPOCH, build_image, commit_time, tar_of  # noqa: E402
from devcluster.real import BinariesMissing, helm_recipe  # noqa: E402
from devcluster.real.binaries import find_binaries  # noqa: E402
from kubeio.errors import InputError  # noqa: E402
from scripts.provenance import provenance_of, sha256  # noqa: E402
from scripts.sbom import sbom_of  # noqa: E402

COPIED: Final = {
    "controllerrings.yaml": "manifests/crds/ringleader.dev_controllerrings.yaml",
    "rules.yaml": "manifests/chart/files/rules.yaml",
    "dashboard.json": "manifests/chart/files/dashboard.json",
}
MATERIALS: Final = ("requirements.lock", "pyproject.toml")
SUMS: Final = "SHA256SUMS"
PROVENANCE: Final = "provenance.json"


def main() -> int:
    """Write the release; 2 if something is missing or does not fit."""
    parser = argparse.ArgumentParser(prog="release", description="Build every artifact of a release.")
    parser.add_argument("version", help="the version that pyproject.toml and the chart have")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the artifacts; replaced")
    parser.add_argument(
        "--base", type=Path, help="Debian root file system of the image: a folder or a tar archive"
    )
    given = parser.parse_args()
    try:
        release(given.version, given.out, base=given.base)
    except (InputError, BinariesMissing) as refused:
        print(f"release: {refused}", file=sys.stderr)
        return 2
    print((given.out / SUMS).read_text(), end="")
    return 0


def release(version: str, out: Path, *, base: Path | None = None) -> None:
    """Write the artifacts of *version* to the folder *out*.

    Raises: InputError if the version is another one or the checkout has changes; BinariesMissing without Helm.
    """
    check_version(version, ROOT)
    commit = committed(ROOT)
    helm = find_binaries(["helm"], helm_recipe())["helm"]
    os.environ[SOURCE_DATE_EPOCH] = str(commit_time())
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="ringleader-release-") as scratch:
        source = Path(scratch) / "source"
        export(ROOT, source)
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source)
        _run(helm, "package", source / "manifests/chart", "--destination", out)
        for name, path in COPIED.items():
            shutil.copyfile(source / path, out / name)
    epoch = commit_time()
    layout = out / "image"
    build_image(layout, base=base, wheel=next(out.glob("*.whl")))
    (out / f"ringleader-{version}-image.tar").write_bytes(tar_of(layout, epoch=epoch))
    (out / f"ringleader-{version}.cdx.json").write_text(sbom_of(layout, epoch=epoch))
    materials = {name: ROOT / name for name in MATERIALS}
    (out / PROVENANCE).write_text(
        provenance_of(_digests(out), version=version, commit=commit, materials=materials)
    )
    sums = "".join(f"{digest}  {name}\n" for name, digest in _digests(out).items())
    (out / SUMS).write_text(sums)


def check_version(version: str, root: Path) -> None:
    """Raises: InputError if pyproject.toml or the chart in *root* has another version than *version*."""
    chart = yaml.safe_load((root / "manifests/chart/Chart.yaml").read_text())
    found = {
        "pyproject.toml: version": tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"],
        "manifests/chart/Chart.yaml: version": chart["version"],
        "manifests/chart/Chart.yaml: appVersion": chart["appVersion"],
    }
    for field, value in found.items():
        if str(value) != version:
            raise InputError(
                field, value, f"is not {version}", "write the release's version there and commit it"
            )


def committed(root: Path) -> str:
    """The commit checked out in *root*.

    Raises: InputError if a file differs from it: what is released must be what the commit names.
    """
    changed = _output("git", "-C", root, "status", "--porcelain").splitlines()
    if changed:
        raise InputError("checkout", changed[0][3:], f"is not committed ({len(changed)} in all)", "commit it")
    return _output("git", "-C", root, "rev-parse", "HEAD").strip()


def export(root: Path, folder: Path) -> None:
    """Write the files of the commit checked out in *root* to *folder*."""
    archived = subprocess.run(
        ["git", "-C", root, "archive", "--format=tar", "HEAD"], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="tar")


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    raise SystemExit(main())
