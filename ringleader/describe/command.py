"""`ringleader describe KIND/NAME` and `describe ring NAME`. Exit code `WRONG` if something is off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubeio.errors import InputError
from kubeio.models import ObjectKey
from ringleader.cluster.debug_endpoint import check_url
from ringleader.cluster.objects import parse_target
from ringleader.cluster.reader import ClusterReader
from ringleader.describe import object_view
from ringleader.describe import ring as described_ring
from ringleader.describe.object import EndpointOptions, Found, read_found
from ringleader.describe.ring import RING_KINDS, RingDescription
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, print_document, print_line

if TYPE_CHECKING:
    from datetime import datetime

    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

WRONG: Final = 5
"""Exit code: the question was answered, and something is off."""


def run_describe(
    where: ConnectionOptions,
    target: str,
    name: str | None,
    *,
    namespace: str | None,
    ring: str | None,
    endpoint: EndpointOptions,
    form: Form | None,
) -> int:
    """The command. *target* and *name* are `KIND/NAME`, or `KIND` and `NAME`."""
    kind, name = parse_target(target if name is None else f"{target}/{name}")
    if kind.lower() in RING_KINDS:
        if namespace is not None or ring is not None:
            raise InputError(
                "-n" if namespace else "--ring", namespace or ring, "is not for a ring", "leave it out"
            )
        return _describe_ring(where, name, form)
    if endpoint.url is not None:
        check_url(endpoint.url)

    async def ask(client: Client, cluster: Cluster) -> Found:
        key = ObjectKey(namespace or cluster.namespace, name)
        reader = ClusterReader(client, timeout_s=where.timeout_s)
        return await read_found(reader, kind, key, ring_name=ring, endpoint=endpoint)

    found = connected(where, ask)
    described = object_view.describe(found)
    match form:
        case Form.JSON | Form.YAML:
            print_document(described, form=form)
        case Form.NAME:
            print_line(described.object)
        case _:
            for line in object_view.lines(described, now=found.state.snapshot.now):
                print_line(line)
    return WRONG if described.cause.is_wrong else 0


def _describe_ring(where: ConnectionOptions, name: str, form: Form | None) -> int:
    async def ask(client: Client, _: Cluster) -> tuple[RingDescription, datetime]:
        return await described_ring.read_ring(ClusterReader(client, timeout_s=where.timeout_s), name)

    described, now = connected(where, ask)
    match form:
        case Form.JSON | Form.YAML:
            print_document(described, form=form)
        case Form.NAME:
            print_line(f"controllerring.ringleader.dev/{described.ring}")
        case _:
            for line in described_ring.lines(described, now=now, is_wide=form is Form.WIDE):
                print_line(line)
    return WRONG if described.is_wrong else 0
