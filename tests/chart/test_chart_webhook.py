"""The chart's webhook under its own rights: keys into its Secret, its configuration by name, its certificate on its
port. The one thing that cannot be shown here is the Service's way to the pod, because there is no kube-proxy.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from devcluster.real.real_plane import RealPlane
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, ApiResource
from ringleader.assets import ring_crd, website_crd
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.containers import port_of
from ringleader.testing.kubelet import PodProcesses
from tests.chart.helm import Helm
from tests.chart.running_pods import DEPLOYMENTS, Pods

pytestmark = [pytest.mark.real, pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]

CONTROLLERS = WORKLOAD_CONTROLLERS
SYSTEM = "ringleader-system"
NAME = "ringleader-sharder-webhook"
RING = "websites"
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
SERVICES = ApiResource("", "v1", "services", "Service")
SECRETS = ApiResource("", "v1", "secrets", "Secret")
CONFIGURATIONS = ApiResource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "X", namespaced=False
)
VALUES: Doc = {
    "sharder": {"webhook": {"enabled": True}, "leaseDurationSeconds": 5},
    "rings": {
        RING: {
            "assignAtAdmission": True,
            "resources": [{"group": "example.com", "resource": "websites"}],
        }
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kinds(admin: IndependentClient) -> None:
    for path in (ring_crd(), website_crd()):
        await admin.create_if_absent(CRDS, yaml.safe_load(path.read_text()))
    for resource in (CONTROLLER_RINGS, WEBSITES):
        await eventually(admin, resource)


async def eventually(admin: IndependentClient, resource: ApiResource, name: str = "") -> Doc:
    """The object, or the list, as soon as it is served."""
    path = resource.path(namespace=SYSTEM if resource.namespaced and name else "", name=name)
    async with asyncio.timeout(30):
        while True:
            try:
                return await admin.request("GET", path)
            except RequestFailedError as error:
                if error.status not in (404, 429, 503):  # not served yet
                    raise
            await asyncio.sleep(0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sharder(
    kinds: None,
    plane: RealPlane,
    pods: Pods,
    helm_binary: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> PodProcesses:
    """The chart, installed, and one pod of its Deployment."""
    directory = tmp_path_factory.mktemp("webhook")
    await Helm(helm_binary, directory, plane.kubeconfig).install("ringleader", VALUES, namespace=SYSTEM)
    await pods.wait_rolled_out(DEPLOYMENTS, "ringleader-sharder", SYSTEM)
    return pods.named("ringleader-sharder")[0]


async def test_the_sharder_fills_its_secret_and_writes_its_configuration_under_the_charts_rights(
    sharder: PodProcesses, admin: IndependentClient
) -> None:
    found = await eventually(admin, CONFIGURATIONS, f"ringleader-{RING}")
    secret = await admin.get(SECRETS, NAME, namespace=SYSTEM)
    (webhook,) = found["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
    assert webhook["clientConfig"]["service"] == {
        "namespace": SYSTEM,
        "name": NAME,
        "port": 443,
        "path": f"/assign/{RING}",
    }
    assert "forbidden" not in sharder.log().lower()


async def connected(
    address: str, port: int, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the pod, as soon as it has read the Secret: the leader, which filled it, may be another one."""
    async with asyncio.timeout(20):
        while True:
            with suppress(ConnectionResetError):
                name = f"{NAME}.{SYSTEM}.svc"
                return await asyncio.open_connection(address, port, ssl=context, server_hostname=name)
            await asyncio.sleep(0.2)


async def test_the_port_behind_the_service_answers_with_a_certificate_for_the_services_name(
    sharder: PodProcesses, admin: IndependentClient
) -> None:
    await eventually(admin, CONFIGURATIONS, f"ringleader-{RING}")
    secret = await admin.get(SECRETS, NAME, namespace=SYSTEM)
    service = await admin.get(SERVICES, NAME, namespace=SYSTEM)
    assert service["spec"]["selector"].items() <= sharder.doc["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    target = port_of(sharder.doc["spec"]["containers"][0], port["targetPort"])
    context = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
    reader, writer = await connected(sharder.address, target, context)
    request = {
        "uid": "1",
        "operation": "CREATE",
        "resource": {"group": "example.com", "version": "v1", "resource": "websites"},
        "namespace": "default",
        "object": {"metadata": {"name": "site"}},
    }
    body = json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()
    head = f"POST /assign/{RING} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}"
    writer.write(f"{head}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["response"] == {"uid": "1", "allowed": True}


async def test_an_object_can_be_created_although_the_service_leads_nowhere(
    sharder: PodProcesses, admin: IndependentClient
) -> None:
    await eventually(admin, CONFIGURATIONS, f"ringleader-{RING}")
    site = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": "site"},
        "spec": {"html": "x"},
    }
    await admin.create(WEBSITES, site, namespace="default")
