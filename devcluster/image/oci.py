"""OCI image layout: layers, configuration, manifest and index, written so that equal trees give equal bytes.

Source: OCI image specification 1.1 (image-layout, manifest, config).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_COMPRESSION: Final = 6
"""Level 9 takes three times as long and saves one percent."""


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What a container of the image runs, and the *name* (`repository:tag`) that importers give it."""

    name: str
    entrypoint: tuple[str, ...]
    user: str
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def write_layout(out: Path, trees: Sequence[Path], config: ImageConfig, *, epoch: int) -> str:
    """Write an image with one layer per tree to the folder *out*; the digest of its manifest.

    Every file belongs to root and carries the time *epoch*. An existing *out* is replaced.
    """
    if out.exists():
        shutil.rmtree(out)
    blobs = out / "blobs/sha256"
    blobs.mkdir(parents=True)
    layers, contents = [], []
    for tree in trees:
        plain = tar_of(tree, epoch=epoch)
        contents.append(f"sha256:{hashlib.sha256(plain).hexdigest()}")
        layers.append(_write_blob(blobs, _LAYER, gzip.compress(plain, _COMPRESSION, mtime=epoch)))
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    machine = platform.machine()
    described = _write_blob(
        blobs,
        _CONFIG,
        _json(
            {
                "created": created,
                "architecture": _ARCHITECTURES.get(machine, machine),
                "os": "linux",
                "config": {
                    "User": config.user,
                    "Env": [f"{name}={value}" for name, value in config.environment.items()],
                    "Entrypoint": list(config.entrypoint),
                    "WorkingDir": "/",
                    "Labels": dict(config.labels),
                },
                "rootfs": {"type": "layers", "diff_ids": contents},
            }
        ),
    )
    body = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described, "layers": layers}
    manifest = _write_blob(blobs, _MANIFEST, _json(body))
    tag = config.name.rpartition(":")[2]
    names = {"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": config.name}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [{**manifest, "annotations": names}]}
    (out / "index.json").write_bytes(_json(index))
    (out / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    return str(manifest["digest"])


def write_archive(archive: Path, trees: Sequence[Path], config: ImageConfig, *, epoch: int) -> Path:
    """The layout of `write_layout` as one tar archive, as `ctr images import` takes it; returns its path."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        layout = Path(scratch, "layout")
        write_layout(layout, trees, config, epoch=epoch)
        archive.write_bytes(tar_of(layout, epoch=epoch))
    return archive


def tar_of(tree: Path, *, epoch: int) -> bytes:
    """Tar archive of *tree*: sorted, owned by root, with no other times or modes than the image needs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(tree.rglob("*")):
            entry = tarfile.TarInfo(path.relative_to(tree).as_posix())
            entry.mtime = epoch
            mode = path.lstat().st_mode
            if path.is_symlink():
                entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
                archive.addfile(entry)
            elif path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if mode & 0o1000 else 0o755
                archive.addfile(entry)
            else:
                entry.mode, entry.size = 0o755 if mode & 0o100 else 0o644, path.stat().st_size
                with path.open("rb") as content:
                    archive.addfile(entry, content)
    return buffer.getvalue()


def layers_of(layout: Path) -> list[Path]:
    """Files of the layers of the image in *layout*, lowest first."""
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(_blob(layout, index["manifests"][0]).read_text())
    return [_blob(layout, layer) for layer in manifest["layers"]]


def _blob(layout: Path, descriptor: Mapping[str, Any]) -> Path:
    return layout / "blobs" / str(descriptor["digest"]).replace(":", "/")


def _write_blob(blobs: Path, media_type: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1).encode()
