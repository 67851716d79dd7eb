"""`python -m devcluster.image OUT`: the image as an OCI layout in the folder OUT, and as OUT.tar."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from devcluster.image import build_image, commit_time, tar_of
from kubeio.errors import InputError


def main() -> int:
    """Print the digest of the image's manifest; 2 if something is missing here."""
    parser = argparse.ArgumentParser(
        prog="python -m devcluster.image", description="Build the container image."
    )
    parser.add_argument("out", type=Path, help="folder of the OCI layout; replaced if it exists")
    parser.add_argument(
        "--base", type=Path, help="Debian root file system with python3: a folder or a tar archive"
    )
    given = parser.parse_args()
    try:
        digest = build_image(given.out, base=given.base)
        Path(f"{given.out}.tar").write_bytes(tar_of(given.out, epoch=commit_time()))
    except InputError as refused:
        print(f"image: {refused}", file=sys.stderr)  # noqa: T201 - a program
        return 2
    print(digest)  # noqa: T201 - a program
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
