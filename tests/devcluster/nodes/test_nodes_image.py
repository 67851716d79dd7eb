"""Docker archives written by hand: their layer, their digest and their names are what containerd reads."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from devcluster.nodes.image import ImageConfig, write_image


def test_archive_has_one_layer_whose_digest_the_config_names(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "program").write_text("#!/bin/sh\n")
    (root / "bin" / "program").chmod(0o755)
    config = ImageConfig(["program"], user="65532:65532", environment={"PATH": "/bin"})
    archive = write_image(tmp_path / "image.tar", root=root, tag="example.com/program:1", config=config)
    with tarfile.open(archive) as tar:
        (entry,) = json.loads(_read(tar, "manifest.json"))
        document = json.loads(_read(tar, entry["Config"]))
        (layer,) = entry["Layers"]
        content = _read(tar, layer)
    assert entry["RepoTags"] == ["example.com/program:1"]
    assert document["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert document["config"] == {"Entrypoint": ["program"], "User": "65532:65532", "Env": ["PATH=/bin"]}


def test_files_of_an_image_are_roots_and_folders_are_open(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "private").mkdir(parents=True, mode=0o700)
    (root / "private" / "file").touch(mode=0o644)
    archive = write_image(tmp_path / "image.tar", root=root, tag="x:1", config=ImageConfig(["/x"]))
    with tarfile.open(archive) as tar:
        (tmp_path / "layer.tar").write_bytes(_read(tar, "layer.tar"))
    with tarfile.open(tmp_path / "layer.tar") as layer:
        members = {member.name: member for member in layer}
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}
    assert members["./private"].mode == 0o755


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()
