"""Kubeconfigs for tests."""

from __future__ import annotations

import base64
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ca:
    """A CA's certificate, and a client certificate with its key; all PEM."""

    pem: bytes
    certificate: bytes
    key: bytes


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def document(
    *,
    user: dict[str, object] | None = None,
    cluster: dict[str, object] | None = None,
    context: dict[str, object] | None = None,
    **changes: object,
) -> dict[str, object]:
    """A kubeconfig with one context `main`, of cluster `prod` and user `alice`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "prod", "user": "alice", **(context or {})}}],
        "clusters": [{"name": "prod", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "alice", "user": {"token": "secret"} if user is None else user}],
        **changes,
    }
