"""Container images without a container engine: a folder becomes a docker archive, which containerd imports."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.nodes.configuration import PAUSE

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image runs, and as whom."""

    entrypoint: Sequence[str]
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def write_image(archive: Path, *, root: Path, tag: str, config: ImageConfig) -> Path:
    """Write the docker archive *archive* of an image *tag* of one layer, the folder *root*; returns its path."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        layer = Path(scratch, "layer.tar")
        with tarfile.open(layer, "w") as tar:
            tar.add(root, arcname=".", filter=_owned_by_root)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        document = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "Entrypoint": list(config.entrypoint),
                "User": config.user,
                "Env": [f"{name}={value}" for name, value in config.environment.items()],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
        with tarfile.open(archive, "w") as tar:
            tar.add(layer, arcname="layer.tar")
            for name, content in (("config.json", document), ("manifest.json", manifest)):
                blob = json.dumps(content).encode()
                entry = tarfile.TarInfo(name)
                entry.size = len(blob)
                tar.addfile(entry, io.BytesIO(blob))
    return archive


def write_pause_image(archive: Path, pause: Path) -> Path:
    """The image of every pod's sandbox: the static program *pause* alone."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as root:
        shutil.copy(pause, Path(root, "pause"))
        return write_image(
            archive, root=Path(root), tag=PAUSE, config=ImageConfig(["/pause"], user="65535:65535")
        )


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    if entry.isdir():
        entry.mode = 0o755
    return entry
