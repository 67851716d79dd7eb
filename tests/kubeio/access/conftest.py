"""Kubeconfigs on disk, and an environment that names none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
import yaml

from kubeio.access.cluster import Cluster, load_cluster
from tests.kubeio.access.kubeconfigs import Ca, document

Write = Callable[..., Path]
Load = Callable[..., Cluster]

_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "KUBECONFIG", "KUBERNETES_SERVICE_HOST")


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def ca() -> Ca:
    authority = trustme.CA()
    leaf = authority.issue_cert("alice")
    return Ca(
        authority.cert_pem.bytes(),
        b"".join(blob.bytes() for blob in leaf.cert_chain_pems),
        leaf.private_key_pem.bytes(),
    )


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a kubeconfig whose user and cluster have the given fields; its path."""

    def write_to(
        name: str = "config",
        *,
        user: dict[str, object] | None = None,
        cluster: dict[str, object] | None = None,
        context: dict[str, object] | None = None,
        **changes: object,
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(document(user=user, cluster=cluster, context=context, **changes)))
        return path

    return write_to


@pytest.fixture
def load(write: Write) -> Load:
    """The cluster that such a kubeconfig means."""
    return lambda **fields: load_cluster(kubeconfig=str(write(**fields)))
