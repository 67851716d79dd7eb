"""Where a sharder looks: the whole cluster, or some namespaces, each with lists and watches of its own. Pure.

Without cluster rights the paths of every list and watch name a namespace; what is merged again is the reader's.
Read by everything that lists or watches objects of a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubeio.client import Client, Page
    from kubeio.resource import Resource


@dataclass(frozen=True, slots=True)
class Scope:
    """*names*: the only namespaces that are looked at; none: all of them, and what stands in none."""

    names: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """What `namespace=` of a request is, one request after the other; empty text means everywhere."""
        return self.names or ("",)

    async def pages(
        self, client: Client, resource: Resource, *, label_selector: str = "", limit: int
    ) -> AsyncIterator[Page]:
        """Metadata of every object of *resource* in here that *label_selector* fits. Raises KubeError."""
        for namespace in self.namespaces:
            pages = client.pages(
                resource, namespace=namespace, label_selector=label_selector, limit=limit, metadata_only=True
            )
            async for page in pages:
                yield page


EVERYWHERE: Final = Scope()
