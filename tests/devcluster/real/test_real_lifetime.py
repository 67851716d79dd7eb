"""A real control plane lives and dies with its owner, and lets in whom it should."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, PlaneFailed, RealPlane, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS, find_binaries
from devcluster.real.recipes import cache_folder, etcdutl_recipe
from kubeio.errors import NotFound
from tests.contract.api import Api, api_from

pytestmark = pytest.mark.real
on_the_shared_plane = pytest.mark.asyncio(loop_scope="module")

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(autouse=True, scope="module")
def _skip_without_binaries() -> None:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPlane]:
    async with real_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(plane: RealPlane) -> AsyncIterator[Api]:
    async with api_from(plane.kubeconfig) as api:
        yield api


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while alive := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"{alive} still run"
        time.sleep(0.05)


@on_the_shared_plane
async def test_account_may_do_everything_but_is_no_system_master(plane: RealPlane) -> None:
    async with api_from(await plane.kubeconfig_for("shard-a", groups=["team"])) as api:
        (await api.get("/api/v1/secrets")).check(200)
        body = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        review = await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    info = review.check(201).body["status"]["userInfo"]
    assert info["username"] == "shard-a"
    assert {"team", "system:authenticated"} <= set(info["groups"])
    assert "system:masters" not in info["groups"]


@on_the_shared_plane
async def test_account_without_rights_gets_what_rbac_grants(plane: RealPlane, admin: Api) -> None:
    kubeconfig = await plane.kubeconfig_for("guest", groups=["readers"], admin=False)
    async with api_from(kubeconfig) as api:
        refused = (await api.get("/api/v1/namespaces/default/configmaps")).check(403)
        assert 'User "guest" cannot list resource "configmaps"' in refused.message
        role = {
            "metadata": {"name": "readers"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
        }
        binding = {
            "metadata": {"name": "readers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
        }
        (await admin.post(f"{RBAC}/clusterroles", role)).check(201)
        (await admin.post(f"{RBAC}/clusterrolebindings", binding)).check(201)
        deadline = time.monotonic() + 5
        while (await api.get("/api/v1/namespaces/default/configmaps")).status != 200:
            assert time.monotonic() < deadline, "the binding does not count"
            await asyncio.sleep(0.05)


@on_the_shared_plane
async def test_service_account_acts_by_a_token_of_its_own(plane: RealPlane, admin: Api) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    (await admin.post(accounts, {"metadata": {"name": "sharder"}})).check(201)
    async with api_from(await plane.service_account_kubeconfig("default", "sharder")) as api:
        refused = (await api.get("/api/v1/namespaces/default/configmaps")).check(403)
    assert 'User "system:serviceaccount:default:sharder" cannot list' in refused.message


@on_the_shared_plane
async def test_token_for_an_unknown_service_account_is_refused_by_name(plane: RealPlane) -> None:
    with pytest.raises(NotFound, match="nobody"):
        await plane.service_account_kubeconfig("default", "nobody")


@on_the_shared_plane
async def test_server_that_was_built_here_says_its_version(plane: RealPlane, admin: Api) -> None:
    if not plane.binary("kube-apiserver").is_relative_to(cache_folder()):
        pytest.skip("the kube-apiserver is a ready-made one")
    assert (await admin.get("/version")).body["gitVersion"] == f"v{kubernetes_recipe().version}"


async def test_end_of_the_block_leaves_no_process_and_keeps_the_log(tmp_path: Path) -> None:
    async with real_plane(tmp_path, audit=True, controller_manager=False) as plane:
        pids = list(plane.pids)
        assert len(pids) == 2
        async with api_from(plane.kubeconfig) as api:
            (await api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})).check(201)
    wait_until_gone(pids)
    assert plane.pids == []
    assert not (tmp_path / "etcd").exists()
    assert [(write.user, write.verb, write.name) for write in plane.writes()] == [("admin", "create", "a")]


_OWNER = """
import asyncio, sys
from pathlib import Path
from devcluster.real import real_plane

async def main():
    async with real_plane(Path(sys.argv[1])) as plane:
        print(*plane.pids, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_killed_owner_takes_all_processes_along(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner:
        try:
            pids = [int(word) for word in owner.stdout.readline().split()]
            assert len(pids) == 3
            assert all(is_running(pid) for pid in pids)
        finally:
            os.kill(owner.pid, signal.SIGKILL)
    wait_until_gone(pids)


async def test_two_servers_share_one_etcd_and_one_goes_on_without_the_other(tmp_path: Path) -> None:
    async with real_plane(tmp_path, audit=True, controller_manager=False, api_servers=2) as plane:
        first, second = plane.direct_kubeconfigs
        accounts = [await plane.kubeconfig_for(user) for user in ("ann", "bob")]
        async with api_from(first) as one, api_from(second) as two, api_from(accounts[0]) as ann:
            assert one.url != two.url
            assert {one.url, two.url} == {
                json.loads(path.read_text())["clusters"][0]["cluster"]["server"] for path in accounts
            }
            (await one.post(CONFIGMAPS, {"metadata": {"name": "a"}})).check(201)
            (await two.get(f"{CONFIGMAPS}/a")).check(200)
            await plane.kill_apiserver(1 if ann.url == two.url else 2)
            (await ann.post(CONFIGMAPS, {"metadata": {"name": "b"}})).check(201)
            await plane.start_apiserver(1 if ann.url == two.url else 2)
            (await one.get(f"{CONFIGMAPS}/b")).check(200)
            (await two.get(f"{CONFIGMAPS}/b")).check(200)
    assert [(write.user, write.name) for write in plane.writes()] == [("admin", "a"), ("ann", "b")]


async def test_through_the_fault_proxy_clients_reach_the_server_that_is_left(tmp_path: Path) -> None:
    async with real_plane(tmp_path, controller_manager=False, api_servers=2, faults=True) as plane:
        for number in (1, 2):
            await plane.kill_apiserver(number)
            async with api_from(await plane.kubeconfig_for("ann")) as ann:
                for _ in range(3):
                    (await ann.get(CONFIGMAPS)).check(200)
            await plane.start_apiserver(number)


async def test_a_restore_of_etcd_brings_the_snapshot_back_with_greater_versions(tmp_path: Path) -> None:
    try:
        find_binaries(["etcdutl"], etcdutl_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    async with real_plane(tmp_path, audit=True, api_servers=2) as plane, api_from(plane.kubeconfig) as api:
        (await api.post(CONFIGMAPS, {"metadata": {"name": "a", "labels": {"s": "1"}}})).check(201)
        snapshot = await plane.snapshot()
        label = {"metadata": {"labels": {"s": "2"}}}
        changed = (await api.merge(f"{CONFIGMAPS}/a", label)).check(200)
        (await api.post(CONFIGMAPS, {"metadata": {"name": "b"}})).check(201)
        await plane.restore(snapshot)
        assert (await api.get(f"{CONFIGMAPS}/a")).labels == {"s": "1"}
        (await api.get(f"{CONFIGMAPS}/b")).check(404)
        again = (await api.merge(f"{CONFIGMAPS}/a", label)).check(200)
        assert int(again.version) > int(changed.version)
    assert [write.labels_before for write in plane.writes() if write.verb == "patch"] == [
        {"s": "1"},
        {"s": "1"},
    ]


async def test_server_that_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    binaries = find_binaries(SERVERS, kubernetes_recipe())
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho 'unknown flag: --nonsense'\nexit 3\n")
    broken.chmod(0o755)
    plane = RealPlane(tmp_path / "plane", binaries=binaries | {"kube-apiserver": broken}, audited_groups=None)
    with pytest.raises(PlaneFailed, match="kube-apiserver ended at its start:\nunknown flag: --nonsense"):
        await plane.start()
    assert plane.pids == []
