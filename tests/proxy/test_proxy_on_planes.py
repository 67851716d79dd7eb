"""Clients as controllers use them, through the relay: the kubernetes package, ours, watches, large lists."""

from __future__ import annotations

import asyncio
import importlib
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest

from devcluster.embedded import EmbeddedPlane, embedded_plane
from kubeio.access.cluster import load_cluster
from kubeio.errors import Conflict, Forbidden, TooManyRequests
from kubeio.models import HasMeta
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from proxy.director import Selection, Write
from proxy.refusals import Refusal
from tests.contract.api import api_from
from tests.proxy.relays import LABELS, SHARD, TERMS, ScriptedDirector, raw_client, relayed

CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
PATH = "/api/v1/namespaces/default/configmaps"
MANY = 10_000


def director(**more: Any) -> ScriptedDirector:
    return ScriptedDirector({"configmaps": Selection(TERMS)}, **more)


def config_map(name: str, labels: dict[str, str] | None = None, size: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": {"k": "x" * size}}


async def test_the_kubernetes_package_sees_and_makes_the_shard_s_objects_only(
    new_plane: EmbeddedPlane, tmp_path: Path
) -> None:
    client, config, watch = (
        cast(Any, importlib.import_module(f"kubernetes.{name}")) for name in ("client", "config", "watch")
    )

    def work(kubeconfig: Path) -> None:
        with config.new_client_from_config(str(kubeconfig)) as session:
            core = client.CoreV1Api(session)
            body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="mine"), data={"k": "v"})
            assert core.create_namespaced_config_map("default", body).metadata.labels == LABELS
            listed = core.list_namespaced_config_map("default", resource_version="0")
            assert [item.metadata.name for item in listed.items] == ["mine"]
            core.patch_namespaced_config_map("mine", "default", {"data": {"k": "w"}})
            events = watch.Watch()
            for event in events.stream(core.list_namespaced_config_map, "default", resource_version="0"):
                assert event["object"].metadata.name == "mine"
                assert event["object"].data == {"k": "w"}
                events.stop()
            assert core.read_namespaced_config_map("other", "default").metadata.name == "other"
            core.delete_collection_namespaced_config_map("default")

    async with (
        api_from(new_plane.kubeconfig) as admin,
        relayed(new_plane.kubeconfig, tmp_path, director()) as through,
    ):
        (await admin.post(PATH, config_map("other"))).check(201)
        await asyncio.to_thread(work, through.kubeconfig)
        assert (await admin.get(PATH)).names == ["other"]
        assert [write.info.verb for write in through.director.begun] == [
            "create",
            "patch",
            "deletecollection",
        ]
        assert [status for _, status in through.director.ended] == [201, 200, 200]


async def test_a_watch_shows_what_comes_and_goes_by_its_labels(
    new_plane: EmbeddedPlane, tmp_path: Path
) -> None:
    async with (
        api_from(new_plane.kubeconfig) as admin,
        relayed(new_plane.kubeconfig, tmp_path, director()) as through,
        api_from(through.kubeconfig) as api,
        api.watch(PATH) as events,
    ):
        (await admin.post(PATH, config_map("other"))).check(201)
        (await admin.post(PATH, config_map("mine", LABELS))).check(201)
        assert await events.short() == ("ADDED", "mine")
        (await admin.merge(f"{PATH}/mine", {"metadata": {"labels": {SHARD: "another"}}})).check(200)
        assert await events.short() == ("DELETED", "mine")
        (await admin.merge(f"{PATH}/other", {"metadata": {"labels": LABELS}})).check(200)
        assert await events.short() == ("ADDED", "other")


async def test_our_own_client_works_through_the_relay(new_plane: EmbeddedPlane, tmp_path: Path) -> None:
    refused = {"refused"}

    def verdict(write: Write) -> Refusal | None:
        if write.info.name in refused:
            return Refusal(409, "the tree of refused is not open")
        return Refusal(429, "paused", retry_after_s=1) if write.info.name == "paused" else None

    async with (
        relayed(new_plane.kubeconfig, tmp_path, director(verdict=verdict)) as through,
        through.client() as client,
    ):
        made = await client.create(CONFIG_MAPS, config_map("a"), namespace="default", type=HasMeta)
        assert made.metadata.labels == LABELS
        await client.patch(
            CONFIG_MAPS, "a", MergePatch({"data": {"k": "v"}}), namespace="default", type=bytes
        )
        with pytest.raises(Conflict, match="the tree of refused is not open"):
            await client.delete(CONFIG_MAPS, "refused", namespace="default")
        with pytest.raises(TooManyRequests) as raised:
            await client.delete(CONFIG_MAPS, "paused", namespace="default")
        assert raised.value.retry_after_s == 1
        await client.delete(CONFIG_MAPS, "a", namespace="default")


async def test_a_controller_without_the_right_is_told_by_the_server(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path / "plane", rbac=True) as plane:
        kubeconfig = await plane.kubeconfig_for("poor", admin=False)
        async with relayed(kubeconfig, tmp_path / "files", director()) as through:
            async with through.client() as client:
                with pytest.raises(Forbidden, match="poor"):
                    await client.create(CONFIG_MAPS, config_map("a"), namespace="default", type=HasMeta)
            assert [status for _, status in through.director.ended] == [403]


async def test_the_controller_acts_as_its_life(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path / "plane", rbac=True) as plane:
        acting = [("Impersonate-User", "somebody-else")]
        async with (
            relayed(plane.kubeconfig, tmp_path / "files", impersonation=acting) as through,
            through.client() as client,
        ):
            with pytest.raises(Forbidden, match="somebody-else"):
                await client.create(CONFIG_MAPS, config_map("a"), namespace="default", type=HasMeta)


async def test_a_list_of_ten_thousand_objects_passes_and_costs_no_memory(
    new_plane: EmbeddedPlane, tmp_path: Path
) -> None:
    async with Client(load_cluster(kubeconfig=str(new_plane.kubeconfig)), max_connections=16) as admin:
        names = iter(range(MANY))

        async def make() -> None:
            for number in names:
                body = config_map(f"m{number}", LABELS, size=1000)
                await admin.create(CONFIG_MAPS, body, namespace="default", type=bytes)

        async with asyncio.TaskGroup() as makers:
            for _ in range(16):
                makers.create_task(make())
    async with (
        relayed(new_plane.kubeconfig, tmp_path, director()) as through,
        raw_client(through.port) as client,
    ):
        await client.ask("GET", f"{PATH}/m1")
        tracemalloc.start()
        client.send("GET", PATH)
        await client.head()
        received, tail = 0, b""
        while not tail.endswith(b"0\r\n\r\n") and received < 15_000_000:
            piece = await client.reader.read(2**18)
            received, tail = received + len(piece), piece[-8:]
            if tail.endswith(b"]}"):
                break
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert received > MANY * 1000
    assert peak < 6 * 2**20
