"""Guard and fence together, on a real API server under the real RBAC authorizer: replicas act as themselves with a name.

The guard's policies see such a request without its pod: they have to let it through all the same. The tests depend on
each other and run in order.
"""

from __future__ import annotations

import json

import pytest
import yaml

from devcluster.real.real_plane import RealPlane
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from kubeio.resource import CRDS, NAMESPACES
from ringleader.assets import website_crd
from ringleader.testing.client import Doc, IndependentClient
from tests.chart.helm import Helm
from tests.chart.running_pods import STATEFULSETS, Pods, eventually
from tests.chart.websites import (
    CONTROLLER,
    KEYS,
    MEMBERS,
    OBJECTS,
    RING,
    SITES,
    WEBSITES,
    is_served,
    member_of,
    owners_by_object,
    wait_converged,
    website,
)

pytestmark = [pytest.mark.real, pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]

CONTROLLERS = WORKLOAD_CONTROLLERS
RELEASE = "ringleader"
SYSTEM = "ringleader-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:websites"


def values(replicas: int = 3) -> Doc:
    return {
        "sharder": {"leaseDurationSeconds": 5},
        "rings": {KEYS.ring: RING},
        "controllers": {"websites": {**CONTROLLER, "fence": "policy", "replicas": replicas}},
        "fence": {"rings": {KEYS.ring: {"identity": "life"}}},
    }


async def test_a_release_with_guard_and_fence_converges(
    helm: Helm, admin: IndependentClient, pods: Pods
) -> None:
    await admin.create(CRDS, yaml.safe_load(website_crd().read_text()))
    await admin.create(NAMESPACES, {"metadata": {"name": SITES}})
    await eventually(lambda: is_served(admin, WEBSITES), within_s=30)
    for number in range(OBJECTS):
        await admin.create(WEBSITES, website(number), namespace=SITES)
    await helm.install(RELEASE, values(), namespace=SYSTEM)
    await pods.wait_rolled_out(STATEFULSETS, "websites", SYSTEM)
    await wait_converged(admin, pods)
    assert {member_of(owner) for owner in (await owners_by_object(admin)).values()} == set(MEMBERS)


async def test_a_replica_that_joins_is_handed_its_share(
    helm: Helm, admin: IndependentClient, pods: Pods
) -> None:
    await helm.upgrade(RELEASE, values(replicas=4), namespace=SYSTEM)
    await wait_converged(admin, pods, {*MEMBERS, "websites-3"})


async def test_every_write_of_a_replica_named_the_life_or_the_shard(plane: RealPlane) -> None:
    named = {"life": 0, "shard": 0}
    for line in (plane.kubeconfig.parent / "audit.log").read_bytes().splitlines():
        event = json.loads(line)
        resource = event["objectRef"].get("resource")
        if event["user"]["username"] != ACCOUNT or resource not in ("websites", "configmaps"):
            continue
        if "dryRun" in event["requestURI"] or event["responseStatus"]["code"] >= 300:
            continue
        acted_as = event["impersonatedUser"]
        assert acted_as["username"] == ACCOUNT
        (extra,) = acted_as["extra"].keys() & {KEYS.life_extra, KEYS.shard_extra}
        named["life" if extra == KEYS.life_extra else "shard"] += 1
    assert named["life"] > OBJECTS
    assert named["shard"] > 0
