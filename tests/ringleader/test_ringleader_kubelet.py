"""The process kubelet under the real controllers of Deployments and StatefulSets: rolls, crash loops, probes, ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, real_plane
from devcluster.real.real_plane import RealPlane
from devcluster.real.servers import WORKLOAD_CONTROLLERS
from kubeio.access.cluster import load_cluster
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.container_process import KubeletTiming
from ringleader.testing.kubelet import ACCOUNTS, PODS, Kubelet, PodProcesses, process_kubelet
from ringleader.testing.single_task import single_task

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

NAMESPACE = "default"
WITHIN_S = 60.0
BACKOFF_S = 1.0
DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
BUDGETS = ApiResource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PROGRAM = """
import http.server, os, signal, sys
if os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if os.environ.get("CRASHES"):
    sys.exit(7)
print("started", *(f"{name}={os.environ[name]}" for name in sorted(os.environ)), flush=True)

class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        is_ill = self.path == "/livez" and os.environ.get("FALLS_ILL") and Handler.asked > 3
        self.send_response(500 if is_ill else 200)
        self.end_headers()
    def log_message(self, *_): pass

host, _, port = sys.argv[1].partition("=")[2].rpartition(":")
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPlane]:
    directory = tmp_path_factory.mktemp("plane")
    try:
        async with single_task(real_plane(directory, controllers=WORKLOAD_CONTROLLERS)) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(plane: RealPlane) -> AsyncIterator[IndependentClient]:
    async with IndependentClient(plane.kubeconfig) as client:
        await eventually(lambda: has_account(client))
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubelet(
    plane: RealPlane, admin: IndependentClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kubelet]:
    timing = KubeletTiming(probe_period_s=0.2, backoff_s=BACKOFF_S)
    async with single_task(
        process_kubelet(plane.kubeconfig, tmp_path_factory.mktemp("kubelet"), timing=timing)
    ) as kubelet:
        yield kubelet


async def has_account(client: IndependentClient) -> bool:
    """Whether the namespace has its default account: pods wait for it."""
    try:
        await client.get(ACCOUNTS, "default", namespace=NAMESPACE)
    except RequestFailedError as error:
        if error.status != 404:
            raise
        return False
    return True


async def eventually(is_so: Callable[[], Awaitable[bool]], *, within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not await is_so():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.1)


def workload(kind: ApiResource, name: str, replicas: int, spec: Doc, **environment: str) -> Doc:
    labels = {"app": name}
    container = {
        "name": "web",
        "image": "registry.example.com/web:1",
        "command": ["python", "-c", PROGRAM],
        "args": ["--bind=:8080"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "GREETING", "value": "hello $(POD)"},
            *({"name": key, "value": value} for key, value in environment.items()),
        ],
        "startupProbe": {"httpGet": {"path": "/startz", "port": "http"}, "failureThreshold": 100},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": 8080},
            "periodSeconds": 1,
            "failureThreshold": 2,
        },
    }
    pod = {
        "serviceAccountName": "default",
        "containers": [container],
        "terminationGracePeriodSeconds": 2,
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **spec,
        },
    }


async def pods_of(admin: IndependentClient, name: str) -> dict[str, Doc]:
    found = await admin.list_all(PODS, namespace=NAMESPACE, selector=f"app={name}")
    return {pod["metadata"]["name"]: pod for pod in found}


def is_ready(pod: Doc) -> bool:
    conditions = pod["status"].get("conditions", [])
    is_met = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
    return is_met and "deletionTimestamp" not in pod["metadata"]


async def all_ready(admin: IndependentClient, name: str, count: int) -> bool:
    found = (await pods_of(admin, name)).values()
    return len(found) == count and all(map(is_ready, found))


async def create(admin: IndependentClient, kind: ApiResource, body: Doc) -> None:
    await admin.create(kind, body, namespace=NAMESPACE)


async def roll(admin: IndependentClient, kind: ApiResource, name: str) -> None:
    """What `kubectl rollout restart` writes."""
    annotations = {"kubectl.kubernetes.io/restartedAt": "now"}
    patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    await admin.merge(kind, name, patch, namespace=NAMESPACE)


async def delete(admin: IndependentClient, kind: ApiResource, name: str) -> None:
    await admin.merge(kind, name, {"spec": {"replicas": 0}}, namespace=NAMESPACE)
    await eventually(lambda: all_ready(admin, name, 0))
    await admin.delete(kind, name, namespace=NAMESPACE)


async def test_a_statefulset_rolls_pod_by_pod_under_the_same_names(
    kubelet: Kubelet, admin: IndependentClient
) -> None:
    await create(admin, STATEFUL_SETS, workload(STATEFUL_SETS, "set", 2, {"serviceName": "set"}))
    await eventually(lambda: all_ready(admin, "set", 2))
    before = {name: pod["metadata"]["uid"] for name, pod in (await pods_of(admin, "set")).items()}
    assert sorted(before) == ["set-0", "set-1"]
    await roll(admin, STATEFUL_SETS, "set")

    async def is_rolled() -> bool:
        found = await pods_of(admin, "set")
        status = (await admin.get(STATEFUL_SETS, "set", namespace=NAMESPACE))["status"]
        is_new = all(pod["metadata"]["uid"] not in before.values() for pod in found.values())
        return is_new and status.get("updatedReplicas") == status.get("readyReplicas") == 2

    await eventually(is_rolled)
    ended = [pod.name for pod in kubelet.ended if pod.name.startswith("set-")]
    assert ended == ["set-1", "set-0"]
    await delete(admin, STATEFUL_SETS, "set")


async def test_a_deployment_rolls_within_max_unavailable(kubelet: Kubelet, admin: IndependentClient) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    await create(admin, DEPLOYMENTS, workload(DEPLOYMENTS, "web", 3, {"strategy": strategy}))
    await eventually(lambda: all_ready(admin, "web", 3))
    before = set(await pods_of(admin, "web"))
    await roll(admin, DEPLOYMENTS, "web")
    seen: list[int] = []

    async def is_rolled() -> bool:
        found = await pods_of(admin, "web")
        seen.append(sum(map(is_ready, found.values())))
        return not before & set(found) and await all_ready(admin, "web", 3)

    await eventually(is_rolled)
    assert min(seen) >= 2
    await delete(admin, DEPLOYMENTS, "web")


async def test_an_eviction_keeps_to_the_budget(kubelet: Kubelet, admin: IndependentClient) -> None:
    await create(admin, DEPLOYMENTS, workload(DEPLOYMENTS, "safe", 2, {}, STUBBORN="yes"))
    budget = {
        "metadata": {"name": "safe"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "safe"}}},
    }
    await create(admin, BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **budget})
    await eventually(lambda: all_ready(admin, "safe", 2))

    async def allows_one() -> bool:
        status = (await admin.get(BUDGETS, "safe", namespace=NAMESPACE)).get("status", {})
        return bool(status.get("disruptionsAllowed") == 1)

    await eventually(allows_one)
    first, second = await pods_of(admin, "safe")
    await evict(admin, first)
    with pytest.raises(RequestFailedError) as refused:
        await evict(admin, second)
    assert refused.value.status == 429
    await delete(admin, DEPLOYMENTS, "safe")


async def evict(admin: IndependentClient, pod: str) -> None:
    path = PODS.path(namespace=NAMESPACE, name=pod) + "/eviction"
    await admin.request(
        "POST", path, body={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    )


async def test_a_container_that_crashes_is_started_again_later_and_later(
    kubelet: Kubelet, admin: IndependentClient
) -> None:
    await create(admin, DEPLOYMENTS, workload(DEPLOYMENTS, "ill", 1, {}, CRASHES="yes"))
    began = asyncio.get_running_loop().time()

    async def has_crashed(times: int) -> bool:
        return any(status["restartCount"] >= times for status in await statuses(admin, "ill"))

    await eventually(lambda: has_crashed(3))
    assert asyncio.get_running_loop().time() - began >= BACKOFF_S * (1 + 2)
    (status,) = await statuses(admin, "ill")
    assert not status["ready"]
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert not any(map(is_ready, (await pods_of(admin, "ill")).values()))

    async def backs_off() -> bool:
        return any("CrashLoopBackOff" in str(status["state"]) for status in await statuses(admin, "ill"))

    await eventually(backs_off)
    await delete(admin, DEPLOYMENTS, "ill")


async def statuses(admin: IndependentClient, name: str) -> list[Doc]:
    found = (await pods_of(admin, name)).values()
    return [status for pod in found for status in pod["status"].get("containerStatuses", [])]


async def test_a_container_whose_liveness_probe_fails_is_started_again(
    kubelet: Kubelet, admin: IndependentClient
) -> None:
    await create(admin, DEPLOYMENTS, workload(DEPLOYMENTS, "tired", 1, {}, FALLS_ILL="yes"))

    ready_again: list[Doc] = []

    async def is_ready_again() -> bool:
        found = await statuses(admin, "tired")
        ready_again[:] = [status for status in found if status["restartCount"] and status["ready"]]
        return bool(ready_again)

    await eventually(is_ready_again)
    (again,) = ready_again
    assert again["state"]["running"]["startedAt"]
    last = again["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (0, "Completed")
    assert last["startedAt"] <= last["finishedAt"] <= again["state"]["running"]["startedAt"]
    await delete(admin, DEPLOYMENTS, "tired")


async def stubborn(kubelet: Kubelet, admin: IndependentClient, name: str) -> PodProcesses:
    """The ready pod of a Deployment *name* that ignores SIGTERM."""
    await create(admin, DEPLOYMENTS, workload(DEPLOYMENTS, name, 1, {}, STUBBORN="yes"))
    await eventually(lambda: all_ready(admin, name, 1))
    (pod_name,) = await pods_of(admin, name)
    pod = kubelet.named(pod_name)
    assert pod is not None
    return pod


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace_period(
    kubelet: Kubelet, admin: IndependentClient
) -> None:
    pod = await stubborn(kubelet, admin, "stubborn")
    began = asyncio.get_running_loop().time()
    await delete(admin, DEPLOYMENTS, "stubborn")
    assert asyncio.get_running_loop().time() - began >= 2
    (container,) = pod.containers
    assert container.child is not None
    assert await container.child.wait() == -signal.SIGKILL
    last = container.status()
    assert not last["ready"]
    assert last["state"]["terminated"]["exitCode"] == -signal.SIGKILL
    assert last["state"]["terminated"]["finishedAt"], "kube-apiserver refuses the status of a pod without it"


async def test_a_pod_whose_end_is_forced_is_either_there_or_ended(
    kubelet: Kubelet, admin: IndependentClient
) -> None:
    pod = await stubborn(kubelet, admin, "forced")
    path = PODS.path(namespace=NAMESPACE, name=pod.name)
    forced = asyncio.create_task(admin.request("DELETE", path, query={"gracePeriodSeconds": "0"}))
    async with asyncio.timeout(WITHIN_S):
        while pod not in kubelet.ended:
            assert pod in kubelet.pods.values()
            await asyncio.sleep(0)
    await forced
    assert kubelet.named(pod.name) is None
    await delete(admin, DEPLOYMENTS, "forced")


async def test_a_pod_knows_itself_and_acts_with_a_token_of_its_own(
    kubelet: Kubelet, admin: IndependentClient
) -> None:
    await create(admin, STATEFUL_SETS, workload(STATEFUL_SETS, "self", 1, {"serviceName": "self"}))
    await eventually(lambda: all_ready(admin, "self", 1))
    pod = kubelet.named("self-0")
    assert pod is not None
    assert "GREETING=hello self-0" in pod.log()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with Client(load_cluster(kubeconfig=str(pod.directory / "kubeconfig"))) as client:
        answer = await client.create(
            ApiResource(
                "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
            ),
            review,
            type=dict,
        )
    user = answer["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{NAMESPACE}:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["self-0"]
    await delete(admin, STATEFUL_SETS, "self")


async def test_a_pod_that_asks_for_what_is_not_there_waits_and_says_why(
    kubelet: Kubelet, admin: IndependentClient
) -> None:
    pod = workload(DEPLOYMENTS, "odd", 1, {})["spec"]["template"]["spec"]
    pod["containers"][0]["readinessProbe"] = {"exec": {"command": ["true"]}}
    await create(admin, PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd"}, "spec": pod})

    async def says_why() -> bool:
        status = (await admin.get(PODS, "odd", namespace=NAMESPACE))["status"]
        return "readinessProbe: only httpGet is supported" in status.get("message", "")

    await eventually(says_why)
    await admin.delete(PODS, "odd", namespace=NAMESPACE)

    async def is_gone() -> bool:
        return not [pod for pod in await admin.list_all(PODS) if pod["metadata"]["name"] == "odd"]

    await eventually(is_gone)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (7, "Failed")])
async def test_a_pod_that_runs_once_ends_in_a_phase_and_is_not_started_again(
    admin: IndependentClient, kubelet: Kubelet, code: int, phase: str
) -> None:
    name = f"once-{code}"
    command = ["python", "-c", f"import sys; print('ran'); sys.exit({code})"]
    container = {"name": "once", "image": "registry.example.com/web:1", "command": command}
    spec = {"serviceAccountName": "default", "restartPolicy": "Never", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await admin.create(PODS, body, namespace=NAMESPACE)

    async def is_over() -> bool:
        pod = await admin.get(PODS, name, namespace=NAMESPACE)
        return bool(pod.get("status", {}).get("phase") == phase)

    await eventually(is_over)
    (status,) = (await admin.get(PODS, name, namespace=NAMESPACE))["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == code
    running = kubelet.named(name)
    assert running is not None
    assert running.log().count("ran\n") == 1


async def test_an_init_container_fills_a_volume_before_the_others_start(
    kubelet: Kubelet, admin: IndependentClient
) -> None:
    """It is run again until it succeeds; its folder is the pod's own."""
    fill = (
        "import pathlib, sys; place = pathlib.Path(sys.argv[1].partition('=')[2]); "
        "again = (place / 'once').exists(); (place / 'once').touch(); "
        "(place / 'filled').write_text('by the first'); sys.exit(0 if again else 3)"
    )
    mount = {"name": "shared", "mountPath": "/shared"}
    show = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text())"
    pod = {
        "restartPolicy": "Never",
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "initContainers": [container("fill", ["python", "-c", fill, "--into=/shared"], mount)],
        "containers": [container("show", ["python", "-c", show, "/shared/filled"], mount)],
    }
    await admin.create(PODS, {"metadata": {"name": "filled"}, "spec": pod}, namespace=NAMESPACE)

    async def has_succeeded() -> bool:
        found = await admin.get(PODS, "filled", namespace=NAMESPACE)
        return bool(found.get("status", {}).get("phase") == "Succeeded")

    await eventually(has_succeeded)
    running = kubelet.named("filled")
    assert running is not None
    assert "by the first" in running.log()
    assert (running.directory / "volumes" / "shared" / "filled").exists()
    await admin.delete(PODS, "filled", namespace=NAMESPACE)


def container(name: str, command: list[str], mount: Doc) -> Doc:
    return {
        "name": name,
        "image": "registry.example.com/fill:1",
        "command": command,
        "volumeMounts": [mount],
    }
