"""Every fault does to the right requests what it says, to no others, and ends when it should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from devcluster.embedded import EmbeddedPlane, Fault, PlaneFailure, embedded_plane
from tests.contract.api import Api, api_from

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPlane]:
    async with embedded_plane(tmp_path_factory.mktemp("plane"), bookmark_interval_s=0.2) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def alice(plane: EmbeddedPlane) -> AsyncIterator[Api]:
    async with api_from(await plane.kubeconfig_for("alice")) as api:
        yield api
    await plane.faults.clear()
    await plane.order("DELETE", CONFIGMAPS)


@pytest_asyncio.fixture(loop_scope="module")
async def bob(plane: EmbeddedPlane) -> AsyncIterator[Api]:
    async with api_from(await plane.kubeconfig_for("bob")) as api:
        yield api


def configmap(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}}


async def test_latency_delays_the_user_it_is_meant_for(plane: EmbeddedPlane, alice: Api, bob: Api) -> None:
    await plane.faults.add(Fault(what="latency", user="alice", delay_s=0.3))
    began = time.monotonic()
    (await bob.get(CONFIGMAPS)).check(200)
    assert time.monotonic() - began < 0.25
    began = time.monotonic()
    (await alice.get(CONFIGMAPS)).check(200)
    assert time.monotonic() - began >= 0.3


async def test_too_many_requests_comes_with_retry_after_and_ends_with_its_count(
    plane: EmbeddedPlane, alice: Api
) -> None:
    await plane.faults.add(Fault(what="error", verb="create", code=429, retry_after_s=7, count=2))
    (await alice.get(CONFIGMAPS)).check(200)
    for _ in range(2):
        refused = (await alice.post(CONFIGMAPS, configmap("a"))).check(429)
        assert refused.headers["Retry-After"] == "7"
        assert refused.body["reason"] == "TooManyRequests"
    assert await plane.faults.active() == []
    (await alice.post(CONFIGMAPS, configmap("a"))).check(201)


async def test_fault_strikes_writes_of_its_resource_only(plane: EmbeddedPlane, alice: Api) -> None:
    await plane.faults.add(Fault(what="error", verb="write", resource="configmaps", code=500))
    (await alice.post(CONFIGMAPS, configmap("a"))).check(500)
    (await alice.post("/api/v1/namespaces/default/serviceaccounts", configmap("a"))).check(201)
    (await alice.get(CONFIGMAPS)).check(200)


async def test_fault_ends_with_its_time(plane: EmbeddedPlane, alice: Api) -> None:
    await plane.faults.add(Fault(what="error", code=503, for_s=0.2))
    (await alice.get(CONFIGMAPS)).check(503)
    await asyncio.sleep(0.25)
    (await alice.get(CONFIGMAPS)).check(200)


async def test_lost_answer_means_done_but_not_told(plane: EmbeddedPlane, alice: Api) -> None:
    await plane.faults.add(Fault(what="lose_answer", verb="create", count=1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await alice.post(CONFIGMAPS, configmap("a"))
    (await alice.get(f"{CONFIGMAPS}/a")).check(200)
    assert (plane.writes()[-1].verb, plane.writes()[-1].code) == ("create", 201)


async def test_partition_swallows_requests_and_never_carries_them_out(
    plane: EmbeddedPlane, alice: Api, bob: Api
) -> None:
    await plane.faults.add(Fault(what="partition", user="alice"))
    lost = asyncio.ensure_future(alice.post(CONFIGMAPS, configmap("a")))
    await asyncio.sleep(0.2)
    assert not lost.done()
    (await bob.get(f"{CONFIGMAPS}/a")).check(404)
    await plane.faults.clear()
    with pytest.raises(aiohttp.ClientConnectionError):
        await lost
    (await alice.get(f"{CONFIGMAPS}/a")).check(404)


async def test_partition_silences_the_watches_of_its_user(plane: EmbeddedPlane, alice: Api, bob: Api) -> None:
    async with (
        alice.watch(CONFIGMAPS, resourceVersion="0") as cut,
        bob.watch(CONFIGMAPS, resourceVersion="0") as whole,
    ):
        await plane.faults.add(Fault(what="partition", user="alice"))
        await bob.post(CONFIGMAPS, configmap("a"))
        assert await whole.short() == ("ADDED", "a")
        assert await cut.is_silent()


async def test_dropped_watch_ends_and_a_new_one_works(plane: EmbeddedPlane, alice: Api) -> None:
    async with alice.watch(CONFIGMAPS, resourceVersion="0") as watch:
        await plane.faults.add(Fault(what="drop_watches", user="alice", count=1))
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await watch.next()
    async with alice.watch(CONFIGMAPS, resourceVersion="0") as watch:
        await alice.post(CONFIGMAPS, configmap("a"))
        assert await watch.short() == ("ADDED", "a")


async def test_half_dead_watch_stays_open_without_events_or_bookmarks(
    plane: EmbeddedPlane, alice: Api
) -> None:
    query = {"resourceVersion": "0", "allowWatchBookmarks": "true"}
    async with alice.watch(CONFIGMAPS, **query) as old:
        fault = await plane.faults.add(Fault(what="mute_watches", resource="configmaps"))
        async with alice.watch(CONFIGMAPS, **query) as new:
            await alice.post(CONFIGMAPS, configmap("a"))
            assert await old.is_silent(0.6)
            assert await new.is_silent(0.1)
            await plane.faults.clear(fault)
            assert await old.is_silent(0.3), "once half dead, dead for good"
    async with alice.watch(CONFIGMAPS, **query) as healthy:
        assert await healthy.short() == ("ADDED", "a")


async def test_stale_list_tells_an_older_picture_where_the_rules_allow_it(
    plane: EmbeddedPlane, alice: Api
) -> None:
    before = (await alice.get(CONFIGMAPS)).version
    created = (await alice.post(CONFIGMAPS, configmap("a"))).check(201)
    await plane.faults.add(Fault(what="stale_lists", version=int(before)))
    stale = await alice.get(CONFIGMAPS, resourceVersion="0")
    assert (stale.body["items"], stale.version) == ([], before)
    floor = {"resourceVersion": created.version, "resourceVersionMatch": "NotOlderThan"}
    assert len((await alice.get(CONFIGMAPS, **floor)).body["items"]) == 1
    assert len((await alice.get(CONFIGMAPS)).body["items"]) == 1, "a consistent read is never stale"


async def test_faults_are_for_the_administrator(alice: Api) -> None:
    (await alice.post("/_faults", {"what": "latency"})).check(403)


@pytest.mark.parametrize("body", [b"{}", b'{"what":"earthquake"}', b'{"what":"error","delay":1}'])
async def test_fault_with_a_wrong_field_is_refused(plane: EmbeddedPlane, body: bytes) -> None:
    with pytest.raises(PlaneFailure, match="400"):
        await plane.order("POST", "/_faults", body)


async def test_unknown_fault_cannot_be_ended(plane: EmbeddedPlane) -> None:
    with pytest.raises(PlaneFailure, match="404"):
        await plane.faults.clear("fault-99999")


async def test_files_with_secrets_are_their_owners_only(plane: EmbeddedPlane) -> None:
    directory = Path(plane.kubeconfig).parent
    for name in ("kubeconfig", "token.key", "writes.jsonl"):
        assert (directory / name).stat().st_mode & 0o077 == 0, name
