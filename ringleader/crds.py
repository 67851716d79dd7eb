"""`ringleader crds`: prints Ringleader's CustomResourceDefinitions, or installs them.

Owns nothing on the cluster but what it is told to write; the definitions themselves are in `manifests/`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import yaml

from kubeio.resource import CRDS
from ringleader.assets import asset
from ringleader.options import ConnectionOptions, connected
from ringleader.output import print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client


def run_crds(where: ConnectionOptions, *, is_applied: bool) -> int:
    """The command."""
    if not is_applied:
        for text in _texts():
            sys.stdout.write(text)
        return 0
    for line in connected(
        where, lambda client, cluster: _apply_all(client, cluster, timeout_s=where.timeout_s)
    ):
        print_line(line)
    return 0


async def _apply_all(client: Client, cluster: Cluster, *, timeout_s: float) -> list[str]:
    lines = []
    for text in _texts():
        for crd in yaml.safe_load_all(text):
            lines.append(await apply_crd(client, crd, timeout_s=timeout_s))
    return lines


async def apply_crd(client: Client, crd: dict[str, Any], *, timeout_s: float = 30.0) -> str:
    """Create *crd*, or replace the one of its name; says which, as kubectl does."""
    from kubeio.errors import AlreadyExists
    from kubeio.models import HasMeta

    name = crd["metadata"]["name"]
    told = f"customresourcedefinition.apiextensions.k8s.io/{name}"
    try:
        await client.create(CRDS, crd, type=HasMeta, timeout_s=timeout_s)
    except AlreadyExists:
        there = await client.get(CRDS, name, type=HasMeta, timeout_s=timeout_s)
        crd["metadata"]["resourceVersion"] = there.metadata.resource_version
        await client.replace(CRDS, name, crd, type=HasMeta, timeout_s=timeout_s)
        return f"{told} configured"
    return f"{told} created"


def _texts() -> Iterator[str]:
    for path in sorted(asset("manifests", "crds").glob("*.yaml")):
        yield path.read_text()
