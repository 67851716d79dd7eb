"""The container image: built from this checkout, unpacked, and run as its user on a read-only root."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from devcluster.image import build_image
from devcluster.image.base_system import BaseSystem
from devcluster.image.oci import ImageConfig, tar_of, write_layout
from devcluster.image.wheels import compile_modules
from kubeio.errors import InputError

SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
READ_ONLY = """set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
root=$1; shift
exec env -i PATH=/usr/local/bin:/usr/bin HOME=/tmp SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
  {chroot} --userspec=65532:65532 "$root" "$@"
"""


def _blob(layout: Path, descriptor: dict[str, Any]) -> bytes:
    content: bytes = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert len(content) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
    return content


def _manifest(layout: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        _blob(layout, json.loads((layout / "index.json").read_text())["manifests"][0])
    )
    return found


@pytest.fixture(scope="module")
def root(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's files, laid over each other."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("chroot", path=SYSTEM) is None:
        pytest.skip("needs root, unshare and chroot: they stand for the container engine")
    unpacked = tmp_path_factory.mktemp("root")
    unpacked.chmod(0o755)
    blobs = image / "blobs/sha256"
    for layer in _manifest(image)["layers"]:
        with tarfile.open(blobs / layer["digest"].removeprefix("sha256:")) as archive:
            archive.extractall(unpacked, filter="tar")
    return unpacked


def _run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """*command* as the chart's containers run it: the image's user, nothing may be written."""
    script = READ_ONLY.format(chroot=shutil.which("chroot", path=SYSTEM))
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(root), *command],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_blob_of_the_image_has_its_digest_and_the_configuration_names_no_root(image: Path) -> None:
    manifest = _manifest(image)
    config = json.loads(_blob(image, manifest["config"]))
    assert config["config"]["User"] == "65532:65532"
    assert config["config"]["Entrypoint"] == ["ringleader"]
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"]) == 3
    for layer in manifest["layers"]:
        _blob(image, layer)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("image", ["debian"], indirect=True)
def test_the_released_image_stays_small(image: Path) -> None:
    packed = sum(layer["size"] for layer in _manifest(image)["layers"])
    assert packed < 60_000_000, f"the image grew to {packed} bytes"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["ringleader", "--version"], "ringleader 0."),
        (["python", "-m", "sharder", "--help"], "--webhook-bind"),
        (["python", "-m", "shard_controller", "--help"], "run"),
    ],
    ids=lambda value: value[-2] if isinstance(value, list) else "",
)
def test_the_commands_of_the_chart_run_in_the_image(root: Path, command: list[str], said: str) -> None:
    done = _run(root, *command)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_container_has_certificates_no_shell_and_compiled_modules(root: Path) -> None:
    program = (
        "import os, shutil, ssl, cryptography, sharder.app, uvloop\n"
        "assert os.getuid() == 65532\n"
        "assert len(ssl.create_default_context().get_ca_certs()) > 50\n"
        "assert not any(map(shutil.which, ('sh', 'bash', 'apt-get', 'dpkg', 'pip')))\n"
        "assert os.path.exists(sharder.app.__cached__), sharder.app.__cached__\n"
        "try: open('/usr/x', 'w')\n"
        "except OSError: print('read-only')\n"
    )
    done = _run(root, "python", "-c", program)
    assert (done.returncode, done.stdout) == (0, "read-only\n"), done.stderr


def test_a_layout_depends_on_the_content_of_trees_alone(tmp_path: Path) -> None:
    digests: list[str] = []
    for name in ("one", "two"):
        tree = tmp_path / name
        for file in ("b", "a/x", "a/y") if name == "one" else ("a/y", "a/x", "b"):
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_text(file)
        (tree / "link").symlink_to("b")
        (tree / "b").chmod(0o700 if name == "one" else 0o755)
        os.utime(tree / "b", (0, 1000 + len(digests)))
        config = ImageConfig("localhost/x:1", ("x",), "1:1", {"A": "b"}, {})
        digests.append(write_layout(tmp_path / f"{name}.oci", [tree], config, epoch=5))
    assert digests[0] == digests[1]
    assert tar_of(tmp_path / "one.oci", epoch=5) == tar_of(tmp_path / "two.oci", epoch=5)


def test_a_base_that_is_no_root_file_system_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(InputError, match="neither a folder nor a tar archive"):
        build_image(tmp_path / "out", base=tmp_path / "text")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="does not lead to python3"):
        build_image(tmp_path / "out", base=tmp_path / "empty")
    with pytest.raises(InputError, match="has no dynamic loader"):
        compile_modules(tmp_path / "empty", BaseSystem(tmp_path / "empty", "python3.11"))


def test_without_apt_get_the_remedy_is_a_base_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"there is no apt-get; pass base=ROOTFS\.tar"):
        build_image(tmp_path / "out")


def test_a_time_that_is_no_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH: 'yesterday'"):
        build_image(tmp_path / "out")
