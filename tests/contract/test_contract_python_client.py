"""Contract: the `kubernetes` package, typed and dynamic, works: what most Python controllers use today."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio

from devcluster.plane import ControlPlane
from tests.contract.api import Api
from tests.contract.definitions import site

pytestmark = pytest.mark.asyncio(loop_scope="session")

# as Any: its types call every field of every answer optional
client, config, watch = (
    cast(Any, importlib.import_module(f"kubernetes.{name}")) for name in ("client", "config", "watch")
)

WEBSITES = ("example.com", "v1")


@pytest_asyncio.fixture(loop_scope="session")
async def typed(plane: ControlPlane, api: Api) -> AsyncIterator[Any]:
    """An ApiClient of the `kubernetes` package with the administrator's kubeconfig."""
    made = await asyncio.to_thread(config.new_client_from_config, str(plane.kubeconfig))
    yield made
    await asyncio.to_thread(made.close)


async def test_configmap_is_created_patched_listed_and_deleted(typed: Any, namespace: str) -> None:
    def work() -> None:
        core = client.CoreV1Api(typed)
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"x": "1"}), data={"k": "v"})
        created = core.create_namespaced_config_map(namespace, body)
        assert created.metadata.uid
        patched = core.patch_namespaced_config_map("a", namespace, {"data": {"k": "w"}})
        assert patched.data == {"k": "w"}
        listed = core.list_namespaced_config_map(namespace, label_selector="x=1", limit=10)
        assert [item.metadata.name for item in listed.items] == ["a"]
        core.delete_namespaced_config_map("a", namespace)
        with pytest.raises(client.ApiException) as caught:
            core.read_namespaced_config_map("a", namespace)
        assert (caught.value.status, caught.value.reason) == (404, "Not Found")

    await asyncio.to_thread(work)


async def test_custom_object_and_its_status(typed: Any, namespace: str) -> None:
    def work() -> None:
        objects = client.CustomObjectsApi(typed)
        place = (*WEBSITES, namespace, "websites")
        created = objects.create_namespaced_custom_object(*place, site("a"))
        created["spec"]["html"] = "new"
        replaced = objects.replace_namespaced_custom_object(*place, "a", created)
        assert replaced["metadata"]["generation"] == 2
        status = objects.patch_namespaced_custom_object_status(*place, "a", {"status": {"message": "ok"}})
        assert status["status"] == {"message": "ok"}
        with pytest.raises(client.ApiException) as caught:
            objects.replace_namespaced_custom_object(*place, "a", created)
        assert caught.value.status == 409

    await asyncio.to_thread(work)


async def test_lease_with_its_times(typed: Any, namespace: str) -> None:
    def work() -> None:
        leases = client.CoordinationV1Api(typed)
        now = dt.datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC)
        spec = client.V1LeaseSpec(holder_identity="s1", lease_duration_seconds=15, renew_time=now)
        body = client.V1Lease(metadata=client.V1ObjectMeta(name="a"), spec=spec)
        created = leases.create_namespaced_lease(namespace, body)
        assert created.spec.renew_time == now
        created.spec.holder_identity = "s2"
        assert leases.replace_namespaced_lease("a", namespace, created).spec.holder_identity == "s2"

    await asyncio.to_thread(work)


async def test_watch_sees_what_happens(typed: Any, namespace: str) -> None:
    def work() -> list[tuple[str, str]]:
        core = client.CoreV1Api(typed)
        since = core.list_namespaced_config_map(namespace).metadata.resource_version
        for name in ("a", "b"):
            core.create_namespaced_config_map(
                namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name))
            )
        stream = watch.Watch().stream(
            core.list_namespaced_config_map, namespace, resource_version=since, timeout_seconds=1
        )
        return [(event["type"], event["object"].metadata.name) for event in stream]

    assert await asyncio.to_thread(work) == [("ADDED", "a"), ("ADDED", "b")]
