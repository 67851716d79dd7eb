"""Requests of a replica per minute, at rest and while something is wrong: no loop goes without a pause."""

from __future__ import annotations

import pytest

from devcluster.embedded import Fault
from kubeio.resource import CRDS
from tests.requests import requests_per_minute
from tests.shard_controller.bench import Bench

SITES = "websites.example.com"
WRONG: dict[str, tuple[Fault | str, float]] = {
    "rest": ("", 200),
    "resource-500": (Fault(what="error", resource=SITES, code=500), 400),
    "resource-403": (Fault(what="error", resource=SITES, code=403), 400),
    "writes-422": (Fault(what="error", resource=SITES, verb="patch", code=422), 900),
    "writes-409": (Fault(what="error", resource=SITES, verb="patch", code=409), 900),
    "children-403": (Fault(what="error", resource="configmaps", verb="write", code=403), 900),
    "everything-but-leases-503": (
        Fault(what="error", resource="controllerrings.ringleader.dev", code=503),
        400,
    ),
    "ring-definition-deleted": ("controllerrings.ringleader.dev", 400),
    "resource-deleted": ("websites.example.com", 400),
}


EVERYDAY = ("rest", "writes-409")
"""What `make test` tries; `make test-long` tries the others."""


@pytest.mark.parametrize(
    "wrong", [wrong if wrong in EVERYDAY else pytest.param(wrong, marks=pytest.mark.slow) for wrong in WRONG]
)
async def test_nothing_that_is_wrong_makes_a_replica_loop(bench: Bench, wrong: str) -> None:
    what, at_most = WRONG[wrong]
    shard = await bench.start("web-0", duration_s=6)
    for number in range(10):
        await bench.site(f"site-{number}", "publish hello\nready", owner=shard)
    await bench.until(lambda: bench.page("site-9"))
    if isinstance(what, Fault):
        what.user = "web-0"
        await bench.plane.faults.add(what)
        for number in range(10):
            await bench.edit(f"site-{number}", "publish again\nready")
    elif what:
        await bench.client.delete(CRDS, what)
    assert await requests_per_minute(bench.plane, "web-0") <= at_most
