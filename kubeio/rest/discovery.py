"""Discovery of a server's resources: read once, and again when a name is unknown.

Owns the cached catalog of one server. `kubeio.rest.catalog` interprets names.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from kubeio.errors import NotFound, ServerFailure
from kubeio.resource import ApiResource
from kubeio.rest.catalog import Catalog, Served, read_discovery
from kubeio.rest.client import Client

_ACCEPT: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Discovery:
    """Resources by the names that people use. Raises what `Client` raises, InputError for unknown names."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._catalog: Catalog | None = None

    async def resolve(self, text: str) -> ApiResource:
        """The resource that kubectl would take for *text*: plural, singular, kind or short name, any case.

        A group (`deployments.apps`) and a version (`deployments.apps/v1`, `deployments.v1.apps`) may follow.
        Raises: InputError naming the nearest names.
        """
        catalog, is_fresh = self._catalog, False
        if catalog is None:
            catalog, is_fresh = await self.refresh(), True
        found = catalog.find(text)
        if found is None and not is_fresh:
            catalog = await self.refresh()  # its CRD may be newer than our catalog
            found = catalog.find(text)
        if found is None:
            raise catalog.unknown(text, self._client.cluster.server)
        return found

    async def candidates(self, text: str) -> list[ApiResource]:
        """Every resource that *text* may mean; the first is the one that `resolve` gives. Raises like it."""
        await self.resolve(text)
        return [] if self._catalog is None else self._catalog.candidates(text)

    async def subresources(self, resource: ApiResource) -> tuple[str, ...]:
        """The subresources of a resource that `resolve` gave, such as `status` and `scale`."""
        catalog = self._catalog or await self.refresh()
        return next((served.subresources for served in catalog if served.resource == resource), ())

    def forget(self) -> None:
        """Drop the catalog: a resolved resource turned out to be gone. The next `resolve` asks the server anew."""
        self._catalog = None

    async def refresh(self) -> Catalog:
        """Ask the server anew."""
        core, named = await asyncio.gather(self._root("/api"), self._root("/apis"))
        self._catalog = Catalog([*core, *named])
        return self._catalog

    async def _root(self, path: str) -> list[Served]:
        try:
            answer = await self._client.request("GET", path, accept=_ACCEPT)
        except NotFound:
            return []
        try:
            return list(read_discovery(answer.body))
        except msgspec.DecodeError as error:
            attempted = f"GET {path} on {self._client.cluster.server}"
            message = f"no aggregated discovery, which servers have since Kubernetes 1.30 ({error})"
            raise ServerFailure(attempted, status=200, reason="UnexpectedAnswer", message=message) from error
