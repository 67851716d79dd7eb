"""The image, built once for a test session on each base."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devcluster.image import build_image
from devcluster.image.machine_base import machine_base


@pytest.fixture(scope="session", params=["debian", "machine"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OCI layout of the image of this checkout, on Debian packages and on this machine's Python."""
    folder = tmp_path_factory.mktemp("image")
    base = machine_base(folder / "base").tree if request.param == "machine" else None
    if base is None and shutil.which("apt-get") is None:
        pytest.skip("no apt-get: the image's base system is made of Debian packages")
    build_image(folder / "layout", base=base)
    return folder / "layout"
