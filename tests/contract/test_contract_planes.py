"""Contract: what fleets, demo and tests rely on in a control plane beside its API: accounts, write log, restart."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from devcluster.plane import ControlPlane, Write
from tests.contract.api import Api, api_from
from tests.contract.definitions import configmap, site

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHARD = "shard.ringleader.dev/r"
POINTER = "/metadata/labels/shard.ringleader.dev~1r"


@asynccontextmanager
async def account(plane: ControlPlane, user: str) -> AsyncIterator[Api]:
    async with api_from(await plane.kubeconfig_for(user)) as api:
        yield api


async def writes_of(plane: ControlPlane, namespace: str, count: int) -> list[Write]:
    """The writes in *namespace* once there are *count*, in order."""
    deadline = time.monotonic() + 5
    while True:
        found = [write for write in plane.writes() if write.namespace == namespace]
        if len(found) >= count:
            assert len(found) == count, found
            return found
        assert time.monotonic() < deadline, f"{len(found)} of {count} writes: {found}"
        await asyncio.sleep(0.02)


async def test_kubeconfigs_are_readable_by_their_owner_only(plane: ControlPlane) -> None:
    for path in (plane.kubeconfig, await plane.kubeconfig_for("reader")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_every_account_acts_under_its_own_name(
    plane: ControlPlane, configmaps: str, namespace: str
) -> None:
    async with account(plane, "shard-a") as first, account(plane, "shard-b") as second:
        (await first.post(configmaps, configmap("a"))).check(201)
        (await second.post(configmaps, configmap("b"))).check(201)
        body = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        review = await first.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
        if review.status == 201:  # optional for a control plane
            assert review.body["status"]["userInfo"]["username"] == "shard-a"
    log = await writes_of(plane, namespace, 2)
    assert [(write.user, write.name) for write in log] == [("shard-a", "a"), ("shard-b", "b")]


async def test_write_log_tells_each_write_with_labels_before_and_after(
    plane: ControlPlane, sites: str, namespace: str
) -> None:
    async with account(plane, "shard-a") as api:
        created = (await api.post(sites, site("a", labels={SHARD: "s1"}))).check(201)
        moved = await api.json_patch(
            f"{sites}/a",
            {"op": "test", "path": POINTER, "value": "s1"},
            {"op": "replace", "path": POINTER, "value": "s2"},
        )
        refused = await api.json_patch(
            f"{sites}/a/status",
            {"op": "test", "path": POINTER, "value": "s1"},
            {"op": "add", "path": "/status", "value": {"message": "late"}},
        )
        status = await api.merge(f"{sites}/a/status", {"status": {"message": "x"}})
        (await api.post(sites, site("dry"), dryRun="All")).check(201)
        (await api.delete(f"{sites}/a")).check(200)
    log = await writes_of(plane, namespace, 5)
    assert [(w.verb, w.subresource, w.code) for w in log] == [
        ("create", "", 201),
        ("patch", "", 200),
        ("patch", "status", refused.status),
        ("patch", "status", 200),
        ("delete", "", 200),
    ]
    assert {(w.user, w.resource, w.name, w.uid) for w in log} == {
        ("shard-a", "websites.example.com", "a", created.meta["uid"])
    }
    s1, s2 = {SHARD: "s1"}, {SHARD: "s2"}
    assert [(w.labels_before, w.labels_after) for w in log] == [
        (None, s1),
        (s1, s2),
        (s2, s2),
        (s2, s2),
        (s2, None),
    ]
    accepted = [w.resource_version for w in log if w.code < 300 and w.verb != "delete"]
    assert accepted == [created.version, moved.version, status.version]
    assert "rejected our request" in log[2].message
    assert [w.seq for w in log] == sorted({w.seq for w in log})


async def test_write_log_tells_patches_of_labels_alone_from_wider_ones(
    plane: ControlPlane, configmaps: str, namespace: str
) -> None:
    label: dict[str, object] = {
        "op": "add",
        "path": "/metadata/labels/drain.ringleader.dev~1r",
        "value": "s2",
    }
    content: dict[str, object] = {"op": "add", "path": "/data", "value": {"k": "v"}}
    async with account(plane, "shard-a") as api:
        (await api.post(configmaps, configmap("a", labels={SHARD: "s1"}))).check(201)
        await api.json_patch(f"{configmaps}/a", {"op": "test", "path": POINTER, "value": "s1"}, label)
        await api.json_patch(f"{configmaps}/a", label, content)
        await api.merge(f"{configmaps}/a", {"metadata": {"labels": {"x": "y"}}})
    log = await writes_of(plane, namespace, 4)
    assert [(w.code, w.only_labels) for w in log] == [(201, False), (200, True), (200, False), (200, False)]


async def test_write_log_tells_the_controller_of_what_is_created(
    plane: ControlPlane, sites: str, configmaps: str, namespace: str
) -> None:
    async with account(plane, "shard-a") as api:
        above = (await api.post(sites, site("a"))).check(201)
        owner = {"apiVersion": "example.com/v1", "kind": "Website", "name": "a", "uid": above.meta["uid"]}
        for name, references in (("b", [{**owner, "controller": True}]), ("c", [owner]), ("d", [])):
            body = configmap(name)
            body["metadata"]["ownerReferences"] = references
            (await api.post(configmaps, body)).check(201)
    log = await writes_of(plane, namespace, 4)
    assert [(w.name, w.controller) for w in log] == [
        ("a", ""),
        ("b", above.meta["uid"]),
        ("c", ""),
        ("d", ""),
    ]


async def test_times_of_writes_are_of_the_boot_clock(
    plane: ControlPlane, configmaps: str, namespace: str
) -> None:
    async with account(plane, "shard-a") as api:
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        await api.post(configmaps, configmap("a"))
        between = time.clock_gettime(time.CLOCK_BOOTTIME)
        await asyncio.sleep(0.2)
        await api.post(configmaps, configmap("b"))
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
    first, second = await writes_of(plane, namespace, 2)
    slack_s = 0.05
    assert before - slack_s < first.t < between + slack_s < second.t + slack_s < after + 2 * slack_s


async def test_order_of_concurrent_writes_is_that_of_the_server(
    plane: ControlPlane, configmaps: str, namespace: str
) -> None:
    async with account(plane, "shard-a") as api:
        await api.post(configmaps, configmap("a"))
        patches = [
            api.merge(f"{configmaps}/a", {"metadata": {"labels": {"turn": str(n)}}}) for n in range(20)
        ]
        answers = await asyncio.gather(*patches)
    log = (await writes_of(plane, namespace, 21))[1:]
    by_version = sorted(answers, key=lambda answer: int(answer.version))
    assert [w.labels_after for w in log] == [answer.labels for answer in by_version]
    befores = [{}, *(answer.labels for answer in by_version[:-1])]
    assert [w.labels_before or {} for w in log] == befores


async def test_write_log_keeps_what_a_lease_said(plane: ControlPlane, leases: str, namespace: str) -> None:
    body = {
        "metadata": {"name": "s1", "annotations": {"ringleader.dev/member": "m"}},
        "spec": {"holderIdentity": "s1", "leaseDurationSeconds": 15},
    }
    async with account(plane, "shard-a") as api:
        created = (await api.post(leases, body)).check(201)
        taken = created.body | {"spec": created.body["spec"] | {"holderIdentity": "sharder"}}
        (await api.put(f"{leases}/s1", taken)).check(200)
    create, swap = await writes_of(plane, namespace, 2)
    assert create.object == {
        "annotations": {"ringleader.dev/member": "m"},
        "spec": {"holderIdentity": "s1", "leaseDurationSeconds": 15},
    }
    assert swap.verb == "update"
    assert swap.object is not None
    assert swap.object["spec"] == {"holderIdentity": "sharder", "leaseDurationSeconds": 15}


async def test_write_that_removes_the_last_finalizer_leaves_no_object(
    plane: ControlPlane, sites: str, namespace: str
) -> None:
    body = site("a", labels={SHARD: "s1"})
    body["metadata"]["finalizers"] = ["example.com/hold"]
    async with account(plane, "shard-a") as api:
        await api.post(sites, body)
        await api.delete(f"{sites}/a")
        await api.merge(f"{sites}/a", {"metadata": {"finalizers": None}})
        await api.post(sites, site("a"))
    log = await writes_of(plane, namespace, 4)
    labels = {SHARD: "s1"}
    befores_and_afters = [(w.labels_before, w.labels_after) for w in log]
    assert befores_and_afters == [(None, labels), (labels, labels), (labels, None), (None, {})]


async def test_deletecollection_is_logged_object_by_object(
    plane: ControlPlane, sites: str, namespace: str
) -> None:
    async with account(plane, "shard-a") as api:
        for name in ("a", "b"):
            await api.post(sites, site(name, labels={SHARD: name}))
        (await api.delete(sites)).check(200)
    log = (await writes_of(plane, namespace, 4))[2:]
    assert {(w.verb, w.name, (w.labels_before or {}).get(SHARD), w.labels_after is None) for w in log} == {
        ("deletecollection", "a", "a", True),
        ("deletecollection", "b", "b", True),
    }


async def test_size_and_processes_are_told(plane: ControlPlane) -> None:
    assert plane.pids
    assert 10_000_000 < plane.rss_bytes() < 2_000_000_000


async def test_restart_keeps_state_and_port_and_ends_connections(
    plane: ControlPlane, api: Api, configmaps: str, namespace: str
) -> None:
    url = plane.url
    created = (await api.post(configmaps, configmap("a"))).check(201)
    async with api.watch(configmaps, resourceVersion=created.version) as watch:
        began = time.monotonic()
        await plane.restart(away_s=0.5)
        assert time.monotonic() - began >= 0.5
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await watch.next()
    assert plane.url == url
    found = (await api.get(f"{configmaps}/a")).check(200)
    assert found.body == created.body
    changed = (await api.merge(f"{configmaps}/a", {"data": {"k": "w"}})).check(200)
    assert int(changed.version) > int(created.version)
    log = await writes_of(plane, namespace, 2)
    assert [w.verb for w in log] == ["create", "patch"]
    await until_watches_are_served(api)


async def until_watches_are_served(api: Api) -> None:
    """A server that has just started may refuse watches with 429 until its caches are filled."""
    deadline = time.monotonic() + 20
    while True:
        async with api.watch("/apis/example.com/v1/websites", timeoutSeconds="1") as watch:
            if watch.status == 200:
                return
            assert watch.status == 429
        assert time.monotonic() < deadline, "watches are still refused"
        await asyncio.sleep(0.1)
