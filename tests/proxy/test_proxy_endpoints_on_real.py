"""An unmodified Endpoints controller behind proxies on a real kube-apiserver: it cleans up by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import SERVERS, find_binaries
from kubeio.resource import ApiResource
from tests.proxy.fleet import NAMESPACE, open_fleet

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

SERVICES = ApiResource("", "v1", "services", "Service")
ENDPOINTS = ApiResource("", "v1", "endpoints", "Endpoints")
NUMBER = 12


def manager(program: Path, controllers: str) -> list[str]:
    return [
        str(program),
        "--kubeconfig={kubeconfig}",
        f"--controllers={controllers}",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


@pytest.fixture
def program() -> Path:
    """kube-controller-manager."""
    try:
        return find_binaries([*SERVERS, "kube-controller-manager"], kubernetes_recipe())[
            "kube-controller-manager"
        ]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest.mark.timeout(300)
async def test_the_endpoints_controller_deletes_nothing_of_another_shard(
    program: Path, tmp_path: Path
) -> None:
    """At each start it lists all Endpoints, and deletes by name those whose Service it does not see."""
    command = manager(program, "endpoints-controller")
    flags = ("--companions", "endpoints=services", "--locks", "kube-controller-manager")
    spec = {"leaseNamespace": "rings", "maxInFlight": 10_000, "resources": [{"resource": "services"}]}
    ring = {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": "services"},
        "spec": spec,
    }
    names = {f"web-{number}" for number in range(NUMBER)}
    uids: dict[str, set[str]] = {}
    async with open_fleet(ring, tmp_path) as fleet:

        async def have_endpoints() -> bool:
            for found in await fleet.objects(ENDPOINTS):
                uids.setdefault(found.meta.name, set()).add(found.meta.uid)
            return uids.keys() == names

        for name in sorted(names):
            body = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}}
            await fleet.client.create(SERVICES, body, namespace=NAMESPACE, type=bytes)
        await fleet.start_sharder()
        for member in ("manager-0", "manager-1"):
            await fleet.start_proxy(member, flags, command)
        await fleet.wait_for("Endpoints of all Services", have_endpoints)
        await fleet.start_proxy("manager-2", flags, command)
        await fleet.wait_shared(SERVICES, "manager-0", "manager-1", "manager-2")
        fleet.kill("manager-0")
        await fleet.wait_shared(SERVICES, "manager-1", "manager-2")
        await asyncio.sleep(12)  # each has begun anew
        assert await have_endpoints()
        assert {len(each) for each in uids.values()} == {1}

        await fleet.client.delete(SERVICES, "web-0", namespace=NAMESPACE)

        async def is_cleaned_up() -> bool:
            return "web-0" not in {found.meta.name for found in await fleet.objects(ENDPOINTS)}

        await fleet.wait_for("Endpoints go with their Service", is_cleaned_up)
