"""The chart's admission policies and other templates on a benchmark's control plane, rendered by Helm."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from devcluster.real.binaries import ensure_binaries, helm_recipe
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from ringleader.assets import asset

SHARDER: Final = {"serviceAccount": {"create": False, "name": "sharder"}}
"""Values of the sharder: its account is `sharder` in the release's namespace."""
_GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = {
    kind: ApiResource(_GROUP, "v1", plural, kind, namespaced=False)
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    )
}
_NOWHERE: Final = {"namespaceSelector": {"matchLabels": {"bench.ringleader.dev/nowhere": "true"}}}
_SETTLE_S: Final = 2.0
"""Until the server knows that a binding came or went."""


class Binding(NamedTuple):
    """Kind and name of an object that puts a policy into force."""

    kind: str
    name: str


def rendered(values: Mapping[str, Any], *, namespace: str, templates: Sequence[str]) -> list[dict[str, Any]]:
    """Documents that *templates* (names without `.yaml`) make of *values*. Raises: BinariesMissing."""
    helm = ensure_binaries(["helm"], helm_recipe())["helm"]
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "values.yaml")
        file.write_text(json.dumps(values))
        command = [str(helm), "template", "bench", str(asset("manifests", "chart"))]
        command += [f"--namespace={namespace}", f"--values={file}"]
        command += [f"--show-only=templates/{name}.yaml" for name in templates]
        environment = {"HOME": home, "KUBECONFIG": "/dev/null"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


async def install_guard(
    client: Client,
    ring: Mapping[str, Any],
    *,
    namespace: str,
    templates: tuple[str, ...] = ("labels", "mutating"),
) -> list[Binding]:
    """Install the policies of *ring* ({name, spec}); their bindings. Raises: BinariesMissing.

    The sharder's ServiceAccount is `sharder` in *namespace*.
    """
    values = {"rings": {ring["name"]: ring["spec"]}, "labelGuard": {"mutate": "Always"}, "sharder": SHARDER}
    names = [f"guard-{name}" for name in templates]
    documents = await asyncio.to_thread(rendered, values, namespace=namespace, templates=names)
    for document in documents:
        await client.create(POLICIES[document["kind"]], document, type=bytes)
    found = [Binding(document["kind"], document["metadata"]["name"]) for document in documents]
    return [binding for binding in found if binding.kind.endswith("Binding")]


async def switch_guard(client: Client, bindings: Sequence[Binding], *, is_on: bool, namespace: str) -> None:
    """Bind the policies as the chart does, or to namespaces that do not exist.

    *namespace*: that of the Leases.
    """
    for kind, name in bindings:
        everywhere: dict[str, object] = {"namespaceSelector": None}
        if "leases" in name:
            everywhere = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        patch = MergePatch({"spec": {"matchResources": everywhere if is_on else _NOWHERE}})
        await client.patch(POLICIES[kind], name, patch, type=bytes)
    await asyncio.sleep(_SETTLE_S)


def order_of_round(round_number: int) -> tuple[bool, bool]:
    """Whether the guard is on in the first and in the second half of a round: a drift of the machine affects both."""
    return (False, True) if round_number % 2 == 0 else (True, False)
