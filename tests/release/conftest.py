"""The image, built once for a test session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devcluster.image import build_image


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OCI layout of the image of this checkout."""
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get: the image's base system is made of Debian packages")
    layout = tmp_path_factory.mktemp("image") / "layout"
    build_image(layout)
    return layout
