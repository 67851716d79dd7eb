"""The place where bad input is tried: a control plane with one ring and one object, a bare one, and many wrong files.

Kubeconfigs, controllers and rings that are wrong stand in `cases.yaml`; here they become files.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from devcluster.embedded import EmbeddedPlane, embedded_plane
from kubeio.access.cluster import load_cluster
from kubeio.errors import KubeError
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.testing.single_task import single_task
from tests.manifests import manifest
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).with_name("cases.yaml")
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
PATIENCE_S = 40.0
WARNINGS = "error::ResourceWarning"
Document = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str


@dataclass
class Place:
    """Where commands run: both planes, and a folder with every file that `cases.yaml` names."""

    plane: EmbeddedPlane
    bare: EmbeddedPlane
    folder: Path
    words: dict[str, str] = field(default_factory=dict)
    """What stands for `{word}` in a command."""

    def filled(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace("{" + word + "}", value)
        return text

    async def run(self, command: str, *, environment: Mapping[str, str], until: str = "") -> Ended:
        """Run *command*; with *until* it is interrupted as soon as it has said that on stderr."""
        process = await asyncio.create_subprocess_exec(
            *arguments(self.filled(command)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env=self._environment(environment),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
                out = tasks.create_task(_read(process.stdout), name="stdout")
                err = tasks.create_task(_read(process.stderr, process, until), name="stderr")
            code = await process.wait()
        finally:
            _kill(process.pid)
        return Ended(code, out.result(), err.result())

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "SSL_CERT_FILE")
        }
        folders = {"HOME": str(self.folder / "home"), "PYTHONWARNINGS": WARNINGS}
        default = {"KUBECONFIG": str(self.plane.kubeconfig), "COLUMNS": "80"}
        return {**kept, **folders, **default, **{name: self.filled(value) for name, value in extra.items()}}


def arguments(command: str) -> list[str]:
    """The words of *command*; a line with shell syntax goes to a shell. The commands are those of this checkout."""
    python = warm_python(PYTHONWARNINGS=WARNINGS)
    if any(sign in command for sign in "|<>"):
        told = command.replace("ringleader ", f"{shlex.quote(python)} -m ringleader ", 1)
        return ["bash", "-c", told]
    words = shlex.split(command)
    if words[0] == "ringleader":
        return [python, "-m", *words]
    return [python, *words[1:]] if words[0] == "python" else words


async def _read(
    stream: asyncio.StreamReader | None, process: asyncio.subprocess.Process | None = None, until: str = ""
) -> str:
    if stream is None:
        return ""
    text = ""
    while line := await stream.readline():
        text += line.decode(errors="replace")
        if process is not None and until and until in text:
            process.send_signal(signal.SIGINT)
            process = None
    return text


def _kill(group: int) -> None:
    """End whatever is left of a command and its children."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """Both planes, filled, and the folder of files."""
    folder = tmp_path_factory.mktemp("bad-input")
    async with (
        single_task(embedded_plane(folder / "plane", faults=True)) as plane,
        single_task(embedded_plane(folder / "bare-plane")) as bare,
    ):
        await _fill(plane)
        place = Place(plane, bare, folder)
        _write_files(place, manifest(CASES))
        yield place


async def _fill(plane: EmbeddedPlane) -> None:
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        for path in ("manifests/crds/ringleader.dev_controllerrings.yaml", "examples/website/crd.yaml"):
            await client.create(CRDS, manifest(ROOT / path), type=dict)
        await client.create(NAMESPACES, {"metadata": {"name": "sites"}}, type=dict)
        ring = {
            "metadata": {"name": "websites"},
            "spec": {
                "leaseNamespace": "sites",
                "resources": [
                    {
                        "group": "example.com",
                        "resource": "websites",
                        "controlledResources": [{"resource": "configmaps"}],
                    }
                ],
            },
        }
        site = {"metadata": {"name": "blog"}, "spec": {"html": "hello"}}
        await create_when_served(client, CONTROLLER_RINGS, ring)
        await create_when_served(client, WEBSITES, site, namespace="sites")


async def create_when_served(
    client: Client, resource: ApiResource, body: Document, *, namespace: str = ""
) -> Document:
    """Create an object of a resource whose definition may be a moment old."""
    described = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    for _ in range(100):
        if await _is_served(client, resource):
            break
        await asyncio.sleep(0.05)
    return await client.create(resource, described, namespace=namespace, type=dict)


async def _is_served(client: Client, resource: ApiResource) -> bool:
    try:
        await client.list_page(resource, limit=1)
    except KubeError:
        return False
    return True


def _write_files(place: Place, document: Document) -> None:
    good = yaml.safe_load(place.plane.kubeconfig.read_text())
    other = yaml.safe_load(place.bare.kubeconfig.read_text())
    place.words = {
        "admin": str(place.plane.kubeconfig),
        "bare": str(place.bare.kubeconfig),
        "server": place.plane.url,
        "port": place.plane.url.rpartition(":")[2],
        "other_ca": other["clusters"][0]["cluster"]["certificate-authority-data"],
        "long": "a" * 254,
        "controller": str(ROOT / "examples" / "website" / "controller.py"),
    }
    for name, text in document["files"].items():
        (place.folder / name).write_text(text)
    for name, changes in document["kubeconfigs"].items():
        (place.folder / name).write_text(place.filled(yaml.safe_dump(changed(good, changes))))
    (place.folder / "folder").mkdir()
    (place.folder / "home").mkdir()


def changed(kubeconfig: Document, changes: Document) -> Document:
    """*kubeconfig* with the fields of its only cluster and user changed; null takes a field away."""
    cluster = _merged(kubeconfig["clusters"][0]["cluster"], changes.get("cluster", {}))
    user = _merged(kubeconfig["users"][0]["user"], changes.get("user", {}))
    return {
        **_merged(kubeconfig, changes.get("top", {})),
        "clusters": [{**kubeconfig["clusters"][0], "cluster": cluster}],
        "users": [{**kubeconfig["users"][0], "user": user}],
    }


def _merged(old: Document, new: Document) -> Document:
    return {name: value for name, value in {**old, **new}.items() if value is not None}
