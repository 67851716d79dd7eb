"""The key of the work queue: which object to reconcile."""

from __future__ import annotations

import msgspec

from kubeio.models import ObjectKey


class Request(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One object to reconcile: what the work queue holds. *resource* is `websites.example.com`."""

    resource: str
    key: ObjectKey

    def __str__(self) -> str:
        return f"{self.resource} {self.key}"
