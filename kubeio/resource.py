"""API resources and their paths on the server. Pure."""

from __future__ import annotations

import msgspec


class ApiResource(msgspec.Struct, frozen=True, gc=False):
    """One resource as the API serves it: `ApiResource("example.com", "v1", "websites", "Website")`."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`websites.example.com`; `configmaps` in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path of the collection, of one object (*name*), or of its *subresource*.

        An empty *namespace* means all namespaces, or none for a cluster-scoped resource.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        tail = f"/{name}" if name else ""
        sub = f"/{subresource}" if subresource else ""
        return f"{root}{where}/{self.plural}{tail}{sub}"


LEASES = ApiResource("coordination.k8s.io", "v1", "leases", "Lease")
NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = ApiResource("events.k8s.io", "v1", "events", "Event")
CRDS = ApiResource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
