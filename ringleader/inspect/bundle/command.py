"""`ringleader bundle`: checks the path, reads the cluster, and writes one tar.gz."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubeio.clock import SystemClock
from kubeio.errors import InputError
from ringleader.inspect.bundle.collect import Collector
from ringleader.options import ConnectionOptions, connected
from ringleader.output import print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

STDOUT: Final = "-"


def run_bundle(where: ConnectionOptions, *, ring: str | None, out: str | None) -> int:
    """The command. Raises: InputError, FailedAt if the server does not answer at all."""
    at = SystemClock().wall()
    name = f"ringleader-bundle-{ring or 'cluster'}-{at:%Y%m%dT%H%M%SZ}"
    path = checked_path(out or f"{name}.tar.gz")

    async def read(client: Client, cluster: Cluster) -> Collector:
        collector = Collector(client, timeout_s=where.timeout_s, begin=_show)
        await collector.read(ring, at=at, server=cluster.server)
        return collector

    found = connected(where, read)
    data = archive(found.files, folder=name, at=at)
    if count := len(found.errors):
        noun = "part" if count == 1 else "parts"
        sys.stderr.write(f"note: {count} {noun} could not be read, see errors.txt in the bundle\n")
    if path is None:
        sys.stdout.buffer.write(data)
    else:
        path.write_bytes(data)
        print_line(str(path))
    return 0


def checked_path(out: str) -> Path | None:
    """The file to write; None: standard output. Raises: InputError, before minutes of reading."""
    if out == STDOUT:
        if sys.stdout.isatty():
            raise InputError("--out", out, "is a terminal", "name a file, or pipe it: --out - | tar -tz")
        return None
    path = Path(out)
    if path.is_dir():
        raise InputError("--out", out, "is a folder", "name a file in it: bundle.tar.gz")
    if not path.absolute().parent.is_dir():
        raise InputError("--out", out, "is in a folder that does not exist", "name one that exists")
    return path


def archive(files: Mapping[str, bytes], *, folder: str, at: datetime) -> bytes:
    """A tar.gz of *files* in *folder*, by name; the same files give the same bytes."""
    packed, seconds = io.BytesIO(), int(at.timestamp())
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=seconds) as stream,
        tarfile.open(mode="w", fileobj=stream) as tar,
    ):
        for path, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.size, member.mtime = len(data), seconds
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _show(part: str) -> None:
    """Progress, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"reading {part}\n")
