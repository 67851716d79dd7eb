"""Kubeconfigs for the clients of the embedded control plane: one file per account, readable by its owner only."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import yaml


def write_kubeconfig(path: Path, *, server: str, ca_pem: bytes, user: str, token: str) -> Path:
    """Write *path* (0600), whole or not at all."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "embedded",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(ca_pem).decode(),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": "embedded", "context": {"cluster": "embedded", "user": user, "namespace": "default"}}
        ],
        "current-context": "embedded",
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        yaml.safe_dump(document, file, sort_keys=False)
    return draft.replace(path)
