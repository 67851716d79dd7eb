"""Guard and fence together, on a real API server under the real RBAC authorizer: replicas act as themselves and a life.

The guard's policies see such a request without its pod. The tests depend on each other and run in order.
"""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest
import yaml

from devcluster.real.real_plane import RealPlane
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from kubeio.resource import CRDS, LEASES, NAMESPACES
from ringleader.assets import website_crd
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from tests.chart.helm import Helm
from tests.chart.running_pods import STATEFULSETS, Pods, eventually
from tests.chart.websites import (
    CONTROLLER,
    KEYS,
    LEASES_OF_RING,
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


async def test_writes_of_reconciles_name_the_life_and_what_changes_labels_names_the_pod(
    plane: RealPlane,
) -> None:
    lives, pods = [], []
    for line in (plane.kubeconfig.parent / "audit.log").read_bytes().splitlines():
        event = json.loads(line)
        resource = event["objectRef"].get("resource")
        if event["user"]["username"] != ACCOUNT or resource not in ("websites", "configmaps"):
            continue
        if "dryRun" in event["requestURI"] or event["responseStatus"]["code"] >= 300:
            continue
        if acted_as := event.get("impersonatedUser"):
            assert acted_as["username"] == ACCOUNT
            lives += acted_as["extra"][KEYS.life_extra]
        else:
            pods += event["user"]["extra"]["authentication.kubernetes.io/pod-name"]
    assert len(lives) >= OBJECTS
    assert {member_of(life) for life in lives} >= set(MEMBERS)
    assert len(pods) >= OBJECTS


async def write_lease(client: IndependentClient, name: str) -> None:
    path = LEASES.path(namespace=LEASES_OF_RING, name=name)
    while True:
        lease = await client.get(LEASES, name, namespace=LEASES_OF_RING)
        try:
            await client.request("PUT", path, body=lease)
        except RequestFailedError as error:
            if error.status != HTTPStatus.CONFLICT:  # the replica renewed it in between
                raise
        else:
            return


async def test_a_replica_that_acts_as_itself_relabels_nothing_and_writes_no_lease(
    plane: RealPlane, admin: IndependentClient
) -> None:
    """The right to name any life must not make it another replica: such a request has no pod."""
    kubeconfig = await plane.service_account_kubeconfig(SYSTEM, "websites", pod="websites-0")
    (_, site), owner = next(iter((await owners_by_object(admin)).items()))
    labels = {"metadata": {"labels": {KEYS.shard: None}}}
    as_life = {f"Impersonate-Extra-{KEYS.life_extra.replace('/', '%2F')}": owner}
    for headers in ({"Impersonate-User": ACCOUNT}, {"Impersonate-User": ACCOUNT, **as_life}):
        async with IndependentClient(kubeconfig, headers=headers) as itself:
            with pytest.raises(RequestFailedError, match="ValidatingAdmissionPolicy"):
                await itself.merge(WEBSITES, site, labels, namespace=SITES)
            for label in ("websites-0-00000000", owner):
                made = {"metadata": {"generateName": "born-", "labels": {KEYS.shard: label}}}
                creating = itself.request("POST", f"/api/v1/namespaces/{SITES}/configmaps", body=made)
                if headers.keys() >= as_life.keys() and label == owner:
                    await creating  # as the controller behind a proxy does
                else:
                    with pytest.raises(RequestFailedError, match="ValidatingAdmissionPolicy"):
                        await creating
            with pytest.raises(RequestFailedError, match="writes the Leases of its own member only"):
                await write_lease(itself, owner)
