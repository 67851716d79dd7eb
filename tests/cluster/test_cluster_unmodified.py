"""An unmodified controller in an image that holds nothing but its static program: the chart's pod on a real node."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.image.oci import ImageConfig, write_archive
from devcluster.nodes import NodePlane
from devcluster.real.binaries import find_binaries, helm_recipe
from kubeio.protocol import RingKeys
from kubeio.resource import LEASES, NAMESPACES
from ringleader.testing.client import Doc, IndependentClient
from ringleader.testing.commands import CONFIGMAPS
from tests.chart.helm import Helm
from tests.cluster.pod_fleet import IMAGE, PODS, RELEASE, SYSTEM, eventually, is_ready

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

SOURCE = Path(__file__).parent / "signer"
CONTROLLER, TAG = "localhost/signer", "1"
KEYS = RingKeys("signer")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
WORK, NUMBER, WITHIN_S = "work", 20, 120.0


def values(replicas: int) -> Doc:
    repository, _, tag = IMAGE.partition(":")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "patch"]}
    return {
        "image": {"repository": repository, "tag": tag},
        "sharder": {"leaseDurationSeconds": 5},
        "rings": {
            KEYS.ring: {
                "settleSeconds": 1,
                "holdSeconds": 300,
                "maxInFlight": 10_000,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": WORK}},
                "resources": [{"resource": "configmaps"}],
            }
        },
        "controllers": {
            "signer": {
                "image": {"repository": CONTROLLER, "tag": TAG},
                "command": ["/signer"],
                "unmodified": {"readiness": "http://127.0.0.1:8081/readyz", "stopWithinSeconds": 5},
                "fence": "policy",
                "replicas": replicas,
                "leaseDurationSeconds": 5,
                "rules": [rule],
            }
        },
        "fence": {"rings": {KEYS.ring: {"identity": "life"}}},
    }


@pytest.fixture(scope="module")
def controller_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archive of the image: one file."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go; install it")
    folder = tmp_path_factory.mktemp("signer")
    (folder / "root").mkdir()
    subprocess.run(
        [go, "build", "-trimpath", "-o", folder / "root/signer", "."],
        cwd=SOURCE,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
        timeout=300,
    )
    config = ImageConfig(f"{CONTROLLER}:{TAG}", ("/signer",), user="65532:65532")
    return write_archive(folder / "signer.tar", [folder / "root"], config, epoch=0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def helm(plane: NodePlane, controller_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    await plane.import_image(controller_image)
    binary = find_binaries(["helm"], helm_recipe())["helm"]
    return Helm(binary, tmp_path_factory.mktemp("helm"), plane.kubeconfig)


def mounted(pod: Doc, path: str) -> list[str]:
    """Volumes that the controller has at *path*."""
    (container,) = pod["spec"]["containers"]
    return [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == path]


async def make(client: IndependentClient, stem: str) -> None:
    for number in range(NUMBER):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{stem}-{number}"}}
        await client.create(CONFIGMAPS, body, namespace=WORK)


async def wait_signed(client: IndependentClient, stem: str, *members: str) -> None:
    """Each ConfigMap called *stem* is signed by its owner, and *members* share them."""

    async def not_signed() -> str:
        leases = await client.list_all(LEASES, selector=f"{KEYS.ring_label}={KEYS.ring}")
        names = {one["metadata"]["name"]: one["metadata"]["annotations"][KEYS.member] for one in leases}
        found = [
            one["metadata"]
            for one in await client.list_all(CONFIGMAPS, namespace=WORK)
            if one["metadata"]["name"].startswith(stem)
        ]
        owners = [names.get(one.get("labels", {}).get(KEYS.shard, ""), "") for one in found]
        signed = [one.get("annotations", {}).get("signed-by", "") for one in found]
        is_so = len(found) == NUMBER and signed == owners and set(owners) == set(members)
        return "" if is_so else f"owners {Counter(owners)}, signed by {Counter(signed)}: {await told(client)}"

    await eventually(not_signed, within_s=WITHIN_S)


async def told(client: IndependentClient) -> list[object]:
    """What the kubelet says of the controllers' pods."""
    pods = await client.list_all(PODS, namespace=SYSTEM)
    fields = ("initContainerStatuses", "containerStatuses")
    return [[pod["metadata"]["name"], *(pod["status"].get(field) for field in fields)] for pod in pods]


async def wait_ready(client: IndependentClient, count: int) -> None:
    async def not_ready() -> str:
        pods = await client.list_all(PODS, namespace=SYSTEM)
        ready = [pod for pod in pods if pod["metadata"]["name"].startswith("signer-") and is_ready(pod)]
        return "" if len(ready) == count else f"{len(ready)} of {count} are ready: {await told(client)}"

    await eventually(not_ready, within_s=WITHIN_S)


async def test_a_static_program_in_an_empty_image_is_sharded(plane: NodePlane, helm: Helm) -> None:
    async with IndependentClient(plane.kubeconfig) as client:
        await client.create(NAMESPACES, {"metadata": {"name": WORK}})
        await helm.install(RELEASE, values(2), namespace=SYSTEM)
        await wait_ready(client, 2)
        for pod in await client.list_all(PODS, namespace=SYSTEM):
            if pod["metadata"]["name"].startswith("signer-"):
                assert mounted(pod, ACCOUNT) == ["ringleader-controller"], "the API server added no token"
        await make(client, "first")
        await wait_signed(client, "first", "signer-0", "signer-1")
        await helm.upgrade(RELEASE, values(1), namespace=SYSTEM)
        await make(client, "second")
        await wait_signed(client, "second", "signer-0")
        pods = await client.list_all(PODS, namespace=SYSTEM)
        restarts = [
            status["restartCount"] for pod in pods for status in pod["status"].get("containerStatuses", [])
        ]
        assert set(restarts) == {0}
