"""The guard of a ring whose replicas may act as themselves with a life: such a request has no pod (docs/adr/0051).

The right to name a life is a right to name any. So labels and Leases are written by requests that name a pod.
"""

from __future__ import annotations

import pytest

from kubeio.resource import LEASES
from ringleader.testing.client import RequestFailedError
from tests.chart.guarded import (
    KEYS,
    LEASE_NAMESPACE,
    SITES,
    WEBSITES,
    Guarded,
    lease,
    values,
    website,
)

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

A, B = "web-0-aaaaaaaa", "web-1-bbbbbbbb"
VALUES = values(labelGuard={"mutate": "Never"}, fence={"rings": {KEYS.ring: {"identity": "life"}}})


async def test_the_guard_of_a_fenced_ring_wants_a_pod(guarded: Guarded) -> None:
    await guarded.by("sharder").create(
        WEBSITES, website("site", labels={KEYS.shard: A, KEYS.drain: B}), namespace=SITES
    )
    handed_over = {"metadata": {"labels": {KEYS.shard: B, KEYS.drain: None}}}
    without = guarded.by("a replica without a pod")
    with pytest.raises(RequestFailedError, match="a replica of the ring websites passes on or gives up"):
        await without.merge(WEBSITES, "site", handed_over, namespace=SITES)
    with pytest.raises(RequestFailedError, match="a replica of the ring websites passes on or gives up"):
        await without.create(WEBSITES, website("new", labels={KEYS.shard: A}), namespace=SITES)
    with pytest.raises(RequestFailedError, match="a replica writes the Leases of its own member only"):
        await without.create(LEASES, lease(A, member="web-0"), namespace=LEASE_NAMESPACE)
    shown = {"metadata": {"labels": {KEYS.visible: A}}}
    with pytest.raises(RequestFailedError, match="are written by the sharder and the replicas"):
        await guarded.by("tenant").merge(WEBSITES, "site", shown, namespace=SITES)
    await guarded.by("web-0").merge(WEBSITES, "site", shown, namespace=SITES)
    await guarded.by("web-0").merge(WEBSITES, "site", handed_over, namespace=SITES)
    await guarded.by("web-0").create(LEASES, lease(A, member="web-0"), namespace=LEASE_NAMESPACE)
