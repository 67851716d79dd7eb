"""etcd's own changes, past an API server that is restarted meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from devcluster.children import PlaneFailed
from devcluster.real import BinariesMissing, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.etcd_watch import STORES_JSON, Stored, newest_revision, watch_etcd
from kubeio.resource import NAMESPACES, ApiResource
from ringleader.testing.client import IndependentClient

pytestmark = [pytest.mark.real, pytest.mark.asyncio]

PODS = ApiResource("", "v1", "pods", "Pod")
POD = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}


async def test_no_restart_hides_a_change_and_versions_are_revisions(tmp_path: Path) -> None:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    seen: list[Stored] = []

    async def follow(url: str) -> None:
        async for changes in watch_etcd(url):
            seen.extend(changes)

    async with real_plane(tmp_path, controller_manager=False, apiserver_flags=[STORES_JSON]) as plane:
        following = asyncio.create_task(follow(plane.etcd_url))
        async with IndependentClient(plane.kubeconfig) as client:
            await client.create(NAMESPACES, {"metadata": {"name": "web"}})
            made = await client.create(PODS, POD, namespace="web")
            await plane.restart()
            await client.delete(PODS, "one", namespace="web")
        newest = await newest_revision(plane.etcd_url)
        async with asyncio.timeout(20):
            while not seen or seen[-1].revision < newest:  # noqa: ASYNC110 - it happens on a server
                await asyncio.sleep(0.05)
        of_pod = [each for each in seen if each.key == "/registry/pods/web/one"]
        assert str(of_pod[0].revision) == made["metadata"]["resourceVersion"]
        assert msgspec.json.decode(of_pod[0].value)["metadata"]["uid"] == made["metadata"]["uid"]
        assert of_pod[-1].value == b""
        assert [each.revision for each in seen] == sorted(each.revision for each in seen)
    with pytest.raises(PlaneFailed):
        await following
