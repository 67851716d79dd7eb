"""Scope of a sharder's lists and watches: the whole cluster, or some namespaces, each with its own. Pure.

Without cluster permissions the path of every list and watch names a namespace; the reader merges the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sharder.errors import FieldProblem, RingRefused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client, Page


@dataclass(frozen=True, slots=True)
class Scope:
    """*names*: the only namespaces that are read; none: all of them, and cluster-scoped objects."""

    names: tuple[str, ...] = ()

    former: tuple[str, ...] = ()
    """Namespaces once worked and no longer named; read as well, so that their objects are released."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Values of `namespace=`, one for each request; empty text means everywhere."""
        return (*self.names, *self.former) or ("",)

    def check(self, ring: str, resources: Iterable[ApiResource]) -> None:
        """Raises RingRefused if one of *resources* has no namespaces, and only some are read."""
        problems = [
            FieldProblem(
                "spec.resources",
                resource.group_resource,
                "is cluster-scoped: no namespace holds its objects",
                "take it out, or start the sharder without --namespaces, with the rights of a ClusterRole",
            )
            for resource in resources
            if self.names and not resource.namespaced
        ]
        if problems:
            raise RingRefused(ring, problems)

    async def pages(
        self, client: Client, resource: ApiResource, *, label_selector: str = "", limit: int
    ) -> AsyncGenerator[Page, None]:
        """Metadata of every object of *resource* in here that *label_selector* fits. Raises KubeError."""
        for namespace in self.namespaces:
            pages = client.pages(
                resource, namespace=namespace, label_selector=label_selector, limit=limit, metadata_only=True
            )
            async for page in pages:
                yield page


EVERYWHERE: Final = Scope()
