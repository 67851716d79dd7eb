"""What a run was measured on: machine, versions, command. Read once at its start; goes into the JSON document."""

from __future__ import annotations

import asyncio
import platform
import sys
from importlib import metadata

import msgspec

from devcluster.plane import ControlPlane
from devcluster.real import RealPlane
from kubeio.rest.client import Client


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


async def read_versions(plane: ControlPlane, client: Client, *packages: str) -> dict[str, str]:
    """Versions of everything whose speed is in the figures, *packages* among it."""
    answer = await client.request("GET", "/version")
    versions = {
        "ringleader": metadata.version("ringleader"),
        "python": platform.python_version(),
        "apiserver": msgspec.json.decode(answer.body, type=_Version).git_version,
        "wrk": (await _first_line("wrk", "--version")).removeprefix("wrk ").split(" ")[0],
    }
    for package in ("uvloop", "httptools", "msgspec", *packages):
        versions[package] = metadata.version(package)
    if isinstance(plane, RealPlane):
        said = await _first_line(str(plane.binary("etcd")), "--version")
        versions["etcd"] = said.removeprefix("etcd Version: ")
    return versions


def command_line(module: str) -> str:
    """How the run of *module* was started."""
    return " ".join(["python", "-m", module, *sys.argv[1:]])


async def _first_line(program: str, *arguments: str) -> str:
    """What *program* says first; empty if it is not there."""
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except FileNotFoundError:
        return ""
    out, _ = await process.communicate()
    return (out.decode(errors="replace").splitlines() or [""])[0].strip()
