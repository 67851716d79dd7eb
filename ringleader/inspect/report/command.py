"""`ringleader report`: one HTML file to attach to a ticket, with what the other commands would show. Reads only.

Owns what is read for it and where it goes; its looks are `html`'s. What cannot be read for one ring stands in
its section, and the others go on.
"""

from __future__ import annotations

import platform
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.clock import SystemClock
from kubeio.errors import InputError, KubeError
from kubeio.program.failures import failure
from ringleader.cluster.following import Following
from ringleader.cluster.ring import named_ring
from ringleader.cluster.snapshot import read_rings, read_shards
from ringleader.inspect.report.doctor import diagnose
from ringleader.inspect.report.html import Report, RingPart, render
from ringleader.options import ConnectionOptions, connected
from ringleader.output import print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.ring import Ring
    from ringleader.cluster.shards import Shard

STDOUT: Final = Path("-")
_PACKAGES: Final = ("ringleader", "kubernetes", "msgspec", "mmh3", "httptools", "uvloop", "typer")


class _ServerVersion(msgspec.Struct, rename="camel"):
    git_version: str = ""
    platform: str = ""


def run_report(where: ConnectionOptions, *, ring: str | None, file: Path) -> int:
    """The command."""
    if file != STDOUT:
        check_file(file)  # before minutes of reading

    async def work(client: Client, cluster: Cluster) -> Report:
        return await read_report(client, cluster, ring, timeout_s=where.timeout_s)

    with _waiting():
        text = render(connected(where, work))
    if file == STDOUT:
        sys.stdout.write(text)
    else:
        file.write_text(text, encoding="utf-8")
        print_line(str(file))
    return 0


def check_file(file: Path) -> None:
    """Raises InputError if no file can stand there."""
    if file.is_dir():
        raise InputError("--file", str(file), "is a folder", "name a file in it: report.html")
    if not file.absolute().parent.is_dir():
        raise InputError("--file", str(file), "is in a folder that does not exist", "name one that exists")


async def read_report(client: Client, cluster: Cluster, name: str | None, *, timeout_s: float) -> Report:
    """Everything the report shows. Raises InputError for an unknown ring, KubeError if rings cannot be read."""
    from kubeio.rest.discovery import Discovery

    rings = await read_rings(client, timeout_s=timeout_s)
    wanted = rings if name is None else [named_ring(rings, name)]
    discovery = Discovery(client)
    return Report(
        made_at=SystemClock().wall().strftime("%Y-%m-%d %H:%M:%S UTC"),
        server=cluster.server,
        versions={**await _server_versions(client, timeout_s=timeout_s), **own_versions()},
        rings=[await _part(client, discovery, ring, timeout_s=timeout_s) for ring in wanted],
        findings=await diagnose(client, wanted, timeout_s=timeout_s),
    )


async def _part(client: Client, discovery: Discovery, ring: Ring, *, timeout_s: float) -> RingPart:
    shards: list[Shard] = []
    try:
        shards = await read_shards(client, ring)
        async with Following(client, discovery, ring.name, timeout_s=timeout_s) as following:
            (shown,) = await following.look()
    except KubeError as error:
        return RingPart(ring=ring, shards=shards, picture=None, problem=failure(error).message)
    return RingPart(ring=ring, shards=shards, picture=shown)


async def _server_versions(client: Client, *, timeout_s: float) -> dict[str, str]:
    try:
        answer = await client.request("GET", "/version", timeout_s=timeout_s)
        found = msgspec.json.decode(answer.body, type=_ServerVersion)
    except (KubeError, msgspec.DecodeError) as error:
        told = failure(error).message if isinstance(error, KubeError) else str(error)
        return {"API server": f"not known: {told}"}
    return {"API server": f"{found.git_version} {found.platform}".strip()}


def own_versions() -> dict[str, str]:
    """Of this program, its interpreter and what it stands on."""
    found = {"Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}"}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _waiting() -> AbstractContextManager[object]:
    """A sign of life for people, while all objects are counted."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("reading rings, Leases and objects")
