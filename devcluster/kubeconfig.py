"""Writes kubeconfigs for the accounts of a control plane: one cluster, one user, one context each.

Holds no credentials.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

CONTEXT = "ringleader-devcluster"


def certificate_credentials(certificate_pem: bytes, private_pem: bytes) -> dict[str, str]:
    """The user entry of an account known by a client certificate."""
    return {
        "client-certificate-data": _base64(certificate_pem),
        "client-key-data": _base64(private_pem),
    }


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority_pem: bytes,
    user: str,
    credentials: dict[str, str],
    namespace: str = "default",
) -> Path:
    """Write a kubeconfig that only its owner can read, whole or not at all; returns *path*."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {"server": server, "certificate-authority-data": _base64(authority_pem)},
            }
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [
            {"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": namespace}}
        ],
        "current-context": CONTEXT,
    }
    scratch = path.with_name(f".{path.name}.new")
    scratch.touch(mode=0o600)
    scratch.write_text(json.dumps(document, indent=2) + "\n")  # JSON is YAML
    scratch.replace(path)
    return path


def _base64(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
