"""The child process: it starts, restarts with its objects, keeps its log, and dies with its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from devcluster.embedded import EmbeddedPlane, PlaneFailed, embedded_plane
from devcluster.plane import ControlPlane
from tests.contract.api import api_from

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

PARENT = """
import asyncio, sys
from pathlib import Path
from devcluster.embedded import embedded_plane

async def main():
    async with embedded_plane(Path(sys.argv[1])) as plane:
        print(plane.pids[0], flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_server_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, "the server outlived its parent"
        time.sleep(0.02)


async def test_plane_is_a_control_plane_and_ends_with_its_block(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path) as plane:
        control: ControlPlane = plane
        (pid,) = control.pids
        assert is_running(pid)
        assert 10e6 < control.rss_bytes() < 150e6
        assert control.url.startswith("https://127.0.0.1:")
    assert not is_running(pid)
    assert plane.pids == ()
    assert plane.rss_bytes() == 0


async def test_restart_keeps_objects_and_loses_history_and_connections(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path) as plane, api_from(plane.kubeconfig) as api:
        before = (await api.get(CONFIGMAPS)).version
        created = (await api.post(CONFIGMAPS, {"metadata": {"name": "a"}})).check(201)
        async with api.watch(CONFIGMAPS, resourceVersion=created.version) as watch:
            restarting = asyncio.ensure_future(plane.restart(away_s=0.5))
            with pytest.raises((aiohttp.ClientError, EOFError)):
                await watch.next()
            with pytest.raises(aiohttp.ClientConnectionError):
                await api.get(CONFIGMAPS)
            await restarting
        listed = (await api.get(CONFIGMAPS)).check(200)
        assert [item["metadata"]["name"] for item in listed.body["items"]] == ["a"]
        async with api.watch(CONFIGMAPS, resourceVersion=before) as watch:
            assert (await watch.next())["object"]["code"] == 410
        async with api.watch(CONFIGMAPS, resourceVersion=listed.version) as watch:
            await api.post(CONFIGMAPS, {"metadata": {"name": "b"}})
            assert await watch.short() == ("ADDED", "b")


async def test_log_tells_accepted_and_refused_writes_with_labels_before_and_after(
    new_plane: EmbeddedPlane,
) -> None:
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    async with api_from(await new_plane.kubeconfig_for("shard-a")) as api:
        created = await api.post(CONFIGMAPS, {"metadata": {"name": "a", "labels": {"k": "1"}}})
        await api.merge(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"k": "2"}}})
        fence: dict[str, object] = {"op": "test", "path": "/metadata/labels/k", "value": "1"}
        (await api.json_patch(f"{CONFIGMAPS}/a", fence)).check(422)
        await api.merge(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"k": "3"}}}, dryRun="All")
        await api.delete(f"{CONFIGMAPS}/a")
        await api.delete(f"{CONFIGMAPS}/a")
        (await api.get(CONFIGMAPS)).check(200)
    writes = [write for write in new_plane.writes() if write.user == "shard-a"]
    ended = time.clock_gettime(time.CLOCK_BOOTTIME)
    one, two = {"k": "1"}, {"k": "2"}
    assert [(w.verb, w.code, w.labels_before, w.labels_after) for w in writes] == [
        ("create", 201, None, one),
        ("patch", 200, one, two),
        ("patch", 422, two, two),
        ("delete", 200, two, None),
        ("delete", 404, None, None),
    ]
    assert [write.uid for write in writes] == [created.meta["uid"]] * 4 + [""]
    assert {(w.resource, w.namespace, w.name) for w in writes} == {("configmaps", "default", "a")}
    assert [write.seq for write in writes] == sorted(write.seq for write in writes)
    assert all(began <= write.t <= ended for write in writes)


async def test_log_of_a_lease_holds_its_annotations_and_spec(new_plane: EmbeddedPlane) -> None:
    contents = {"annotations": {"ringleader.dev/contested": ""}, "spec": {"holderIdentity": "s"}}
    meta = {"name": "s", "annotations": contents["annotations"]}
    async with api_from(new_plane.kubeconfig) as api:
        (await api.post(LEASES, {"metadata": meta, "spec": contents["spec"]})).check(201)
    lease = new_plane.writes()[-1]
    assert (lease.resource, lease.object) == ("leases.coordination.k8s.io", contents)


async def test_wrong_token_is_401_and_probes_need_none(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path) as plane, aiohttp.ClientSession() as session:
        tls = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        for token in ("", "Bearer nonsense", "Bearer a.b", "Basic YTpi"):
            headers = {"Authorization": token} if token else {}
            async with session.get(plane.url + CONFIGMAPS, headers=headers, ssl=tls) as answer:
                assert answer.status == 401
                assert (await answer.json())["reason"] == "Unauthorized"
        async with session.get(plane.url + "/readyz", ssl=tls) as answer:
            assert (answer.status, await answer.text()) == (200, "ok")


async def test_without_rbac_reviews_say_that_nothing_is_checked(new_plane: EmbeddedPlane) -> None:
    reviews = "/apis/authorization.k8s.io/v1"
    async with api_from(await new_plane.kubeconfig_for("a", admin=False)) as api:
        asked = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "namespaces"}}}
        status = (await api.post(f"{reviews}/selfsubjectaccessreviews", asked)).check(201).body["status"]
        assert status["allowed"] is True
        assert "does not enforce RBAC" in status["reason"]
        rules = (await api.post(f"{reviews}/selfsubjectrulesreviews", {"spec": {}})).check(201).body["status"]
        assert rules["resourceRules"] == [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        (await api.delete("/api/v1/namespaces/kube-public")).check(200)


async def test_account_has_a_kubeconfig_of_its_own(new_plane: EmbeddedPlane) -> None:
    path = await new_plane.kubeconfig_for("shard a")
    assert path.stat().st_mode & 0o777 == 0o600
    async with api_from(path) as api:
        (await api.post(CONFIGMAPS, {"metadata": {"name": "a"}})).check(201)
    assert new_plane.writes()[-1].user == "shard a"


async def test_port_in_use_is_told_with_the_childs_words(new_plane: EmbeddedPlane, tmp_path: Path) -> None:
    port = int(new_plane.url.rpartition(":")[2])
    with pytest.raises(PlaneFailed, match=str(port)):
        async with embedded_plane(tmp_path, port=port):
            pass


async def test_requests_that_the_server_does_not_serve_are_refused_by_name(new_plane: EmbeddedPlane) -> None:
    async with api_from(new_plane.kubeconfig) as api:
        selector = "shardRange(object.metadata.uid,'0x0','0x1')"
        assert "shardSelector" in (await api.get(CONFIGMAPS, shardSelector=selector)).check(400).message
        (await api.get("/api/v1/pods")).check(404)


async def test_killed_server_is_noticed(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path) as plane:
        os.kill(plane.pids[0], signal.SIGKILL)
        async with asyncio.timeout(10):
            while plane.pids:  # noqa: ASYNC110 - nothing tells but the plane itself
                await asyncio.sleep(0.01)
        assert isinstance(plane, EmbeddedPlane)
