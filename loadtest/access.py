"""`python -m loadtest.access`: who the load acts as, as one JSON line on stdout, for a process without asyncio.

Locust's processes run on gevent. They start this program as a short-lived child, so that kubeconfigs, exec plugins and
tokens that expire are read in one way everywhere.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Final

import msgspec

from kubeio.access.cluster import Cluster, load_cluster
from kubeio.errors import KubeError

CONTEXT_VARIABLE: Final = "RINGLEADER_LOADTEST_CONTEXT"
_WITHIN_S: Final = 60.0


class LoadAccess(msgspec.Struct, frozen=True):
    """How to reach the API server, and as whom. PEM texts are empty where there is none."""

    server: str
    headers: dict[str, str | list[str]]
    ca: str = ""
    certificate: str = ""
    key: str = ""
    is_insecure: bool = False
    proxy_host: str = ""
    proxy_port: int = 0

    def __repr__(self) -> str:
        return f"Access({self.server!r}, ...)"


class AccessFailed(Exception):
    """The credentials could not be had; the message says why."""


def read_access() -> LoadAccess:
    """The access of this process's KUBECONFIG, read by a child. Raises: AccessFailed."""
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.access"], capture_output=True, timeout=_WITHIN_S, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise AccessFailed(lines[-1] if lines else f"loadtest.access ended with {done.returncode}")
    return msgspec.json.decode(done.stdout, type=LoadAccess)


async def access_of(cluster: Cluster) -> LoadAccess:
    """What requests to *cluster* need now. Raises: KubeError."""
    credential = cluster.credentials.current() or await cluster.credentials.renewed()
    headers: dict[str, str | list[str]] = {}
    if credential.authorization:
        headers["Authorization"] = credential.authorization
    for name, value in cluster.impersonation:
        known = headers.get(name)
        headers[name] = value if known is None else [*([known] if isinstance(known, str) else known), value]
    pair = credential.certificate
    return LoadAccess(
        server=cluster.server,
        headers=headers,
        ca=cluster.trust.ca.decode(),
        certificate=pair.certificate.decode() if pair else "",
        key=pair.key.decode() if pair else "",
        is_insecure=cluster.trust.is_insecure,
        proxy_host=cluster.proxy.host if cluster.proxy else "",
        proxy_port=cluster.proxy.port if cluster.proxy else 0,
    )


def main() -> int:
    try:
        found = asyncio.run(access_of(load_cluster(context=os.environ.get(CONTEXT_VARIABLE) or None)))
    except KubeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
