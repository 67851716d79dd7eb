"""`ringleader bundle`: everything that an issue needs, nothing secret, and what cannot be read costs only itself."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from devcluster.embedded import EmbeddedPlane
from devcluster.faults import Fault
from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing, RealPlane, real_plane
from kubeio.access.cluster import load_cluster
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from ringleader.check.environment import DEPLOYMENTS
from ringleader.check.hooks import CONFIGURATIONS
from ringleader.cluster.debug_endpoint import PODS
from ringleader.inspect.bundle import collect
from ringleader.inspect.bundle.collect import LAST_APPLIED, Collector, client_versions
from ringleader.inspect.bundle.command import archive
from ringleader.inspect.bundle.workloads import status_only
from ringleader.testing.single_task import single_task
from tests.ringleader.check.environment import RING, SITES, CheckEnvironment, open_environment
from tests.warm_python import warm_python

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
PLANTED = "planted-secret"
SECRETS = ApiResource("", "v1", "secrets", "Secret")
ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
Files = dict[str, bytes]


@pytest.fixture
async def env(new_plane: EmbeddedPlane) -> AsyncIterator[CheckEnvironment]:
    async with open_environment(new_plane) as env:
        yield env


async def run(kubeconfig: Path, *words: str) -> tuple[int, bytes, str]:
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", "bundle", *words, "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 100)
    return process.returncode or 0, out, err.decode()


def unpacked(data: bytes) -> Files:
    """Files of a bundle by their path in its folder, in the order in which they are packed."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        read = {member.name: tar.extractfile(member) for member in tar}
        return {name.partition("/")[2]: file.read() for name, file in read.items() if file is not None}


# -- pure -------------------------------------------------------------------------------------------------------


def test_the_same_files_give_the_same_bytes_by_name_in_one_folder() -> None:
    one = archive({"b.json": b"{}", "a/x.json": b"1"}, folder="bundle", at=NOW)
    assert one == archive({"a/x.json": b"1", "b.json": b"{}"}, folder="bundle", at=NOW)
    with tarfile.open(fileobj=io.BytesIO(one), mode="r:gz") as tar:
        assert tar.getnames() == ["bundle/a/x.json", "bundle/b.json"]
        assert {member.mtime for member in tar} == {int(NOW.timestamp())}


def test_of_a_pod_identity_node_images_and_status_are_kept() -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": PLANTED}
    container = {
        "name": "one",
        "image": "web:1",
        "args": [PLANTED],
        "env": [{"name": "TOKEN", "value": PLANTED}],
    }
    pod = {
        "metadata": {
            "name": "web-0",
            "namespace": "sites",
            "labels": {"app": "web"},
            "annotations": {"vault": PLANTED},
            "managedFields": [PLANTED],
        },
        "spec": {
            "nodeName": "n",
            "containers": [container],
            "initContainers": [{"name": "zero", "image": "i"}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "one",
                    "state": {"terminated": dict(ended)},
                    "lastState": {"terminated": dict(ended)},
                },
                {"name": "two", "state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}},
            ],
        },
    }
    kept = {"terminated": {"exitCode": 1, "reason": "Error"}}
    assert status_only(pod) == {
        "metadata": {"name": "web-0", "namespace": "sites", "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "images": {"zero": "i", "one": "web:1"}},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "one", "state": kept, "lastState": kept},
                {"name": "two", "state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}},
            ],
        },
    }


def test_of_a_deployment_replicas_images_and_status_are_kept() -> None:
    container = {"name": "one", "image": "web:1", "env": [{"name": "TOKEN", "value": PLANTED}]}
    workload = {
        "metadata": {"name": "web", "annotations": {LAST_APPLIED: PLANTED}},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": 2},
    }
    assert status_only(workload) == {
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "images": {"one": "web:1"}},
        "status": {"readyReplicas": 2},
    }


def test_versions_are_those_of_this_program_and_of_what_it_requires() -> None:
    found = client_versions()
    assert found["ringleader"] == found["packages"].get("ringleader", found["ringleader"])
    assert {"kubernetes", "msgspec", "typer"} <= found["packages"].keys()
    assert not {"matplotlib", "locust", "pytest"} & found["packages"].keys()


# -- on a control plane -------------------------------------------------------------------------------------------


async def test_it_has_a_file_for_each_thing_and_says_what_they_are(
    env: CheckEnvironment, tmp_path: Path
) -> None:
    path = tmp_path / "bundle.tar.gz"
    counted = MergePatch({"status": {"objects": SITES}})
    await env.client.patch(CONTROLLER_RINGS, "websites", counted, subresource="status", type=bytes)
    code, out, err = await run(env.plane.kubeconfig, "--out", str(path))
    assert (code, out.decode(), err) == (0, f"{path}\n", "")
    files = unpacked(path.read_bytes())
    assert list(files) == [
        "README.md",
        "check.json",
        "controllerrings.ringleader.dev/websites.json",
        "customresourcedefinitions.apiextensions.k8s.io/controllerrings.ringleader.dev.json",
        "errors.txt",
        "events.json",
        "leases.coordination.k8s.io/rings/one-00000001.json",
        "leases.coordination.k8s.io/rings/two-00000002.json",
        "leases.coordination.k8s.io/sites/ringleader-sharder.json",
        "status.json",
        "versions.json",
    ]
    assert files["errors.txt"] == b""
    readme = files["README.md"].decode()
    assert [name for name in {path.split("/")[0] for path in files} if name not in readme] == ["README.md"]
    found = {name: json.loads(data) for name, data in files.items() if name.endswith(".json")}
    ring = found["controllerrings.ringleader.dev/websites.json"]
    assert (ring["kind"], ring["spec"]["leaseNamespace"]) == ("ControllerRing", "rings")
    lease = found["leases.coordination.k8s.io/rings/one-00000001.json"]
    assert (lease["apiVersion"], lease["spec"]["holderIdentity"]) == (
        "coordination.k8s.io/v1",
        "one-00000001",
    )
    assert found["status.json"]["rings"][0]["objects"] == SITES
    assert {"owners", "sharder", "crd"} <= {each["check"] for each in found["check.json"]["findings"]}
    assert (
        found["versions.json"]["server"]["url"] == load_cluster(kubeconfig=str(env.plane.kubeconfig)).server
    )
    assert found["versions.json"]["server"]["gitVersion"].startswith("v1.")
    assert all(data.endswith(b"\n") for data in files.values() if data)


async def test_one_ring_is_alone_and_an_unknown_one_is_refused(env: CheckEnvironment) -> None:
    await env.make_ring("shops")
    code, out, err = await run(env.plane.kubeconfig, "shops", "--out", "-")
    assert (code, err) == (0, "")
    files = unpacked(out)
    assert [path for path in files if path.startswith("controllerrings")] == [
        "controllerrings.ringleader.dev/shops.json"
    ]
    assert [each["name"] for each in json.loads(files["status.json"])["rings"]] == ["shops"]
    code, out, err = await run(env.plane.kubeconfig, "website")
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert "did you mean websites" in err


async def test_a_part_that_cannot_be_read_is_an_error_beside_the_others(
    env: CheckEnvironment, new_plane: EmbeddedPlane
) -> None:
    for resource in ("events.events.k8s.io", "leases.coordination.k8s.io"):
        fault = Fault(what="error", code=503, verb="list", resource=resource, message="not today")
        await new_plane.faults.add(fault)
    code, out, err = await run(env.plane.kubeconfig, "--out", "-")
    files = unpacked(out)
    errors = files["errors.txt"].decode().splitlines()
    assert code == 0
    assert [line.split(":")[0] for line in errors] == ["election", f"Leases of {RING}", "Events", "status"]
    assert all("not today" in line for line in errors)
    assert err == "note: 4 parts could not be read, see errors.txt in the bundle\n"
    assert "events.json" not in files
    assert {"controllerrings.ringleader.dev/websites.json", "check.json"} <= files.keys()


async def test_a_fault_of_ours_in_one_part_does_not_cost_the_others(
    env: CheckEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(collect, "read_events", broken)
    monkeypatch.setattr(collect, "RECHECK_AFTER_S", 0.1)
    parts: list[str] = []
    collector = Collector(env.client, timeout_s=10, begin=parts.append)
    await collector.read(None, at=NOW, server="https://server")
    (error,) = collector.errors
    assert error.startswith("Events: Traceback")
    assert "RuntimeError: a fault of ours" in error
    assert collector.files["errors.txt"].decode() == f"{error}\n"
    assert {"status.json", "check.json"} <= collector.files.keys()
    assert parts[:2] == ["API server", "rings"]


# -- on a real control plane: workloads, secrets, rights ----------------------------------------------------------


@pytest.fixture
async def real_env(tmp_path: Path) -> AsyncIterator[CheckEnvironment]:
    try:
        async with (
            single_task(real_plane(tmp_path / "plane", controller_manager=False)) as plane,
            Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client,
        ):
            env = CheckEnvironment(plane, client)
            await env.furnish()
            yield env
            await env.close()
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def make(
    env: CheckEnvironment,
    resource: ApiResource,
    name: str,
    *,
    namespace: str = "",
    labels: dict[str, str],
    **body: Any,
) -> None:
    annotations = {LAST_APPLIED: PLANTED} if resource != CONTROLLER_RINGS else {}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **body}
    await env.client.create(resource, document, namespace=namespace, type=bytes)


def pod_spec() -> dict[str, Any]:
    env = [{"name": "TOKEN", "value": PLANTED}]
    return {
        "automountServiceAccountToken": False,
        "containers": [{"name": "one", "image": "web:1", "args": [f"--token={PLANTED}"], "env": env}],
    }


async def make_pod(env: CheckEnvironment, name: str, *, namespace: str, **labels: str) -> None:
    await make(env, PODS, name, namespace=namespace, labels=labels, spec=pod_spec())
    ended = {"exitCode": 1, "reason": "Error", "message": PLANTED, "startedAt": None, "finishedAt": None}
    container = {"name": "one", "image": "web:1", "imageID": "", "ready": False, "restartCount": 3}
    status = {"phase": "Running", "containerStatuses": [{**container, "lastState": {"terminated": ended}}]}
    patch = MergePatch({"status": status})
    await env.client.patch(PODS, name, patch, namespace=namespace, subresource="status", type=bytes)


async def make_deployment(
    env: CheckEnvironment, name: str, *, namespace: str, app: str, **labels: str
) -> None:
    template = {"metadata": {"labels": {"app": app}}, "spec": pod_spec()}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": app}}, "template": template}
    await make(env, DEPLOYMENTS, name, namespace=namespace, labels=labels, spec=spec)


async def furnish_workloads(env: CheckEnvironment) -> None:
    """Replicas beside their Leases, a leader and a standby, somebody else's pods, and secrets everywhere."""
    for namespace in ("rings", "sites"):
        await make(env, ACCOUNTS, "default", namespace=namespace, labels={})
        await make(env, SECRETS, "keys", namespace=namespace, labels={}, stringData={"tls.key": PLANTED})
        await make_pod(env, "other", namespace=namespace, app="other")
        await make_deployment(env, "other", namespace=namespace, app="other")
    for name in ("one", "two"):
        await make_pod(env, name, namespace="rings", app="web")
    await make_deployment(env, "web", namespace="rings", app="web")
    part_of = {"app.kubernetes.io/part-of": "ringleader"}
    await make_deployment(env, "sharder", namespace="sites", app="sharder", **part_of)
    for name in ("sharder-a", "sharder-b"):
        await make_pod(env, name, namespace="sites", app="sharder")
    annotations = {"metadata": {"annotations": {LAST_APPLIED: PLANTED}}}
    await env.client.patch(CONTROLLER_RINGS, RING, MergePatch(annotations), type=bytes)
    hook = {
        "name": "assign.ringleader.dev",
        "clientConfig": {"service": {"namespace": "sites", "name": "sharder"}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    await make(env, CONFIGURATIONS, f"ringleader-{RING}", labels={}, webhooks=[hook])


def credentials(plane: ControlPlane) -> list[str]:
    """What the kubeconfig's user shows to the server."""
    (user,) = yaml.safe_load(plane.kubeconfig.read_text())["users"]
    return [value for field, value in user["user"].items() if field in ("token", "client-key-data")]


@pytest.mark.real
async def test_sharders_and_replicas_are_there_and_nothing_secret(real_env: CheckEnvironment) -> None:
    await furnish_workloads(real_env)
    code, out, err = await run(real_env.plane.kubeconfig, "--out", "-")
    assert (code, err) == (0, "")
    files = unpacked(out)
    workloads = [path for path in files if path.startswith(("pods", "deployments", "stateful", "mutating"))]
    assert workloads == [
        "deployments.apps/rings/web.json",
        "deployments.apps/sites/sharder.json",
        f"mutatingwebhookconfigurations.admissionregistration.k8s.io/ringleader-{RING}.json",
        "pods/rings/one.json",
        "pods/rings/two.json",
        "pods/sites/sharder-a.json",
        "pods/sites/sharder-b.json",
    ]
    pod = json.loads(files["pods/sites/sharder-b.json"])
    assert (pod["kind"], pod["status"]["phase"], pod["spec"]["images"]) == (
        "Pod",
        "Running",
        {"one": "web:1"},
    )
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    assert not any(path.startswith("secrets") for path in files)
    for secret in (PLANTED, *credentials(real_env.plane)):
        assert [path for path, data in files.items() if secret.encode() in data] == []
    assert (
        msgspec.json.decode(files[f"controllerrings.ringleader.dev/{RING}.json"])["metadata"]["name"] == RING
    )


@pytest.mark.real
async def test_who_may_do_nothing_gets_a_bundle_that_names_the_rules(real_env: CheckEnvironment) -> None:
    assert isinstance(real_env.plane, RealPlane)
    kubeconfig = await real_env.plane.kubeconfig_for("ada", admin=False)
    code, out, err = await run(kubeconfig, "--out", "-")
    assert code == 0
    assert "could not be read, see errors.txt" in err
    files = unpacked(out)
    errors = files["errors.txt"].decode().splitlines()
    assert {line.split(":")[0] for line in errors} >= {"rings", "election", "definition", "Events", "status"}
    assert '{apiGroups: ["ringleader.dev"], resources: ["controllerrings"], verbs: ["list"]}' in errors[0]
    assert {"README.md", "errors.txt", "versions.json", "check.json"} == files.keys()
