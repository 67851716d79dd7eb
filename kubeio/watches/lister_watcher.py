"""Lists and watches of one resource under one selector, each a single request. Keeps no state between them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from kubeio.http.lines import Lines
from kubeio.resource import ApiResource
from kubeio.rest.client import PARTIAL, Client, Page


class ListerWatcher:
    """Pages and watches of the objects of *resource* that *namespace* and the selectors select."""

    def __init__(
        self,
        client: Client,
        resource: ApiResource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> None:
        self.resource: Final = resource
        self.attempted: Final = f"WATCH {resource.path(namespace=namespace)}"
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._metadata_only = metadata_only

    async def page(self, *, limit: int, continue_: str, not_older_than: str) -> Page:
        """One page of a list; the first is a consistent read, or as new as *not_older_than*."""
        version = "" if continue_ else not_older_than
        return await self._client.list_page(
            self.resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=limit,
            continue_=continue_,
            resource_version=version,
            resource_version_match="NotOlderThan" if version else "",
            metadata_only=self._metadata_only,
        )

    def watch(self, query: Mapping[str, str], *, lasts_s: int) -> AbstractAsyncContextManager[Lines]:
        """The lines of a watch with bookmarks that the server ends after *lasts_s*."""
        wanted = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(lasts_s),
            "labelSelector": self._label_selector,
            "fieldSelector": self._field_selector,
            **query,
        }
        return self._client.stream(
            self.resource.path(namespace=self._namespace),
            query={name: value for name, value in wanted.items() if value},
            accept=PARTIAL if self._metadata_only else "application/json",
        )
