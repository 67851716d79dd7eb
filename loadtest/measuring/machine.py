"""What a run was measured on: machine, versions, command. Read once at its start; goes into the JSON document."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from devcluster.plane import ControlPlane
from devcluster.real import RealPlane
from kubeio.rest.client import Client


class Machine(msgspec.Struct, frozen=True):
    """Hardware and kernel."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    load_before: float
    """Processes that wanted a core in the minute before the run: above 0.5 the figures are not the machine's."""


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def read_machine() -> Machine:
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name") or platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        memory_gib=round(int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 2**20, 1),
        kernel=platform.release(),
        load_before=round(os.getloadavg()[0], 2),
    )


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


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
