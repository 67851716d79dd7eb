"""Proxies before an operator with every bad habit (operator/main.go): one joins, one is killed."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import SERVERS, ensure_binaries, find_binaries
from devcluster.real.recipes import Recipe
from kubeio.patch import MergePatch
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from proxy.alias import Alias
from tests.proxy.fleet import NAMESPACE, Fleet, beside, open_fleet

pytestmark = [pytest.mark.real, pytest.mark.slow]

KEYS = RingKeys("apps")
APPS = ApiResource("example.com", "v1", "apps", "App")
DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
NUMBER = 24
RING = {
    "apiVersion": "ringleader.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": KEYS.ring},
    "spec": {
        "leaseNamespace": "rings",
        "key": "Owner",
        "maxInFlight": 10_000,
        "resources": [
            {
                "group": "example.com",
                "resource": "apps",
                "controlledResources": [{"group": "apps", "resource": "deployments"}],
            }
        ],
    },
}
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "apps.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "App", "plural": "apps"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": ANYTHING, "status": ANYTHING},
                    }
                },
            }
        ],
    },
}
OPERATOR = Path(__file__).with_name("operator")
FLAGS = (
    *("--companions", "configmaps=apps.example.com"),
    *("--locks", "ugly-operator"),
)
LEAVES = ("--leaves", "deployments.apps")


@pytest.fixture(scope="module")
def operator() -> Path:
    """The operator, built once per version of its source."""
    source = hashlib.sha256((OPERATOR / "main.go").read_bytes()).hexdigest()[:8]
    recipe = Recipe("ugly-operator", source, OPERATOR, {"ugly-operator": "."}, linker_flags="-s -w")
    try:
        find_binaries(SERVERS, kubernetes_recipe())
        return ensure_binaries(["ugly-operator"], recipe)["ugly-operator"]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


class Line(msgspec.Struct, frozen=True):
    """One line of the operator's log; *at* in nanoseconds of the machine's clock."""

    what: str
    object: str
    pid: int
    at: int


def read_log(path: Path) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]


def overlaps(lines: list[Line], *, killed_at: int) -> list[tuple[Line, Line]]:
    """Reconciles of one object by two processes at a time. What the killed one was in ended at *killed_at*."""
    found, running = [], dict[str, Line]()
    last = {line.pid: line.at for line in lines}
    for line in lines:
        before = running.get(line.object)
        if line.what == "begin":
            if before is not None and before.pid != line.pid and not last[before.pid] <= killed_at < line.at:
                found.append((before, line))
            running[line.object] = line
        elif line.what == "end" and before is not None and before.pid == line.pid:
            del running[line.object]
    return found


class History:
    """Every version of every object of one resource that the administrator saw, and the names of what went."""

    def __init__(self, resource: ApiResource) -> None:
        self._resource = resource
        self.versions: list[dict[str, Any]] = []
        self.gone: list[str] = []

    async def watch(self, client: Client) -> None:
        path = self._resource.path(namespace=NAMESPACE)
        async with client.stream(path, query={"watch": "true"}) as lines:
            async for line in lines:
                event = msgspec.json.decode(line)
                self.versions.append(event["object"])
                if event["type"] == "DELETED":
                    self.gone.append(event["object"]["metadata"]["name"])


async def touch(client: Client, names: list[str]) -> None:
    """Change one object after the other, until cancelled."""
    for number in itertools.count():
        patch = MergePatch({"spec": {"touched": number}})
        await client.patch(APPS, names[number % len(names)], patch, namespace=NAMESPACE, type=bytes)
        await asyncio.sleep(0.1)


def test_an_overlap_is_seen() -> None:
    lines = [
        Line(*each)
        for each in (("begin", "a", 1, 1), ("begin", "b", 1, 2), ("begin", "a", 2, 3), ("end", "a", 1, 4))
    ]
    assert overlaps(lines, killed_at=9) == [(lines[0], lines[2])]
    assert overlaps([*lines[:1], *lines[2:3]], killed_at=2) == []


@pytest.mark.asyncio
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("habits", "flags"), [("BCDEF", FLAGS), ("BCEF", (*FLAGS, *LEAVES))])
async def test_an_operator_with_bad_habits_does_no_harm(
    operator: Path, tmp_path: Path, habits: str, flags: tuple[str, ...]
) -> None:
    """Leaves are seen before their roots: an operator that cleans up outside of Kubernetes must see none."""
    outside, log = tmp_path / "outside", tmp_path / "reconciles"
    outside.mkdir()
    command = [
        *(str(operator), "--kubeconfig", "{kubeconfig}", "--habits", habits, "--work", "100ms"),
        *("--log", str(log), "--outside", str(outside)),
    ]
    names = [f"app-{number}" for number in range(NUMBER)]
    deployments, companions = History(DEPLOYMENTS), History(CONFIG_MAPS)
    async with (
        open_fleet(RING, tmp_path, crds=[CRD]) as fleet,
        beside(deployments.watch(fleet.client), companions.watch(fleet.client)),
    ):
        await fleet.start_sharder()
        for member in ("operator-0", "operator-1"):
            await fleet.start_proxy(member, flags, command)
        for name in names:
            metadata = {"name": name, "labels": {"tier": "gold"}}
            document = {"apiVersion": "example.com/v1", "kind": "App", "metadata": metadata, "spec": {}}
            await fleet.client.create(APPS, document, namespace=NAMESPACE, type=bytes)
        await fleet.wait_for("a Deployment each", lambda: have(fleet, DEPLOYMENTS, NUMBER))
        async with beside(touch(fleet.client, names)):
            await fleet.wait_shared(APPS, "operator-0", "operator-1")
            await fleet.start_proxy("operator-2", flags, command)
            await fleet.wait_shared(APPS, "operator-0", "operator-1", "operator-2")
            await asyncio.sleep(15)  # each has begun anew
            fleet.kill("operator-0")
            killed_at = time.time_ns()
            await fleet.wait_shared(APPS, "operator-1", "operator-2")
            await asyncio.sleep(15)
        await fleet.wait_for("every change is worked on", lambda: are_worked_on(fleet))
        lines = read_log(log)
        assert len({line.pid for line in lines}) >= 5  # three, two of which began anew
        assert overlaps(lines, killed_at=killed_at) == []
        judge(deployments, companions)
        assert await have_one_owner(fleet)
        if "D" in habits:
            assert [line for line in lines if line.what == "not-found"] == []
            assert sorted(path.name for path in outside.iterdir()) == sorted(names)

        await fleet.client.delete(APPS, names[0], namespace=NAMESPACE)
        changed = MergePatch({"metadata": {"annotations": {"changed": "yes"}}})
        await fleet.client.patch(DEPLOYMENTS, names[0], changed, namespace=NAMESPACE, type=bytes)
        await fleet.wait_for(
            "what belongs to what went is cleaned up", lambda: is_cleaned(fleet, names[0], outside)
        )
    assert companions.gone == names[:1]
    assert not overlaps(read_log(log), killed_at=killed_at)


async def have(fleet: Fleet, resource: ApiResource, number: int) -> bool:
    return len(await fleet.objects(resource)) == number


async def are_worked_on(fleet: Fleet) -> bool:
    found = [msgspec.json.decode(each.raw) for each in await fleet.objects(APPS)]
    return all(app.get("status", {}).get("seen") == app["metadata"]["generation"] for app in found)


async def is_cleaned(fleet: Fleet, name: str, outside: Path) -> bool:
    orphan = next(each for each in await fleet.objects(DEPLOYMENTS) if each.meta.name == name)
    return (
        orphan.meta.annotations.get("orphan") == "yes"
        and not (outside / name).exists()
        and await have(fleet, CONFIG_MAPS, NUMBER - 1)
    )


def judge(deployments: History, companions: History) -> None:
    """Nothing is gone that a user made, and no version of a Deployment shows a handoff."""
    assert companions.gone == []  # C
    for version in deployments.versions:
        meta, template = version["metadata"], version["spec"]["template"]["metadata"]["labels"]
        alias = Alias(meta["labels"][KEYS.shard], KEYS).name  # F: at no time without an owner
        assert meta["labels"]["mine"] == "yes"
        assert template == {"app": meta["name"], "tier": "gold", KEYS.shard: alias, KEYS.visible: alias}  # E
        assert alias not in meta["labels"].values()
        assert "orphan" not in meta.get("annotations", {})  # B


async def have_one_owner(fleet: Fleet) -> bool:
    """F: parents and children."""
    owners = {each.meta.name: each.meta.labels[KEYS.shard] for each in await fleet.objects(APPS)}
    children = await fleet.objects(DEPLOYMENTS)
    return owners == {each.meta.name: each.meta.labels[KEYS.shard] for each in children}
