"""What the commands read of a cluster: rings, the lives in their Leases, objects by pages of metadata.

Owns the requests; what they mean is `rings`' and `picture`'s. Reads only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.clock import SystemClock
from kubeio.errors import InputError
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.suggestions import nearest
from ringleader.inspect.cluster.rings import Life, Ring, lives

PAGE: Final = 1000
"""Objects of one page: a request of this size takes an API server some 20 ms."""

if TYPE_CHECKING:
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client, Page


async def read_rings(client: Client, *, timeout_s: float) -> list[Ring]:
    """Every ring of the cluster, by name."""
    rings = []
    async for page in client.pages(CONTROLLER_RINGS, timeout_s=timeout_s):
        rings += [msgspec.json.decode(found.raw, type=Ring) for found in page.objects]
    return sorted(rings, key=lambda ring: ring.name)


def named_ring(rings: list[Ring], name: str) -> Ring:
    """The ring *name*. Raises: InputError naming the nearest ones."""
    for ring in rings:
        if ring.name == name:
            return ring
    known = nearest(name, [ring.name for ring in rings])
    raise InputError("RING", name, "is not a ring of this cluster", f"name another: {known}")


def named_main(ring: Ring, name: str) -> str:
    """The main resource of *ring* that *name* means: `plural.group`, or the plural. Raises: InputError."""
    fitting = (
        [name] if name in ring.mains else [main for main in ring.mains if main.partition(".")[0] == name]
    )
    if len(fitting) == 1:
        return fitting[0]
    problem = "is ambiguous" if fitting else "is not a main resource"
    raise InputError(
        "--resource", name, f"{problem} of ring {ring.name}", f"name one of {', '.join(ring.mains)}"
    )


async def read_lives(client: Client, ring: Ring) -> list[Life]:
    """Every life of *ring*, from a consistent read of its Leases."""
    from kubeio.leases.lease import Leases

    leases, _ = await Leases(client, ring.spec.lease_namespace).list(f"{ring.keys.ring_label}={ring.name}")
    return lives(ring, leases, now=SystemClock().wall())


async def read_ahead(
    client: Client,
    resource: ApiResource,
    *,
    namespace: str = "",
    label_selector: str = "",
    timeout_s: float,
) -> AsyncIterator[Page]:
    """Pages of metadata; the next one is asked for while the present one is worked off. Raises KubeError."""
    pages = aiter(
        client.pages(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            limit=PAGE,
            metadata_only=True,
            timeout_s=timeout_s,
        )
    )

    async def next_page() -> Page | None:
        return await anext(pages, None)

    asked = asyncio.create_task(next_page(), name="next page")
    try:
        while (page := await asked) is not None:
            asked = asyncio.create_task(next_page(), name="next page")
            await asyncio.sleep(0)  # the request goes out before the page is worked off
            yield page
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
