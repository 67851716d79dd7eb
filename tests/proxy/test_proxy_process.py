"""The proxy as a process: its probes and metrics, and the end of one whose StatefulSet is scaled down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from devcluster.embedded import EmbeddedPlane, Fault
from devcluster.listening import bound_socket
from kubeio.program.yaml_file import read_document
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, LEASES, NAMESPACES, ApiResource
from ringleader.assets import ring_crd
from ringleader.testing.client import IndependentClient
from tests.stateful_sets import scale, serve_stateful_sets

pytestmark = pytest.mark.fleet

KEYS = RingKeys("maps")
MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
NUMBER, WITHIN_S, LEASE_S = 12, 60.0, 5
RING = {
    "apiVersion": "ringleader.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": KEYS.ring},
    "spec": {
        "leaseNamespace": "rings",
        "holdSeconds": 300,
        "maxInFlight": 10_000,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}},
        "resources": [{"resource": "configmaps"}],
    },
}


def children_of(parent: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def free_port() -> int:
    with bound_socket(0) as free:
        return int(free.getsockname()[1])


class Proxies:
    """A sharder and proxies before controllers that do nothing but say that they are ready."""

    def __init__(self, plane: EmbeddedPlane, client: IndependentClient, folder: Path) -> None:
        self.client = client
        self.plane = plane
        self.ports: dict[str, int] = {}
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self._folder = folder

    async def start(self, name: str, *words: str, **environment: str) -> None:
        with (self._folder / f"{name}.log").open("w") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *words,
                env={**os.environ, "KUBECONFIG": str(self.plane.kubeconfig), **environment},
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
            )

    async def start_proxy(self, member: str, *, readiness: str = "/") -> None:
        self.ports[member], controller = free_port(), str(free_port())
        await self.start(
            member,
            *(
                "proxy",
                "--ring",
                KEYS.ring,
                "--member",
                member,
                "--hold",
                "--fence=none",
                "--lease-duration",
                f"{LEASE_S}s",
            ),
            *("--termination-grace-period", "60s"),
            *("--health-probe-bind-address", f"127.0.0.1:{self.ports[member]}"),
            *("--controller-readiness", f"http://127.0.0.1:{controller}{readiness}"),
            *("--", sys.executable, "-m", "http.server", "--bind", "127.0.0.1", controller),
            POD_NAMESPACE="web",
            POD_NAME=member,
        )

    async def page(self, member: str, path: str) -> tuple[int, str]:
        """Status and text; 0 while it is not served."""
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"http://127.0.0.1:{self.ports[member]}{path}") as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientError:
                return 0, ""

    async def owners(self) -> Counter[str]:
        """ConfigMaps of each member."""
        leases = await self.client.list_all(LEASES, selector=f"{KEYS.ring_label}={KEYS.ring}")
        members = {each["metadata"]["name"]: each["metadata"]["annotations"][KEYS.member] for each in leases}
        found = await self.client.list_all(MAPS, namespace="web")
        shards = [each["metadata"].get("labels", {}).get(KEYS.shard, "") for each in found]
        return Counter(members.get(shard, "") for shard in shards)

    async def wait_for(self, holds: Callable[[], Awaitable[bool]], within_s: float = WITHIN_S) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not await holds():  # noqa: ASYNC110 - it happens in other processes
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail("\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self.processes))

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    async def wait_shared(self, *members: str) -> None:
        async def is_shared() -> bool:
            owners = await self.owners()
            return owners.keys() == set(members) and owners.total() == NUMBER

        await self.wait_for(is_shared)

    async def wait_ready(self, member: str) -> None:
        async def is_ready() -> bool:
            return (await self.page(member, "/readyz"))[0] == 200

        await self.wait_for(is_ready)

    async def wait_visible(self) -> None:
        """Wait until a controller may see every ConfigMap: no restart is due."""

        async def is_visible() -> bool:
            return len(await self.client.list_all(MAPS, namespace="web", selector=KEYS.visible)) == NUMBER

        await self.wait_for(is_visible)

    async def stop(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest_asyncio.fixture
async def proxies(new_plane: EmbeddedPlane, tmp_path: Path) -> AsyncIterator[Proxies]:
    async with IndependentClient(new_plane.kubeconfig) as client:
        await client.create(CRDS, read_document("definition", ring_crd()))
        for name in ("rings", "web"):
            await client.create(NAMESPACES, {"metadata": {"name": name}})
        await serve_stateful_sets(client)
        await client.create(CONTROLLER_RINGS, RING)
        for number in range(NUMBER):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"map-{number}"}}
            await client.create(MAPS, body, namespace="web")
        proxies = Proxies(new_plane, client, tmp_path)
        try:
            await proxies.start("sharder", "sharder", "--lease-duration", "5s", "--lease-namespace", "rings")
            yield proxies
        finally:
            await proxies.stop()


async def test_a_proxy_is_ready_with_its_controller_and_counts_what_it_has(proxies: Proxies) -> None:
    await proxies.start_proxy("web-0")
    await proxies.wait_shared("web-0")
    await proxies.wait_ready("web-0")
    status, metrics = await proxies.page("web-0", "/metrics")
    assert status == 200
    assert f'ringleader_shard_objects{{controller="maps",resource="configmaps"}} {NUMBER}.0' in metrics
    assert 'ringleader_shard_info{controller="maps",member="web-0",ring="maps",version="' in metrics
    assert 'ringleader_shard_lease_duration_seconds{controller="maps"} 5.0' in metrics
    assert 'ringleader_proxy_restart_seconds_count{cause="handoff",controller="maps"} ' in metrics


async def test_a_proxy_whose_controller_is_not_ready_is_not_ready(proxies: Proxies) -> None:
    await proxies.start_proxy("web-0", readiness="/missing")

    async def is_answered() -> bool:
        return "the controller is not ready: it answered 404" in (await proxies.page("web-0", "/readyz"))[1]

    await proxies.wait_for(is_answered)
    assert (await proxies.page("web-0", "/readyz"))[0] == 503
    assert (await proxies.page("web-0", "/livez"))[0] == 200


async def test_a_controller_is_down_while_its_lease_cannot_be_renewed(proxies: Proxies) -> None:
    await proxies.start_proxy("web-0")
    await proxies.wait_ready("web-0")
    await proxies.plane.faults.add(Fault(what="error", user_agent="ringleader-heartbeat", code=503))

    async def is_down() -> bool:
        return "again_in_s" in proxies.log("web-0")

    await proxies.wait_for(is_down, within_s=4 * LEASE_S)
    assert "the shard's Lease is too old" in (await proxies.page("web-0", "/readyz"))[1]
    await proxies.plane.faults.clear()
    await proxies.wait_ready("web-0")
    assert (
        'restart_seconds_count{cause="exit",controller="maps"} 1.0'
        in (await proxies.page("web-0", "/metrics"))[1]
    )
    assert "process ends" not in proxies.log("web-0")


async def test_a_controller_ends_when_its_proxy_was_frozen_until_the_lease_lapsed(proxies: Proxies) -> None:
    await proxies.start_proxy("web-0")
    await proxies.wait_visible()
    await proxies.wait_ready("web-0")
    proxy = proxies.processes["web-0"]
    (controller,) = children_of(proxy.pid)
    proxy.send_signal(signal.SIGSTOP)
    await asyncio.sleep(1.2 * LEASE_S)
    assert is_alive(controller)
    proxy.send_signal(signal.SIGCONT)
    async with asyncio.timeout(LEASE_S):
        while is_alive(controller):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_proxy_that_is_scaled_away_gives_up_all_and_one_that_is_rolled_nothing(
    proxies: Proxies, replicas: int
) -> None:
    await scale(proxies.client, "web", 2, namespace="web")
    for member in ("web-0", "web-1"):
        await proxies.start_proxy(member)
    await proxies.wait_shared("web-0", "web-1")
    before = await proxies.owners()
    await scale(proxies.client, "web", replicas, namespace="web")
    proxies.processes["web-1"].terminate()
    async with asyncio.timeout(45):
        assert await proxies.processes["web-1"].wait() == 0, proxies.log("web-1")
    after = await proxies.owners()
    if replicas == 1:
        assert "leaving: done" in proxies.log("web-1")
        assert after == {"web-0": NUMBER}
    else:
        assert "leaving" not in proxies.log("web-1")
        assert after == before
        leases = await proxies.client.list_all(LEASES, selector=f"{KEYS.ring_label}={KEYS.ring}")
        assert len(leases) == 2, json.dumps(leases)


@pytest.mark.timeout(240)
async def test_a_proxy_ends_with_its_ring_and_does_not_come_back_to_one_that_goes(proxies: Proxies) -> None:
    await proxies.start_proxy("web-0")
    await proxies.wait_shared("web-0")
    await proxies.client.delete(CONTROLLER_RINGS, KEYS.ring)
    async with asyncio.timeout(WITHIN_S):
        assert await proxies.processes["web-0"].wait() == 0

    async def is_gone() -> bool:
        return not await proxies.client.list_all(CONTROLLER_RINGS)

    await proxies.wait_for(is_gone)
    assert await proxies.owners() == {"": NUMBER}
