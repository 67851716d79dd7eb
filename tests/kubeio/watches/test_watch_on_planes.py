"""Watch sessions over real sockets: on both control planes, and through the embedded one's faults."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.errors import Expired, KubeError, NotFound
from kubeio.models import HasMeta, ObjectKey
from kubeio.patch import JsonPatch
from kubeio.resource import NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from kubeio.watches.store import Change, Store

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
WATCHER = "watcher"


class Watched:
    """An informer of the ConfigMaps of one namespace, and the administrator who changes them."""

    def __init__(self, admin: Client, source: Reflector, namespace: str) -> None:
        self.admin = admin
        self.source = source
        self.namespace = namespace
        self.changes: list[Change] = []
        self.store = Store()
        self.informer = Informer(source, store=self.store, on_change=self.changes.append)

    async def put(self, name: str, value: str = "", **labels: str) -> str:
        """Create it, or change it if it is there; its version."""
        document = {"metadata": {"name": name, "labels": {"shard": "a", **labels}}, "data": {"value": value}}
        where = self.namespace
        try:
            changed = await self.admin.replace(CONFIG_MAPS, name, document, namespace=where, type=HasMeta)
        except NotFound:
            changed = await self.admin.create(CONFIG_MAPS, document, namespace=where, type=HasMeta)
        return changed.metadata.resource_version

    async def delete(self, name: str) -> None:
        await self.admin.delete(CONFIG_MAPS, name, namespace=self.namespace)

    async def listed(self) -> dict[ObjectKey, str]:
        """What the server has in the selection."""
        page = await self.admin.list_page(
            CONFIG_MAPS, namespace=self.namespace, label_selector="shard=a", limit=0
        )
        return {obj.meta.key: obj.meta.resource_version for obj in page.objects}

    def stored(self) -> dict[ObjectKey, str]:
        store = self.store
        return {key: obj.meta.resource_version for key in store if (obj := store.get(key)) is not None}

    async def equals_the_list(self, *, within_s: float = 10.0) -> None:
        """The store becomes equal to a LIST in time."""
        deadline = asyncio.get_running_loop().time() + within_s
        while (stored := self.stored()) != (listed := await self.listed()):
            assert asyncio.get_running_loop().time() < deadline, (
                set(stored.items()) ^ set(listed.items()),
                self.source.last_error,
            )
            await asyncio.sleep(0.05)


@asynccontextmanager
async def watching(
    admin: Client, namespace: str, *, client: Client | None = None, metadata_only: bool = False
) -> AsyncIterator[Watched]:
    source = Reflector(
        ListerWatcher(
            client or admin,
            CONFIG_MAPS,
            namespace=namespace,
            label_selector="shard=a",
            metadata_only=metadata_only,
        ),
        page_size=7,
        silence_s=2.0,
        clock=SystemClock(),
        rng=random.Random(7),
    )
    watched = Watched(admin, source, namespace)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watched.informer.run())
        yield watched
        task.cancel()


@asynccontextmanager
async def under_faults(plane: EmbeddedPlane) -> AsyncIterator[Watched]:
    """The watcher has an account of its own, which the faults can hit."""
    kubeconfig = await plane.kubeconfig_for(WATCHER)
    async with (
        Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as admin,
        Client(load_cluster(kubeconfig=str(kubeconfig))) as client,
    ):
        namespace = f"test-{secrets.token_hex(4)}"
        await admin.create(NAMESPACES, {"metadata": {"name": namespace}}, type=bytes)
        try:
            async with watching(admin, namespace, client=client) as watched:
                await watched.informer.synced.wait()
                yield watched
        finally:
            await plane.faults.clear()


async def outlive_the_history(watched: Watched) -> None:
    """More writes to ConfigMaps than the server remembers."""
    for number in range(240):
        await watched.put("busy", str(number), shard="b")


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_store_follows_the_selection_from_the_first_list_on(
    admin: Client, namespace: str, metadata_only: bool
) -> None:
    async with watching(admin, namespace, metadata_only=metadata_only) as before:
        for number in range(20):
            await before.put(f"map-{number}", "x")
        async with watching(admin, namespace, metadata_only=metadata_only) as watched:
            await asyncio.wait_for(watched.informer.synced.wait(), 10)
            assert watched.stored() == await watched.listed()
            assert len(watched.stored()) == 20
            await watched.put("map-3", "changed")
            await watched.put("map-4", shard="b")
            await watched.delete("map-5")
            await watched.put("new")
            await watched.equals_the_list()
            await before.equals_the_list()
            raw = watched.store.raw(ObjectKey(namespace, "map-3"))
            assert raw is not None
            assert (b"changed" in raw) is not metadata_only


async def test_directed_handoff_is_seen_as_leaving_and_coming(admin: Client, namespace: str) -> None:
    async with watching(admin, namespace) as watched:
        await watched.put("site", shard="b")
        await watched.informer.synced.wait()
        for shard in ("a", "b", "a"):
            patch = JsonPatch().replace("/metadata/labels/shard", shard)
            await admin.patch(CONFIG_MAPS, "site", patch, namespace=namespace, type=bytes)
        await watched.equals_the_list()
        assert [change.new is not None for change in watched.changes] == [True, False, True]


async def test_version_that_fell_out_of_history_leads_to_a_relist(embedded: EmbeddedPlane) -> None:
    async with under_faults(embedded) as watched:
        await watched.put("kept")
        await watched.put("gone")
        await watched.equals_the_list()
        fault = await embedded.faults.add(Fault(what="partition", user=WATCHER))
        await watched.put("new")
        await watched.delete("gone")
        await outlive_the_history(watched)
        errors: list[KubeError | None] = []

        async def note_errors() -> None:
            while True:
                errors.append(watched.source.last_error)
                await asyncio.sleep(0.005)

        noting = asyncio.create_task(note_errors())
        await embedded.faults.clear(fault)
        await watched.equals_the_list()
        noting.cancel()
        assert any(isinstance(error, Expired) for error in errors)


async def test_half_dead_watch_is_noticed_by_its_silence(embedded: EmbeddedPlane) -> None:
    async with under_faults(embedded) as watched:
        await watched.put("a")
        await watched.equals_the_list()
        fault = await embedded.faults.add(Fault(what="mute_watches", user=WATCHER))
        await watched.put("b")
        await asyncio.sleep(0.5)
        assert watched.stored() != await watched.listed()
        await embedded.faults.clear(fault)
        await watched.equals_the_list()


async def test_stale_list_never_brings_back_what_left(embedded: EmbeddedPlane) -> None:
    async with under_faults(embedded) as watched:
        await watched.put("handed-over")
        await watched.equals_the_list()
        stale = int(watched.source.resource_version)
        await watched.put("handed-over", shard="b")
        await watched.equals_the_list()
        watched.changes.clear()
        for fault in (
            Fault(what="stale_lists", user=WATCHER, version=stale),
            Fault(what="error", user=WATCHER, verb="watch", code=410, count=1),
            Fault(what="cut", verb="watch", user=WATCHER, for_s=0.1),
        ):
            await embedded.faults.add(fault)
        for _ in range(40):
            await asyncio.sleep(0.05)
            assert watched.stored() == {}
        await embedded.faults.clear()
        await watched.put("fresh")
        await watched.equals_the_list(within_s=15)
        assert {change.key.name for change in watched.changes} == {"fresh"}


async def test_restart_of_the_server_loses_nothing(embedded: EmbeddedPlane) -> None:
    async with under_faults(embedded) as watched:
        await watched.put("a")
        await watched.put("b")
        await watched.equals_the_list()
        await embedded.restart(away_s=1.0)
        await watched.delete("a")
        await watched.put("c")
        await watched.equals_the_list(within_s=15)


FAULTS = [
    Fault(what="cut", verb="watch", user=WATCHER, for_s=0.3),
    Fault(what="mute_watches", user=WATCHER, for_s=0.3),
    Fault(what="partition", user=WATCHER, for_s=0.5),
    Fault(what="latency", user=WATCHER, delay_s=0.3, for_s=1.0),
    Fault(what="error", user=WATCHER, code=500, count=2),
    Fault(what="error", user=WATCHER, code=429, retry_after_s=1, count=1),
    Fault(what="lose_answer", user=WATCHER, count=1),
    Fault(what="stale_lists", user=WATCHER, for_s=1.0),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_store_equals_the_list_at_every_quiet_point_of_a_random_history(
    embedded: EmbeddedPlane, seed: int
) -> None:
    rng = random.Random(seed)
    async with under_faults(embedded) as watched:
        for _ in range(4):
            for _ in range(rng.randrange(3)):
                fault = rng.choice(FAULTS)
                if fault.what == "stale_lists":
                    stale = int(watched.source.resource_version or 1) - 20
                    fault = msgspec.structs.replace(fault, version=max(1, stale))
                await embedded.faults.add(fault)
            if rng.random() < 0.3:
                await outlive_the_history(watched)
            for _ in range(rng.randrange(30)):
                name = f"map-{rng.randrange(10)}"
                if rng.random() < 0.3 and ObjectKey(watched.namespace, name) in await watched.listed():
                    await watched.delete(name)
                else:
                    await watched.put(name, str(rng.random()), shard=rng.choice("aab"))
            await embedded.faults.clear()
            await watched.equals_the_list(within_s=20)
