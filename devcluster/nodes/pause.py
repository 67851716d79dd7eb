"""The image of every pod's sandbox: the static program `pause` alone."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from devcluster.image.oci import ImageConfig, write_archive
from devcluster.nodes.configuration import PAUSE


def write_pause_image(archive: Path, pause: Path) -> Path:
    """Write the image *archive* of the program *pause*; returns its path."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as root:
        shutil.copy(pause, Path(root, "pause"))
        config = ImageConfig(PAUSE, ("/pause",), user="65535:65535")
        return write_archive(archive, [Path(root)], config, epoch=0)
