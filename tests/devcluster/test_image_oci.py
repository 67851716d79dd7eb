"""Images written by hand: their layer, its digest, their names and their files are what containerd reads."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from devcluster.image.oci import ImageConfig, write_archive


def test_an_archive_names_the_image_its_command_and_the_digest_of_its_layer(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "program").write_text("#!/bin/sh\n")
    config = ImageConfig(
        "example.com/program:1", ("program",), user="65532:65532", environment={"PATH": "/bin"}
    )
    archive = write_archive(tmp_path / "image.tar", [root], config, epoch=0)
    with tarfile.open(archive) as tar:
        (entry,) = json.loads(read(tar, "index.json"))["manifests"]
        manifest = document(tar, entry)
        described = document(tar, manifest["config"])
        (layer,) = manifest["layers"]
        content = gzip.decompress(read(tar, blob(layer)))
    assert entry["annotations"]["io.containerd.image.name"] == "example.com/program:1"
    assert described["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert described["config"]["Entrypoint"] == ["program"]
    assert (described["config"]["User"], described["config"]["Env"]) == ("65532:65532", ["PATH=/bin"])


def test_files_of_an_image_are_roots_and_folders_are_open(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "private").mkdir(parents=True, mode=0o700)
    (root / "private" / "file").touch(mode=0o644)
    archive = write_archive(tmp_path / "image.tar", [root], ImageConfig("x:1", ("/x",), "1:1"), epoch=0)
    with tarfile.open(archive) as tar:
        (entry,) = json.loads(read(tar, "index.json"))["manifests"]
        (layer,) = document(tar, entry)["layers"]
        content = gzip.decompress(read(tar, blob(layer)))
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        members = {member.name: member for member in files}
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}
    assert members["private"].mode == 0o755


def blob(descriptor: dict[str, Any]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def document(tar: tarfile.TarFile, descriptor: dict[str, Any]) -> Any:
    return json.loads(read(tar, blob(descriptor)))


def read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()
