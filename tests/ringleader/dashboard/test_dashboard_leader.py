"""The ways to the sharder that leads, on a real API server: kubectl as a child, the pod's address, and their failures.

No kubelet is there: Pods are objects whose status names this machine, and `kubectl` is `tests/.../kubectl.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, real_plane
from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock, micro_time
from kubeio.errors import AlreadyExists, InputError
from kubeio.patch import MergePatch
from kubeio.resource import LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.rest.reviews import Reviews
from ringleader.cluster.debug_endpoint import PODS
from ringleader.dashboard.endpoint import SharderLost
from ringleader.dashboard.leader import NoLeader, at_pod_address, find_leader
from ringleader.testing.single_task import single_task
from tests.addresses import own_address
from tests.ringleader.dashboard.processes import dashboard, failed
from tests.sharder.io.environment import SharderEnvironment, open_environment, wait_until
from tests.sharder.live.scenes import Scene, state_of
from tests.sharder.live.served import listening, published

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

STAND_IN = Path(__file__).with_name("kubectl.py")
ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = ApiResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
SYSTEM = "ringleader-system"
LEASE_RULE = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list"]}
POD_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
LIVE_RULE = {"nonResourceURLs": ["/debug/rings"], "verbs": ["get"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPlane]:
    try:
        async with single_task(
            real_plane(tmp_path_factory.mktemp("plane"), controller_manager=False)
        ) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(loop_scope="module")
async def env(plane: RealPlane) -> AsyncIterator[SharderEnvironment]:
    async with open_environment(plane) as env:
        await clear(env.client)
        for name in (SYSTEM, "elsewhere"):
            with suppress(AlreadyExists):
                await env.client.create(NAMESPACES, {"metadata": {"name": name}}, type=bytes)
        yield env


async def clear(client: Client) -> None:
    for resource in (PODS, LEASES):
        for namespace in (SYSTEM, "elsewhere"):
            page = await client.list_page(resource, namespace=namespace)
            for found in page.objects:
                await client.delete(resource, found.meta.name, namespace=namespace)


async def pod(
    client: Client,
    name: str,
    *,
    port: int = 8081,
    address: str = "",
    namespace: str = SYSTEM,
    phase: str = "Running",
) -> None:
    """A Pod as the chart makes it; *address*: it runs there, or ran there by its *phase*."""
    container = {
        "name": "sharder",
        "image": "registry.example.com/ringleader:1",
        "ports": [{"name": "webhook", "containerPort": 9443}, {"name": "probes", "containerPort": port}],
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"automountServiceAccountToken": False, "containers": [container]},
    }
    await client.create(PODS, body, namespace=namespace, type=bytes)
    if address:
        status = {"podIP": address, "podIPs": [{"ip": address}], "phase": phase}
        patch = MergePatch({"status": status})
        await client.patch(PODS, name, patch, namespace=namespace, subresource="status", type=bytes)


async def elect(client: Client, name: str, *, namespace: str = SYSTEM, seconds: int = 60) -> None:
    """The election Lease, renewed just now by *name*."""
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": seconds,
        "renewTime": micro_time(SystemClock().wall()),
        "acquireTime": micro_time(SystemClock().wall()),
    }
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "ringleader-sharder"},
        "spec": spec,
    }
    await client.create(LEASES, body, namespace=namespace, type=bytes)


async def grant(client: Client, name: str, subject: dict[str, str], *rules: dict[str, Any]) -> None:
    role = {
        "apiVersion": ROLES.api_version,
        "kind": ROLES.kind,
        "metadata": {"name": name},
        "rules": list(rules),
    }
    await client.create(ROLES, role, type=bytes)
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    await client.create(BINDINGS, binding, type=bytes)


def user(name: str) -> dict[str, str]:
    return {"apiGroup": BINDINGS.group, "kind": "User", "name": name}


class Kubectl:
    """The stand-in on a PATH of its own; *folder* has the ports of pods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "kubectl"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
        program.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "KUBECTL_STAND_IN": str(self.folder)}

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path)


async def test_kubectl_forwards_and_is_started_again_when_it_dies(
    env: SharderEnvironment, kubectl: Kubectl
) -> None:
    await elect(env.client, "sharder-1")
    await pod(env.client, "sharder-1", port=8087)
    kubeconfig = str(env.plane.kubeconfig)
    async with published(state_of(websites=Scene(["web-0"]))) as sharder:
        (kubectl.folder / "sharder-1").write_text(str(sharder.port))
        words = ("--kubeconfig", kubeconfig, "--as=ada", "--as-group=system:masters", "--as-group=people")
        async with dashboard(*words, env=kubectl.env) as running:
            (call,) = kubectl.calls()
            assert call["kubeconfig"] == kubeconfig
            assert call["words"] == [
                "port-forward",
                f"--namespace={SYSTEM}",
                "pod/sharder-1",
                ":8087",
                "--address=127.0.0.1",
                "--as=ada",
                "--as-group=system:masters",
                "--as-group=people",
            ]
            async with listening(running, "/events") as events:
                assert set((await events.until("snapshot"))["rings"]) == {"websites"}
                os.kill(call["pid"], signal.SIGKILL)
                assert (await events.until("disconnected"))["problem"]
                assert set((await events.until("snapshot"))["rings"]) == {"websites"}
            assert len(kubectl.calls()) == 2
            os.kill(kubectl.calls()[-1]["pid"], signal.SIGKILL)
            await wait_until(lambda: len(kubectl.calls()) == 3)  # without a viewer, too
            assert await running.interrupt(by=signal.SIGTERM) == (0, "")
    last = kubectl.calls()[-1]["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)


@asynccontextmanager
async def sharders(env: SharderEnvironment, folder: Path, *names: str) -> AsyncIterator[dict[str, Process]]:
    """Real sharders; the ports of their probes are in *folder*, by name."""
    running: dict[str, Process] = {}
    try:
        for name in names:
            command = [
                *(sys.executable, "-m", "sharder", "--kubeconfig", str(env.plane.kubeconfig)),
                *("--identity", name, "--lease-namespace", SYSTEM, "--lease-duration", "3s"),
                *("--health-probe-bind-address", "127.0.0.1:0", "--probes-port-file", str(folder / name)),
            ]
            running[name] = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
        yield running
    finally:
        for process in running.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_a_viewer_sees_the_next_leader_after_the_death_of_the_first(
    env: SharderEnvironment, kubectl: Kubectl
) -> None:
    await env.ring()
    await env.shard("a")
    names = {"sharder-1", "sharder-2"}
    for name in names:
        await pod(env.client, name)

    async def leader() -> str:
        with suppress(NoLeader):
            return (await find_leader(env.client, timeout_s=10)).name
        return ""

    async with sharders(env, kubectl.folder, *names) as running:
        await wait_until(leader, within_s=30)
        first = await leader()
        (second,) = names - {first}
        async with (
            dashboard("--kubeconfig", str(env.plane.kubeconfig), env=kubectl.env) as served,
            listening(served, "/events") as events,
        ):
            snapshot = await events.until("snapshot")
            assert (snapshot["sharder"], snapshot["leader"]) == (first, first)
            running[first].kill()
            assert (await events.until("disconnected"))["problem"]
            async with asyncio.timeout(60):
                snapshot = await events.until("snapshot")
            assert (snapshot["sharder"], snapshot["leader"]) == (second, second)
            assert "a" in snapshot["rings"]["websites"]["members"]
            assert (await served.interrupt())[0] == 0


async def test_a_standby_publishes_who_leads(env: SharderEnvironment, tmp_path: Path) -> None:
    await env.ring()
    await elect(env.client, "sharder-0")
    async with sharders(env, tmp_path, "sharder-1"):
        await wait_until((tmp_path / "sharder-1").exists, within_s=30)
        endpoint = f"--endpoint=http://127.0.0.1:{(tmp_path / 'sharder-1').read_text().strip()}"
        async with (
            dashboard(f"--kubeconfig={env.plane.kubeconfig}", endpoint) as served,
            listening(served, "/events") as events,
        ):
            note = (await events.until("snapshot"))["rings"].get("websites", {}).get("note", "")
            while "sharder-0 leads" not in note:
                changed = (await events.change()).get("rings", {}).get("websites", {})
                note = changed.get("note", note)
            assert note.startswith("this sharder stands by: sharder-0 leads")


async def test_failures_before_the_first_answer_are_one_message_with_the_remedy(
    env: SharderEnvironment, kubectl: Kubectl, tmp_path: Path
) -> None:
    admin = f"--kubeconfig={env.plane.kubeconfig}"
    remedy = "add --endpoint http://127.0.0.1:8081"
    await elect(env.client, "sharder-1")
    code, err = await failed(admin, env=kubectl.env)
    assert (code, err.count("\n")) == (2, 1)
    assert f"leader: 'sharder-1' leads, and namespace {SYSTEM} has no pod of that name" in err
    assert remedy in err
    await pod(env.client, "sharder-1")
    code, err = await failed(admin, env=kubectl.env)
    assert (code, err.count("\n")) == (1, 1)
    assert 'kubectl port-forward ended (1): Error from server (NotFound): pods "sharder-1" not found' in err
    assert remedy in err
    empty = tmp_path / "empty"
    empty.mkdir()
    code, err = await failed(admin, env={**os.environ, "PATH": str(empty)})
    assert (code, err.count("\n")) == (2, 1)
    assert "kubectl: '' is not on the PATH; install it, or forward" in err
    assert remedy in err


async def test_missing_rights_are_named_with_the_rule(env: SharderEnvironment, kubectl: Kubectl) -> None:
    await elect(env.client, "sharder-1")
    await pod(env.client, "sharder-1")
    nobody = await env.plane.kubeconfig_for("nobody", admin=False)
    code, err = await failed(f"--kubeconfig={nobody}", env=kubectl.env)
    assert (code, err.count("\n")) == (1, 1)
    assert "no right to list Leases, which say who leads; grant {apiGroups:" in err
    await grant(env.client, "leases-only", user("clerk"), LEASE_RULE)
    clerk = await env.plane.kubeconfig_for("clerk", admin=False)
    code, err = await failed(f"--kubeconfig={clerk}", env=kubectl.env)
    assert (code, err.count("\n")) == (1, 1)
    assert 'sharder-1 leads: "clerk" may not get pods in namespace ringleader-system' in err


@asynccontextmanager
async def in_the_cluster(plane: RealPlane, client: Client, name: str) -> AsyncIterator[Client]:
    """A client as a pod of the namespace has one, of the ServiceAccount *name*."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    with suppress(AlreadyExists):
        await client.create(ACCOUNTS, account, namespace=SYSTEM, type=bytes)
    kubeconfig = await plane.service_account_kubeconfig(SYSTEM, name)
    cluster = replace(load_cluster(kubeconfig=str(kubeconfig)), is_own=True, namespace=SYSTEM)
    async with Client(cluster) as own:
        yield own


async def test_in_the_cluster_the_pods_address_is_asked_with_the_accounts_token(
    plane: RealPlane, env: SharderEnvironment
) -> None:
    """A Lease of that name in another namespace, however new, gets no token."""
    address = own_address()
    async with AsyncExitStack() as stack:
        state = state_of(websites=Scene(["web-0"]))
        sharder = await stack.enter_async_context(
            published(state, reviews=Reviews(env.client), bind="0.0.0.0")
        )
        own = await stack.enter_async_context(in_the_cluster(plane, env.client, "dashboard"))
        poor = await stack.enter_async_context(in_the_cluster(plane, env.client, "poor"))
        await pod(env.client, "sharder-1", port=sharder.port, address=address)
        await elect(env.client, "sharder-1")
        await pod(env.client, "sharder-9", port=1, address=address, namespace="elsewhere")
        await elect(env.client, "sharder-9", namespace="elsewhere")
        poor_rules = (LEASE_RULE, POD_RULE)
        for name, rules in (("dashboard", (*poor_rules, LIVE_RULE)), ("poor", poor_rules)):
            account = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
            await grant(env.client, f"account-{name}", account, *rules)
        async with at_pod_address(own, timeout_s=10) as endpoint:
            await endpoint.check()
            assert endpoint.value == f"{SYSTEM}/sharder-1"
        async with at_pod_address(poor, timeout_s=10) as endpoint:
            with pytest.raises(InputError, match=r"does not admit this account \(403\).*/debug/rings"):
                await endpoint.check()


async def test_a_pod_that_has_ended_gets_no_token(plane: RealPlane, env: SharderEnvironment) -> None:
    """Its status keeps the address, which another pod may have by now."""
    await elect(env.client, "sharder-1")
    await pod(env.client, "sharder-1", address=own_address(), phase="Failed")
    account = {"kind": "ServiceAccount", "name": "early", "namespace": SYSTEM}
    await grant(env.client, "early", account, LEASE_RULE, POD_RULE)
    async with in_the_cluster(plane, env.client, "early") as own:
        with pytest.raises(SharderLost, match=f"pod {SYSTEM}/sharder-1 does not run"):
            await at_pod_address(own, timeout_s=10).__aenter__()


async def test_a_leader_that_does_not_renew_leads_no_more(env: SharderEnvironment) -> None:
    await elect(env.client, "sharder-1", seconds=1)
    await asyncio.sleep(4)
    with pytest.raises(NoLeader, match="no sharder leads, sharder-1 led last"):
        await find_leader(env.client, timeout_s=10)
