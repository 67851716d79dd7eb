"""The chart's policies about a ring's labels, put onto a benchmark's control plane (docs/operate.md, "The guard").

Rendered by Helm from the chart itself, so that what is measured is what is installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.measuring.chart import SHARDER, rendered
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client

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
    """Kind and name of what puts a policy into force."""

    kind: str
    name: str


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
    values = {"rings": [ring], "labelGuard": {"mutate": "Always"}, "sharder": SHARDER}
    names = [f"guard-{name}" for name in templates]
    documents = await asyncio.to_thread(rendered, values, namespace=namespace, templates=names)
    for document in documents:
        await client.create(POLICIES[document["kind"]], document, type=bytes)
    found = [Binding(document["kind"], document["metadata"]["name"]) for document in documents]
    return [binding for binding in found if binding.kind.endswith("Binding")]


async def switch_guard(client: Client, bindings: Sequence[Binding], *, is_on: bool, namespace: str) -> None:
    """Bind the policies to what the chart binds them to, or to namespaces that do not exist.

    *namespace*: that of the Leases.
    """
    for kind, name in bindings:
        everywhere: dict[str, object] = {"namespaceSelector": None}
        if "leases" in name:
            everywhere = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        patch = MergePatch({"spec": {"matchResources": everywhere if is_on else _NOWHERE}})
        await client.patch(POLICIES[kind], name, patch, type=bytes)
    await asyncio.sleep(_SETTLE_S)


def order_of_turns(round_number: int) -> tuple[bool, bool]:
    """Whether the guard is on in the first and in the second turn: what drifts meets both alike."""
    return (False, True) if round_number % 2 == 0 else (True, False)
