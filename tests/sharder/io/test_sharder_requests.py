"""Requests of a sharder per minute, at rest and while something is wrong: no loop goes without a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from devcluster.faults import Fault
from kubeio.resource import CRDS, LEASES
from tests.requests import requests_per_minute
from tests.sharder.io.environment import KEYS, SharderEnvironment

USER = "sharder-1"
SITES = "websites.example.com"
LEASES_OF = "leases.coordination.k8s.io"


def refuse(
    *, resource: str = "", verb: str = "", code: int
) -> Callable[[SharderEnvironment], Awaitable[object]]:
    """The API server refuses requests of the sharder."""
    return lambda env: env.plane.faults.add(
        Fault(what="error", user=USER, resource=resource, verb=verb, code=code)
    )


async def nothing(env: SharderEnvironment) -> None:
    """At rest."""


async def delete_leases(env: SharderEnvironment) -> None:
    """The lease namespace is gone: what was in it, and the right to create in it."""
    await env.plane.faults.add(Fault(what="error", user=USER, resource=LEASES_OF, verb="write", code=404))
    for shard in env.shards:
        await shard.fall_silent()
        await env.client.delete(LEASES, shard.name, namespace="default")


async def delete_ring_definition(env: SharderEnvironment) -> None:
    await env.client.delete(CRDS, "controllerrings.ringleader.dev")


async def delete_site_definition(env: SharderEnvironment) -> None:
    await env.client.delete(CRDS, "websites.example.com")


async def forge(env: SharderEnvironment) -> None:
    """Names that nobody has, and a policy against tombstones."""
    await env.plane.faults.add(Fault(what="error", user=USER, resource=LEASES_OF, verb="create", code=422))
    for number in range(30):
        await env.site(f"forged-{number}", labels={KEYS.shard: f"nobody-{number}"})


async def lock(env: SharderEnvironment) -> None:
    """Objects without an owner that no patch may change."""
    await env.plane.faults.add(Fault(what="error", user=USER, resource=SITES, verb="patch", code=422))
    await env.sites(20, first=100)


WRONG: dict[str, tuple[Callable[[SharderEnvironment], Awaitable[object]], float]] = {
    "rest": (nothing, 600),
    "lease-namespace-deleted": (delete_leases, 1500),
    "leases-403": (refuse(resource=LEASES_OF, code=403), 1500),
    "leases-500": (refuse(resource=LEASES_OF, code=500), 1500),
    "ring-definition-deleted": (delete_ring_definition, 900),
    "resource-deleted": (delete_site_definition, 900),
    "resource-500": (refuse(resource=SITES, code=500), 900),
    "resource-403": (refuse(resource=SITES, code=403), 900),
    "everything-503": (refuse(code=503), 900),
    "everything-429": (refuse(code=429), 900),
    "tombstones-422": (forge, 1800),
    "objects-422": (lock, 2400),
}


EVERYDAY = ("rest", "leases-500", "everything-503")
"""What `make test` tries; `make test-long` tries the others."""


@pytest.mark.parametrize(
    "wrong", [wrong if wrong in EVERYDAY else pytest.param(wrong, marks=pytest.mark.slow) for wrong in WRONG]
)
async def test_nothing_that_is_wrong_makes_a_sharder_loop(env: SharderEnvironment, wrong: str) -> None:
    do_it, at_most = WRONG[wrong]
    await env.ring()
    await env.join("abc")
    await env.sites(20)
    async with env.sharder(USER):
        await env.until_balanced()
        await asyncio.sleep(1)
        await do_it(env)
        assert await requests_per_minute(env.plane, USER) <= at_most
