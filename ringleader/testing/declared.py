"""From a controller, as its module declares it, to what a fleet of it is made of: file, resources, definitions.

Owns the search for them; reads files and asks the control plane which resources it serves.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kubeio.errors import InputError
from kubeio.resource import ApiResource
from ringleader.testing.client import IndependentClient, RequestFailedError
from ringleader.testing.commands import FleetSpec
from ringleader.testing.prerequisites import install_definitions
from shard_controller.api.controller import Controller

_FOLDERS = (".", "manifests", "config/crd", "../manifests")
"""Where the definitions of a controller's kinds may be, seen from its file."""
_SERVED_WITHIN_S = 20.0


async def spec_of(controller: Controller[Any], spec: FleetSpec, client: IndependentClient) -> FleetSpec:
    """*spec* for *controller*: its file, its resources, and the CustomResourceDefinitions that lie beside the file.

    These are installed, since only the server knows the resources' kinds. A ring that *spec* does not name gets the
    controller's name. Raises: InputError if the controller is no variable of a file, or a resource is not served.
    """
    path, name = place_of(controller)
    definitions = tuple(definitions_beside(path)) or spec.definitions
    await install_definitions(client, definitions, replaces=True)
    return replace(
        spec,
        controller=f"{path}:{name}",
        ring=controller.name if spec.ring == FleetSpec().ring else spec.ring,
        resource=await find_resource(client, controller.resource.text),
        controlled=tuple([await find_resource(client, owned.text) for owned in controller.owns]),
        definitions=definitions,
    )


def place_of(controller: Controller[Any]) -> tuple[Path, str]:
    """The file that declares *controller*, and the variable that holds it there. Raises: InputError."""
    function = inspect.unwrap(controller.reconciler)
    path = inspect.getsourcefile(function)
    module = sys.modules.get(function.__module__)
    names = [name for name, value in vars(module).items() if value is controller] if module else []
    if path is None or not names:
        raise InputError(
            "controller",
            controller.name,
            "is no variable of the file that its reconciler is in",
            'start it by its place: fleet.start("path/to/file.py:name")',
        )
    return Path(path), names[0]


def definitions_beside(path: Path) -> Iterator[Path]:
    """YAML files with CustomResourceDefinitions in the folder of *path*, and in those where they usually are."""
    for folder in _FOLDERS:
        for file in sorted((path.parent / folder).glob("*.y*ml")):
            if _defines(file):
                yield file


def _defines(file: Path) -> bool:
    try:
        documents = list(yaml.safe_load_all(file.read_text()))
    except (OSError, yaml.YAMLError):
        return False
    return any(
        isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition"
        for document in documents
    )


async def find_resource(client: IndependentClient, text: str) -> ApiResource:
    """The resource that people write as *text* (`websites.example.com/v1`), once it is served. Raises: InputError."""
    name, _, version = text.partition("/")
    plural, _, group = name.partition(".")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        async with asyncio.timeout(_SERVED_WITHIN_S):
            while True:
                for served in await _served(client, path):
                    if served["name"] == plural:
                        return ApiResource(
                            group, version, plural, served["kind"], namespaced=bool(served["namespaced"])
                        )
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise InputError(
            "resource",
            text,
            "is not served by the control plane",
            "put its CustomResourceDefinition beside the controller, or name it in FleetSpec(definitions=...)",
        ) from None


async def _served(client: IndependentClient, path: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = (await client.request("GET", path))["resources"]
    except RequestFailedError as error:
        if error.status not in (404, 503):
            raise
        return []
    return found
