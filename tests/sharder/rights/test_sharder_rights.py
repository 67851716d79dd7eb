"""Under the real RBAC authorizer: a ring for the admin of one namespace only, and a right that comes and goes.

The processes are those that people start; the accounts have certificates of their own and no other rights than those
that stand here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from devcluster.real import BinariesMissing, RealPlane, real_plane
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.errors import NotFound
from kubeio.models import HasMeta
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, EVENTS, LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.assets import ring_crd, website_controller, website_crd
from ringleader.testing.process import Process, start_process
from ringleader.testing.single_task import single_task
from tests.sharder.io.environment import CONFIGMAPS, KEYS, ROOT, SECRETS, SITES_WITH_PAGES, WEBSITES

pytestmark = [pytest.mark.real, pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = ApiResource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_BINDINGS = ApiResource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
ROLES = ApiResource(RBAC, "v1", "roles", "Role")
BINDINGS = ApiResource(RBAC, "v1", "rolebindings", "RoleBinding")
RING_SPEC: dict[str, Any] = {
    "leaseNamespace": "team",
    "resources": [SITES_WITH_PAGES],
    "settleSeconds": 0.5,
    "maxLeaseDurationSeconds": 6,
}


@dataclass
class Site:
    """The control plane, its administrator's client, and the processes that were started."""

    plane: RealPlane
    client: Client
    folder: Path
    stack: AsyncExitStack
    processes: dict[str, Process] = field(default_factory=dict)

    async def start(self, name: str, *arguments: str, user: str) -> Process:
        """A process of ours under the account *user*."""
        kubeconfig = await self.plane.kubeconfig_for(user, admin=False)
        process = await start_process(
            [sys.executable, "-P", "-m", *arguments, "--kubeconfig", str(kubeconfig)],
            name=name,
            log=self.log(name),
            environment={},
            clock=SystemClock(),
        )
        pending = asyncio.create_task(process.wait(), name=name)
        self.processes[name] = process
        self.stack.push_async_callback(_end, process, pending)
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    async def make(self, resource: ApiResource, document: dict[str, Any], *, namespace: str = "") -> HasMeta:
        described = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
        return await self.client.create(resource, described, namespace=namespace, type=HasMeta)

    async def site(self, name: str, *, namespace: str) -> None:
        await self.make(WEBSITES, {"metadata": {"name": name}, "spec": {"html": name}}, namespace=namespace)

    async def bind(self, user: str, role: str, *, namespace: str = "", kind: str = "ClusterRole") -> None:
        """Bind *role* to *user*, in one namespace or in all."""
        reference = {"apiGroup": RBAC, "kind": kind, "name": role}
        subject = {"apiGroup": RBAC, "kind": "User", "name": user}
        body = {"metadata": {"name": f"{user}-{role}"}, "roleRef": reference, "subjects": [subject]}
        await self.make(BINDINGS if namespace else CLUSTER_BINDINGS, body, namespace=namespace)

    async def owners(self, resource: ApiResource, namespace: str) -> dict[str, str]:
        return {
            item.meta.name: item.meta.labels.get(KEYS.shard, "")
            async for page in self.client.pages(resource, namespace=namespace, metadata_only=True)
            for item in page.objects
        }

    async def wait_for(self, holds: Any, what: str, *, within_s: float = 40.0) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not await holds():  # noqa: ASYNC110 - what is waited for happens in other processes
                    await asyncio.sleep(0.2)
        except TimeoutError:
            logs = "\n".join(f"--- {name}\n{self.log(name).read_text()[-3000:]}" for name in self.processes)
            pytest.fail(f"waited {within_s} s in vain for {what}\n{logs}")


async def _end(process: Process, pending: asyncio.Task[int]) -> None:
    if process.ended_at is None:
        process.kill()
    await pending


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPlane]:
    try:
        async with single_task(real_plane(tmp_path_factory.mktemp("plane"))) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@asynccontextmanager
async def open_site(plane: RealPlane, folder: Path) -> AsyncIterator[Site]:
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client, AsyncExitStack() as stack:
        yield Site(plane, client, folder, stack)


@pytest_asyncio.fixture(loop_scope="module")
async def site(plane: RealPlane, tmp_path: Path) -> AsyncIterator[Site]:
    """Namespaces team and other, Websites, and what the admin of a namespace may do with them by aggregation."""
    async with open_site(plane, tmp_path) as site:
        if not await _exists(site.client, CRDS, f"{WEBSITES.plural}.{WEBSITES.group}"):
            await site.client.create(CRDS, yaml.safe_load(website_crd().read_text()), type=bytes)
            for name in ("team", "second", "other"):
                await site.make(NAMESPACES, {"metadata": {"name": name}})
            resources = ["websites", "websites/status"]
            rule = {"apiGroups": [WEBSITES.group], "resources": resources, "verbs": ["*"]}
            labels = {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}
            await site.make(
                CLUSTER_ROLES, {"metadata": {"name": "websites-admin", "labels": labels}, "rules": [rule]}
            )
        await site.wait_for(lambda: _is_served(site.client, WEBSITES), "websites to be served")
        yield site


async def _exists(client: Client, resource: ApiResource, name: str, namespace: str = "") -> bool:
    try:
        await client.get(resource, name, namespace=namespace, type=bytes)
    except NotFound:
        return False
    return True


async def _is_served(client: Client, resource: ApiResource) -> bool:
    try:
        await client.list_page(resource, limit=1)
    except NotFound:
        return False
    return True


async def may(site: Site, user: str, verb: str, resource: ApiResource, namespace: str = "") -> bool:
    """What the authorizer says itself."""
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = await site.client.request("POST", path, body=msgspec.json.encode(review))
    return bool(msgspec.json.decode(answer.body)["status"]["allowed"])


async def test_the_admin_of_one_namespace_runs_a_ring_in_it(site: Site) -> None:
    """No ControllerRing resource, no ClusterRole: sharder and replicas with a RoleBinding to `admin` only."""
    await site.bind("ada", "admin", namespace="team")
    await site.wait_for(lambda: may(site, "ada", "patch", WEBSITES, "team"), "the roles to be aggregated")
    for resource in (WEBSITES, CONFIGMAPS, LEASES):
        assert not await may(site, "ada", "list", resource), "an account without cluster rights"
    await runs_a_ring(site, "team", sharder="ada", replicas="ada")


async def test_the_roles_of_the_documents_are_enough(site: Site) -> None:
    """Those of docs/operate.md, word for word."""
    page = (ROOT / "docs" / "operate.md").read_text().partition("## Without cluster rights")[2]
    blocks = [yaml.safe_load_all(text.partition("```")[0]) for text in page.split("```yaml")[1:3]]
    ring, sharder_role, replicas_role = [doc for block in blocks for doc in block]
    assert ring["spec"].items() <= RING_SPEC.items()
    for user, role in (("sharon", sharder_role), ("rita", replicas_role)):
        await site.make(ROLES, role, namespace="second")
        await site.bind(user, role["metadata"]["name"], namespace="second", kind="Role")
    await runs_a_ring(site, "second", sharder="sharon", replicas="rita")


def ring_file(site: Site, namespace: str) -> Path:
    ring = site.folder / "ring.yaml"
    spec = {**RING_SPEC, "leaseNamespace": namespace}
    head = {"apiVersion": "ringleader.dev/v1alpha1", "kind": "ControllerRing"}
    ring.write_text(yaml.safe_dump({**head, "metadata": {"name": "websites"}, "spec": spec}))
    return ring


async def runs_a_ring(site: Site, namespace: str, *, sharder: str, replicas: str) -> None:
    """From a ring in a file to its release, with all that lies between, and not one request too many."""
    ring = ring_file(site, namespace)
    for number in range(12):
        await site.site(f"site-{number}", namespace=namespace)
    await site.site(f"not-in-{namespace}", namespace="other")
    file = ("--ring-file", str(ring), "--namespaces", namespace, "--lease-duration", "3")
    await site.start("sharder", "ringleader", "sharder", *file, user=sharder)
    target = f"{website_controller()}:websites"
    for member in ("one", "two"):
        await site.start(member, "shard_controller", "run", target, *file, "--member", member, user=replicas)

    async def shared() -> bool:
        owners = await site.owners(WEBSITES, namespace)
        pages = await site.owners(CONFIGMAPS, namespace)
        members = {owner.rpartition("-")[0] for owner in owners.values()}
        return members == {"one", "two"} and all(pages.get(name) == owners[name] for name in owners)

    await site.wait_for(shared, "both replicas to work on what is theirs")
    assert (await site.owners(WEBSITES, "other"))[f"not-in-{namespace}"] == ""

    site.processes["one"].terminate()

    async def taken_over() -> bool:
        members = {o.rpartition("-")[0] for o in (await site.owners(WEBSITES, namespace)).values()}
        return members == {"two"}

    await site.wait_for(taken_over, "the other replica to have everything")
    site.processes["sharder"].terminate()
    site.processes["two"].terminate()
    await site.wait_for(lambda: _ended(site, "sharder", "two"), "both to stop")
    releasing = await site.start("release", "sharder", *file, "--release", user=sharder)
    await site.wait_for(lambda: _ended(site, "release"), "the ring to be given up")
    assert releasing.exit_code == 0, site.log("release").read_text()
    assert set((await site.owners(WEBSITES, namespace)).values()) == {""}
    for name in ("sharder", "one", "two", "release"):
        log = site.log(name).read_text().lower()
        refused = [line for line in log.splitlines() if "forbidden" in line]
        if not await may(site, sharder, "create", EVENTS, namespace):  # `admin` before Kubernetes 1.35
            unreported = [line for line in refused if "events cannot be written" not in line]
            assert len(refused) - len(unreported) <= 1, "it is reported once, and nothing depends on it"
            refused = unreported
        assert refused == [], f"{name} asked for what it may not:\n{log}"
        assert "traceback" not in log, log


async def _ended(site: Site, *names: str) -> bool:
    return all(site.processes[name].ended_at is not None for name in names)


async def test_an_account_without_a_right_on_leases_gets_the_missing_rule_and_ends(site: Site) -> None:
    ring = ring_file(site, "second")
    file = ("--ring-file", str(ring), "--namespaces", "second", "--log-format", "console")
    ended = await site.start("sharder", "sharder", *file, user="nobody")
    await site.wait_for(lambda: _ended(site, "sharder"), "the sharder to end")
    reported = site.log("sharder").read_text()
    assert ended.exit_code == 1, reported
    assert '"nobody" may not get leases.coordination.k8s.io in namespace second' in reported
    assert '{apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get"]}' in reported
    assert "Traceback" not in reported


def three_kinds_role(*, secrets: list[str]) -> dict[str, Any]:
    """What a sharder needs for rings over three resources, but for what is done to *secrets*."""
    every = ["get", "list", "watch", "patch"]
    return {
        "metadata": {"name": "sharder-of-three"},
        "rules": [
            {"apiGroups": ["ringleader.dev"], "resources": ["controllerrings"], "verbs": every},
            {"apiGroups": ["ringleader.dev"], "resources": ["controllerrings/status"], "verbs": ["patch"]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
            {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": every},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": every},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": secrets},
        ],
    }


@pytest.mark.parametrize("missing", ["patch", "list"])
async def test_a_right_missing_for_one_of_three_resources_stops_only_that_one(
    site: Site, missing: str
) -> None:
    await _prepare_cluster_ring(site)
    rights = [verb for verb in ("get", "list", "watch", "patch") if verb != missing]
    role = three_kinds_role(secrets=rights)
    await site.client.patch(
        CLUSTER_ROLES, "sharder-of-three", MergePatch({"rules": role["rules"]}), type=bytes
    )
    await site.wait_for(lambda: _not(may(site, "sam", missing, SECRETS)), "the right to be taken away")
    names = {kind: f"{missing}-{kind.plural}" for kind in (WEBSITES, CONFIGMAPS, SECRETS)}
    for kind, name in names.items():
        spec = {"spec": {"html": ""}} if kind is WEBSITES else {}
        await site.make(kind, {"metadata": {"name": name}, **spec}, namespace="other")
    name = f"sharder-{missing}"
    await site.start(
        name,
        *("sharder", "--lease-namespace", "other", "--lease-duration", "3", "--ring", "three"),
        user="sam",
    )
    shard = RingKeys("three").shard
    await _hold_a_lease(site)

    async def owner(kind: ApiResource) -> str:
        found = await site.client.get(kind, names[kind], namespace="other", type=HasMeta, metadata_only=True)
        return found.metadata.labels.get(shard, "")

    for kind in (WEBSITES, CONFIGMAPS):
        await site.wait_for(lambda k=kind: owner(k), f"{kind.plural} to be assigned")

    async def condition() -> dict[str, Any]:
        ring = await site.client.get(CONTROLLER_RINGS, "three", type=dict[str, Any])
        conditions = (ring.get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == "Ready"), {})

    async def reported() -> bool:
        ready = await condition()
        return ready.get("reason") == "Forbidden" and str(ready["message"]).startswith(f"{missing} secrets: ")

    await site.wait_for(reported, "the condition to name the right")
    message = str((await condition())["message"])
    assert f'"sam" may not {missing} secrets' in message
    assert f'{{apiGroups: [""], resources: ["secrets"], verbs: ["{missing}"]}}' in message
    assert await owner(SECRETS) == ""
    whole = three_kinds_role(secrets=["get", "list", "watch", "patch"])
    await site.client.patch(
        CLUSTER_ROLES, "sharder-of-three", MergePatch({"rules": whole["rules"]}), type=bytes
    )
    await site.wait_for(lambda: owner(SECRETS), "the secret to be assigned by itself")

    async def healed() -> bool:
        return (await condition()).get("status") == "True"

    await site.wait_for(healed, "the condition to go")
    site.processes[name].terminate()
    await site.wait_for(lambda: _ended(site, name), "the sharder to stop")


async def _not(answer: Any) -> bool:
    return not await answer


async def _prepare_cluster_ring(site: Site) -> None:
    """The ControllerRing resource, the ring `three`, and the account sam; once for all tests."""
    if await _exists(site.client, CRDS, f"{CONTROLLER_RINGS.plural}.{CONTROLLER_RINGS.group}"):
        return
    await site.client.create(CRDS, yaml.safe_load(ring_crd().read_text()), type=bytes)
    await site.wait_for(lambda: _is_served(site.client, CONTROLLER_RINGS), "rings to be served")
    await site.make(CLUSTER_ROLES, three_kinds_role(secrets=["get"]))
    await site.bind("sam", "sharder-of-three")
    kinds = (WEBSITES, CONFIGMAPS, SECRETS)
    resources = [{"group": kind.group, "resource": kind.plural} for kind in kinds]
    spec = {**RING_SPEC, "leaseNamespace": "other", "resources": resources}
    await site.make(CONTROLLER_RINGS, {"metadata": {"name": "three"}, "spec": spec})


async def _hold_a_lease(site: Site) -> None:
    """A shard that holds its Lease for the length of the test: who it is does not matter here."""
    keys = RingKeys("three")
    body = {
        "metadata": {
            "name": "member-0000000a",
            "labels": {keys.ring_label: "three"},
            "annotations": {keys.member: "member", keys.protocol: "v1", keys.synced: "true"},
        },
        "spec": {"holderIdentity": "member-0000000a", "leaseDurationSeconds": 6},
    }
    if not await _exists(site.client, LEASES, "member-0000000a", "other"):
        await site.make(LEASES, body, namespace="other")

    async def renew() -> None:
        for number in range(10_000):
            spec = {"spec": {"leaseTransitions": number}}
            await site.client.patch(
                LEASES, "member-0000000a", MergePatch(spec), namespace="other", type=bytes
            )
            await asyncio.sleep(1.0)

    renewing = asyncio.create_task(renew(), name="renew")

    async def stop() -> None:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)

    site.stack.push_async_callback(stop)
