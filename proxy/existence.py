"""Consistent reads of whether an object of the ring's kinds exists: the informers show the shard's own only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubeio.errors import KubeError, NotFound
from kubeio.models import HasMeta, ObjectKey, OwnerReference
from kubeio.resource import ApiResource
from kubeio.rest.client import Client


class Existence:
    """Reads of *resources*, the ring's. What cannot be read counts as there."""

    def __init__(self, client: Client, resources: Iterable[ApiResource]) -> None:
        self._client: Final = client
        self._resources: Final = tuple(resources)

    async def is_gone(self, reference: OwnerReference, namespace: str) -> bool:
        """Whether the object that *reference* names in *namespace* does not exist; False for kinds beside the ring."""
        for resource in self._resources:
            if (resource.group, resource.kind) == reference.group_kind:
                key = ObjectKey(namespace if resource.namespaced else "", reference.name)
                return await self._uid(resource, key) not in (None, reference.uid)
        return False

    async def is_free(self, name: str, key: ObjectKey) -> bool:
        """Whether there is no object *key* of the resource *name*."""
        resource = next(found for found in self._resources if found.group_resource == name)
        return await self._uid(resource, key) == ""

    async def _uid(self, resource: ApiResource, key: ObjectKey) -> str | None:
        """Uid of the object; empty if there is none, None if that cannot be read."""
        try:
            found = await self._client.get(
                resource, key.name, namespace=key.namespace, type=HasMeta, metadata_only=True
            )
        except NotFound:
            return ""
        except KubeError:
            return None
        return found.metadata.uid
