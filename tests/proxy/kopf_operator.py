"""An operator as kopf's documentation writes them: handlers of create, update and delete, and a child by `kopf.adopt`.

Knows nothing of rings. Run by `kopf run`; appends a line for each call of a handler to the file that CALLS names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import kopf
from kubernetes import client, config

GROUP = ("example.com", "v1", "apps")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False  # events: one request each
    config.load_config()  # type: ignore[no-untyped-call] # for the client of the handlers, by KUBECONFIG


@kopf.on.create(*GROUP)
def create_child(name: str, namespace: str | None, spec: kopf.Spec, **_: Any) -> dict[str, str]:
    """The server chooses the child's name: a second call makes a second child."""
    note("create", name)
    child: dict[str, Any] = {
        "metadata": {"generateName": f"{name}-"},
        "data": {"number": str(spec["number"])},
    }
    kopf.adopt(child)
    created: Any = client.CoreV1Api().create_namespaced_config_map(namespace, child)  # type: ignore[arg-type]
    return {"child": created.metadata.name}


@kopf.on.update(*GROUP)
def update_child(name: str, namespace: str | None, spec: kopf.Spec, status: kopf.Status, **_: Any) -> None:
    note("update", name)
    change = {"data": {"number": str(spec["number"])}}
    client.CoreV1Api().patch_namespaced_config_map(status["create_child"]["child"], namespace, change)  # type: ignore[arg-type]


@kopf.on.delete(*GROUP)
def delete_child(name: str, **_: Any) -> None:
    """With a handler of deletions kopf keeps a finalizer on the object."""
    note("delete", name)


def note(what: str, name: str) -> None:
    """A line appended in one write is whole."""
    with Path(os.environ["CALLS"]).open("a") as file:
        file.write(json.dumps([what, name, os.getpid()]) + "\n")
