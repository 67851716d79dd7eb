"""Leases of one namespace: create, read, compare-and-swap, delete.

Owns no policy: the callers decide who may take a Lease, and when. Nothing is retried here.
"""

from __future__ import annotations

import builtins
from typing import Final

import msgspec

from kubeio.errors import InputError
from kubeio.models import Lease
from kubeio.resource import LEASES
from kubeio.rest.client import Client

_PAGE: Final = 500
decode_lease: Final = msgspec.json.Decoder(Lease).decode
"""Decodes a Lease from the bytes of a list or an event. Raises msgspec.ValidationError if it is none."""


class Leases:
    """Every call is bounded by *timeout_s* and raises the errors of `kubeio.rest.client`."""

    def __init__(self, client: Client, namespace: str, *, timeout_s: float = 10.0) -> None:
        self.namespace: Final = namespace
        self._client = client
        self._timeout_s = timeout_s

    async def create(self, lease: Lease) -> Lease:
        """The Lease as created. Raises AlreadyExists."""
        return await self._client.create(
            LEASES, lease, namespace=self.namespace, type=Lease, timeout_s=self._timeout_s
        )

    async def get(self, name: str) -> Lease:
        """The newest state, by a consistent read. Raises NotFound."""
        return await self._client.get(
            LEASES, name, namespace=self.namespace, type=Lease, timeout_s=self._timeout_s
        )

    async def list(self, label_selector: str = "") -> tuple[builtins.list[Lease], str]:
        """All that match, by a consistent read, and the version of that list."""
        leases: builtins.list[Lease] = []
        version = ""
        pages = self._client.pages(
            LEASES,
            namespace=self.namespace,
            label_selector=label_selector,
            limit=_PAGE,
            timeout_s=self._timeout_s,
        )
        async for page in pages:
            leases.extend(decode_lease(obj.raw) for obj in page.objects)
            version = version or page.resource_version
        return leases, version

    async def swap(self, lease: Lease) -> Lease:
        """Replace the very version that *lease* was read as. Raises Conflict if there is a newer one, or none any more.

        A real server answers 409, not 404, for a Lease that is gone: a PUT may create Leases, so it compares
        uid and version only. `get` tells the two cases apart.
        """
        if not lease.metadata.resource_version:
            raise InputError(
                "metadata.resourceVersion",
                "",
                "is missing: this would overwrite blindly",
                "read the Lease first",
            )
        return await self._client.replace(
            LEASES,
            lease.metadata.name,
            lease,
            namespace=self.namespace,
            type=Lease,
            timeout_s=self._timeout_s,
        )

    async def delete(self, lease: Lease) -> None:
        """Delete the very version that *lease* was read as. Raises Conflict, NotFound."""
        await self._client.delete(
            LEASES,
            lease.metadata.name,
            namespace=self.namespace,
            uid=lease.metadata.uid,
            resource_version=lease.metadata.resource_version,
            timeout_s=self._timeout_s,
        )
