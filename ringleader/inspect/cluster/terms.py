"""What a ring says in full, read by the sharder's own rules: limits, pause, namespaces, activation.

`rings.Ring` has what every command needs; `explain` and the commands that change a ring want the rest, and whether a
sharder would refuse it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubeio.errors import Forbidden
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import NAMESPACES
from sharder.errors import RingRefused
from sharder.ringspec.parsing import parse_ring
from sharder.ringspec.spec import RingSpec

if TYPE_CHECKING:
    from kubeio.models import Meta
    from kubeio.protocol import RingKeys
    from kubeio.rest.client import Client


@dataclass(frozen=True, slots=True)
class RingDocument:
    """*spec* is None if a sharder refuses the ring, and *refusal* says why. *document* is the whole ring."""

    spec: RingSpec | None
    refusal: str
    document: dict[str, Any]

    @property
    def is_deleted(self) -> bool:
        return bool(self.document["metadata"].get("deletionTimestamp"))

    def condition(self, kind: str) -> dict[str, Any]:
        """The condition *kind* of its status; empty if there is none."""
        conditions = (self.document.get("status") or {}).get("conditions") or []
        return next((each for each in conditions if each.get("type") == kind), {})


async def read_terms(client: Client, ring: str, *, timeout_s: float) -> RingDocument:
    """The ring as it stands in the cluster now. Raises KubeError."""
    document = await client.get(CONTROLLER_RINGS, ring, type=dict[str, Any], timeout_s=timeout_s)
    try:
        return RingDocument(parse_ring(document), "", document)
    except RingRefused as error:
        return RingDocument(None, "; ".join(str(problem) for problem in error.problems), document)


@dataclass(frozen=True, slots=True)
class NamespaceSelection:
    """Which namespaces a ring selects; *names* is None if all, or if they may not be read."""

    names: frozenset[str] | None = None

    def selects(self, namespace: str) -> bool:
        """Whether *namespace* (empty: of an object that has none) is selected."""
        return self.names is None or not namespace or namespace in self.names

    def wants(self, meta: Meta, keys: RingKeys) -> bool:
        """Whether an object is the ring's business: its namespace is selected, or it still has the ring's label."""
        return self.selects(meta.namespace) or keys.shard in meta.labels


async def read_selection(client: Client, ring: str, *, timeout_s: float) -> NamespaceSelection:
    """The namespaces that *ring* selects now. Raises KubeError, but not Forbidden."""
    spec = (await read_terms(client, ring, timeout_s=timeout_s)).spec
    if spec is None or spec.namespace_selector is None:
        return NamespaceSelection()
    names: set[str] = set()
    try:
        async for page in client.pages(NAMESPACES, metadata_only=True, timeout_s=timeout_s):
            names |= {obj.meta.name for obj in page.objects if spec.selects_namespace(obj.meta.labels)}
    except Forbidden:
        return NamespaceSelection()
    return NamespaceSelection(frozenset(names))


async def is_selected(client: Client, spec: RingSpec, namespace: str, *, timeout_s: float) -> bool:
    """Whether objects of *namespace* belong to the ring. Raises KubeError."""
    from kubeio.models import HasMeta

    if spec.namespace_selector is None or not namespace:
        return True
    found = await client.get(NAMESPACES, namespace, type=HasMeta, metadata_only=True, timeout_s=timeout_s)
    return spec.namespace_selector.matches(found.metadata.labels)
