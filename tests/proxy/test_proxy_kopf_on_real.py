"""An unmodified operator on kopf behind two proxies: objects are created, changed and deleted, one proxy is killed."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import SERVERS, find_binaries
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from tests.proxy.fleet import NAMESPACE, Fleet, open_fleet
from tests.proxy.test_proxy_operator_on_real import APPS, CRD

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
KOPF_RING = {
    "apiVersion": "ringleader.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "apps"},
    "spec": {
        "leaseNamespace": "rings",
        "key": "Owner",
        "maxInFlight": 10_000,
        "resources": [
            {"group": "example.com", "resource": "apps", "controlledResources": [{"resource": "configmaps"}]}
        ],
    },
}
OPERATOR = Path(__file__).with_name("kopf_operator.py")
COMMAND = (sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", str(OPERATOR))
CHANGED, UNTOUCHED, LATE = (
    [f"{what}-{number}" for number in range(8)] for what in ("changed", "untouched", "late")
)


class Child(msgspec.Struct):
    """A ConfigMap that the operator made."""

    data: dict[str, str]


class Calls:
    """What the handlers of all processes were called for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def read(self) -> list[tuple[str, str, int]]:
        lines = self._path.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=tuple[str, str, int]) for line in lines]

    def of(self, what: str) -> Counter[str]:
        return Counter(name for called, name, _ in self.read() if called == what)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return Calls(tmp_path / "calls")


async def test_handlers_are_called_once_for_each_change_and_never_for_a_move(
    calls: Calls, tmp_path: Path
) -> None:
    """kopf compares all labels and annotations with those that it handled last: a move must not count as a change."""
    async with open_fleet(KOPF_RING, tmp_path, crds=[CRD]) as fleet:
        await fleet.start_sharder()
        for member in ("operator-0", "operator-1"):
            await fleet.start_proxy(member, ("--stop-within", "5s"), COMMAND)
        await create(fleet, [*CHANGED, *UNTOUCHED])
        await fleet.wait_for("a child each", lambda: have_children(fleet, 16))
        await fleet.wait_shared(APPS, "operator-0", "operator-1")
        await change(fleet, CHANGED, number=1)
        await fleet.wait_for("all are changed", lambda: have_numbers(fleet, {"1": 8, "0": 8}))
        assert calls.of("update") == dict.fromkeys(CHANGED, 1)

        fleet.kill("operator-0")
        await change(fleet, CHANGED, number=2)
        await create(fleet, LATE)
        await fleet.wait_shared(APPS, "operator-1")
        await fleet.wait_for("no change is lost", lambda: have_numbers(fleet, {"2": 8, "0": 16}))
        for name in UNTOUCHED:
            await fleet.client.delete(APPS, name, namespace=NAMESPACE)
        await fleet.wait_for("the deleted are gone", lambda: have_apps(fleet, 16))
    assert calls.of("create") == dict.fromkeys([*CHANGED, *UNTOUCHED, *LATE], 1)
    assert calls.of("delete") == dict.fromkeys(UNTOUCHED, 1)
    assert set(calls.of("update")) == set(CHANGED)


async def create(fleet: Fleet, names: list[str]) -> None:
    for name in names:
        document = {"apiVersion": "example.com/v1", "kind": "App", "metadata": {"name": name}}
        await fleet.client.create(APPS, document | {"spec": {"number": 0}}, namespace=NAMESPACE, type=bytes)


async def change(fleet: Fleet, names: list[str], *, number: int) -> None:
    for name in names:
        patch = MergePatch({"spec": {"number": number}})
        await fleet.client.patch(APPS, name, patch, namespace=NAMESPACE, type=bytes)


async def have_apps(fleet: Fleet, number: int) -> bool:
    return len(await fleet.objects(APPS)) == number


async def have_children(fleet: Fleet, number: int) -> bool:
    found = await children(fleet)
    assert len(found) <= number
    return len(found) == number


async def have_numbers(fleet: Fleet, wanted: dict[str, int]) -> bool:
    return Counter(child.data["number"] for child in await children(fleet)) == wanted


async def children(fleet: Fleet) -> list[Child]:
    """ConfigMaps that an App controls."""
    found = await fleet.objects(CONFIG_MAPS)
    return [msgspec.json.decode(each.raw, type=Child) for each in found if each.meta.owner_references]
