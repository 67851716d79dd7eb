"""Every fault does to the right requests what it says, to no others, and ends when it should: on both planes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from devcluster.embedded import PlaneFailed, embedded_plane
from devcluster.faults import Fault
from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing, real_plane
from tests.contract.api import Api, api_from

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)]
)
async def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("plane")
    if request.param == "embedded":
        async with embedded_plane(directory, bookmark_interval_s=0.2, faults=True) as embedded:
            yield embedded
        return
    try:
        async with real_plane(directory, audit=True, faults=True) as real:
            yield real
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(loop_scope="module")
async def alice(plane: ControlPlane, bob: Api) -> AsyncIterator[Api]:
    async with api_from(await plane.kubeconfig_for("alice")) as api:
        yield api
    await plane.faults.clear()
    await bob.delete(CONFIGMAPS)


@pytest_asyncio.fixture(loop_scope="module")
async def bob(plane: ControlPlane) -> AsyncIterator[Api]:
    async with api_from(await plane.kubeconfig_for("bob")) as api:
        yield api


def configmap(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}}


async def test_latency_delays_the_user_it_is_meant_for(plane: ControlPlane, alice: Api, bob: Api) -> None:
    await plane.faults.add(Fault(what="latency", user="alice", delay_s=1.0))
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        delayed = tasks.create_task(alice.get(CONFIGMAPS))
        (await bob.get(CONFIGMAPS)).check(200)
        assert not delayed.done()
    delayed.result().check(200)
    assert time.monotonic() - began >= 1.0


async def test_too_many_requests_comes_with_retry_after_and_ends_with_its_count(
    plane: ControlPlane, alice: Api
) -> None:
    await plane.faults.add(Fault(what="error", verb="create", code=429, retry_after_s=7, count=2))
    (await alice.get(CONFIGMAPS)).check(200)
    for _ in range(2):
        refused = (await alice.post(CONFIGMAPS, configmap("a"))).check(429)
        assert refused.headers["Retry-After"] == "7"
        assert refused.body["reason"] == "TooManyRequests"
    assert await plane.faults.active() == []
    (await alice.post(CONFIGMAPS, configmap("a"))).check(201)


async def test_fault_strikes_writes_of_its_resource_only(plane: ControlPlane, alice: Api) -> None:
    await plane.faults.add(Fault(what="error", verb="write", resource="configmaps", code=500))
    (await alice.post(CONFIGMAPS, configmap("a"))).check(500)
    (await alice.post("/api/v1/namespaces/default/serviceaccounts", configmap("a"))).check(201)
    (await alice.get(CONFIGMAPS)).check(200)


async def test_fault_ends_with_its_time(plane: ControlPlane, alice: Api) -> None:
    await plane.faults.add(Fault(what="error", code=503, for_s=0.2))
    (await alice.get(CONFIGMAPS)).check(503)
    await asyncio.sleep(0.25)
    (await alice.get(CONFIGMAPS)).check(200)


async def test_lost_answer_means_done_but_not_told(plane: ControlPlane, alice: Api) -> None:
    await plane.faults.add(Fault(what="lose_answer", verb="create", count=1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await alice.post(CONFIGMAPS, configmap("a"))
    (await alice.get(f"{CONFIGMAPS}/a")).check(200)
    assert (plane.writes()[-1].verb, plane.writes()[-1].code) == ("create", 201)


async def test_cut_request_is_lost_before_it_is_carried_out(
    plane: ControlPlane, alice: Api, bob: Api
) -> None:
    await plane.faults.add(Fault(what="cut", verb="create", count=1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await alice.post(CONFIGMAPS, configmap("a"))
    (await alice.get(f"{CONFIGMAPS}/a")).check(404)
    (await alice.post(CONFIGMAPS, configmap("a"))).check(201)


async def test_repeated_request_arrives_twice_and_is_answered_once(plane: ControlPlane, alice: Api) -> None:
    await plane.faults.add(Fault(what="repeat", verb="create", count=1, delay_s=0.1))
    (await alice.post(CONFIGMAPS, configmap("a"))).check(201)
    async with asyncio.timeout(10):
        while (codes := [write.code for write in plane.writes()[-2:]]) != [201, 409]:  # noqa: ASYNC110 - a log
            await asyncio.sleep(0.05)
    assert codes == [201, 409]


async def test_expired_watches_end_and_new_ones_say_so_while_it_lasts(
    plane: ControlPlane, alice: Api
) -> None:
    version = (await alice.get(CONFIGMAPS)).version
    async with alice.watch(CONFIGMAPS, resourceVersion=version) as watch:
        fault = await plane.faults.add(Fault(what="expire_watches", user="alice"))
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await watch.next()
    async with alice.watch(CONFIGMAPS, resourceVersion=version) as watch:
        event = await watch.next()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
            "ERROR",
            410,
            "Expired",
        )
        with pytest.raises(EOFError):
            await watch.next()
    (await alice.get(CONFIGMAPS)).check(200)
    await plane.faults.clear(fault)
    async with alice.watch(CONFIGMAPS, resourceVersion=version) as watch:
        (await alice.post(CONFIGMAPS, configmap("a"))).check(201)
        assert await watch.short() == ("ADDED", "a")


async def test_withheld_bookmarks_leave_the_other_events_of_a_watch(plane: ControlPlane, alice: Api) -> None:
    version = (await alice.get(CONFIGMAPS)).version
    await plane.faults.add(Fault(what="withhold_bookmarks", user="alice"))
    async with alice.watch(CONFIGMAPS, resourceVersion=version, allowWatchBookmarks="true") as watch:
        with pytest.raises(TimeoutError):
            await watch.next(timeout_s=1.0)  # the embedded server sends one each 0.2 s
        (await alice.post(CONFIGMAPS, configmap("a"))).check(201)
        assert await watch.short() == ("ADDED", "a")


async def test_cut_of_an_account_resets_all_that_it_has_open(
    plane: ControlPlane, alice: Api, bob: Api
) -> None:
    async with (
        alice.watch(CONFIGMAPS, resourceVersion="0") as cut,
        bob.watch(CONFIGMAPS, resourceVersion="0") as whole,
    ):
        fault = await plane.faults.add(Fault(what="cut", user="alice"))
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await cut.next()
        with pytest.raises(aiohttp.ClientConnectionError):
            await alice.get(CONFIGMAPS)
        await plane.faults.clear(fault)
        (await alice.post(CONFIGMAPS, configmap("a"))).check(201)
        assert await whole.short() == ("ADDED", "a")


async def test_user_agent_tells_two_clients_of_one_account_apart(plane: ControlPlane, alice: Api) -> None:
    await plane.faults.add(Fault(what="error", user_agent="robot/", code=503))
    (await alice.get(CONFIGMAPS)).check(200)
    (await alice.request("GET", CONFIGMAPS, headers={"User-Agent": "robot/1.2"})).check(503)


async def test_slow_watch_says_everything_late_and_in_order(plane: ControlPlane, alice: Api) -> None:
    version = (await alice.get(CONFIGMAPS)).version
    async with alice.watch(CONFIGMAPS, resourceVersion=version) as watch:
        await plane.faults.add(Fault(what="slow_watches", user="alice", delay_s=0.4))
        began = time.monotonic()
        for name in ("a", "b"):
            (await alice.post(CONFIGMAPS, configmap(name))).check(201)
        assert time.monotonic() - began < 0.35, "a write is not slow"
        assert [await watch.short(), await watch.short()] == [("ADDED", "a"), ("ADDED", "b")]
        assert time.monotonic() - began >= 0.4


async def test_long_list_passes_whole(alice: Api) -> None:
    for name in ("a", "b"):
        body = configmap(name) | {"data": {"k": "x" * 900_000}}
        (await alice.post(CONFIGMAPS, body)).check(201)
    listed = (await alice.get(CONFIGMAPS)).check(200).body["items"]
    assert [len(item["data"]["k"]) for item in listed] == [900_000, 900_000]


async def refused(api: Api) -> None:
    """Return when connections are refused: the proxy learns at the first one that the server is away."""
    async with asyncio.timeout(5):
        while True:
            try:
                await api.get(CONFIGMAPS)
            except aiohttp.ClientConnectorError:
                return
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)


async def test_server_that_restarts_breaks_connections_and_comes_back(
    plane: ControlPlane, alice: Api
) -> None:
    (await alice.post(CONFIGMAPS, configmap("a"))).check(201)
    async with alice.watch(CONFIGMAPS, resourceVersion="0") as watch:
        await watch.next()
        restarting = asyncio.ensure_future(plane.restart(away_s=1.0))
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await watch.next()
        await refused(alice)
        await restarting
    (await alice.get(f"{CONFIGMAPS}/a")).check(200)


async def test_partition_swallows_requests_and_never_carries_them_out(
    plane: ControlPlane, alice: Api, bob: Api
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


async def test_partition_silences_the_watches_of_its_user(plane: ControlPlane, alice: Api, bob: Api) -> None:
    async with (
        alice.watch(CONFIGMAPS, resourceVersion="0") as cut,
        bob.watch(CONFIGMAPS, resourceVersion="0") as whole,
    ):
        await plane.faults.add(Fault(what="partition", user="alice"))
        await bob.post(CONFIGMAPS, configmap("a"))
        assert await whole.short() == ("ADDED", "a")
        assert await cut.is_silent()


async def test_held_request_waits_for_the_end_of_the_fault(plane: ControlPlane, alice: Api, bob: Api) -> None:
    fault = await plane.faults.add(Fault(what="hold", user="alice"))
    waiting = asyncio.ensure_future(alice.post(CONFIGMAPS, configmap("a")))
    await held(plane, fault)
    assert not waiting.done()
    (await bob.get(f"{CONFIGMAPS}/a")).check(404)
    await plane.faults.clear(fault)
    (await waiting).check(201)


async def held(plane: ControlPlane, fault: str, requests: int = 1) -> None:
    """Return when *requests* are held."""
    async with asyncio.timeout(5):
        while await plane.faults.hits(fault) < requests:  # noqa: ASYNC110 - another process's count
            await asyncio.sleep(0.01)


async def test_held_request_is_delivered_after_its_client_is_gone(plane: ControlPlane, bob: Api) -> None:
    async with api_from(await plane.kubeconfig_for("carol")) as carol:
        (await carol.get(CONFIGMAPS)).check(200)
        fault = await plane.faults.add(Fault(what="hold", user="carol"))
        waiting = asyncio.ensure_future(carol.post(CONFIGMAPS, configmap("a")))
        await held(plane, fault)
        waiting.cancel()
    (await bob.get(f"{CONFIGMAPS}/a")).check(404)
    await plane.faults.clear(fault)
    async with asyncio.timeout(5):
        while (await bob.get(f"{CONFIGMAPS}/a")).status != 200:  # noqa: ASYNC110 - the server's
            await asyncio.sleep(0.01)
    await bob.delete(CONFIGMAPS)


async def test_held_watch_delivers_every_event_in_order_afterwards(
    plane: ControlPlane, alice: Api, bob: Api
) -> None:
    async with alice.watch(CONFIGMAPS, resourceVersion="0") as watch:
        fault = await plane.faults.add(Fault(what="hold", user="alice"))
        for name in ("a", "b"):
            (await bob.post(CONFIGMAPS, configmap(name))).check(201)
        assert await watch.is_silent()
        await plane.faults.clear(fault)
        assert [await watch.short(), await watch.short()] == [("ADDED", "a"), ("ADDED", "b")]


async def test_dropped_watch_ends_and_a_new_one_works(plane: ControlPlane, alice: Api) -> None:
    async with alice.watch(CONFIGMAPS, resourceVersion="0") as watch:
        await plane.faults.add(Fault(what="cut", verb="watch", user="alice", count=1))
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await watch.next()
    async with alice.watch(CONFIGMAPS, resourceVersion="0") as watch:
        await alice.post(CONFIGMAPS, configmap("a"))
        assert await watch.short() == ("ADDED", "a")


async def test_half_dead_watch_stays_open_without_events_or_bookmarks(
    plane: ControlPlane, alice: Api
) -> None:
    query = {"resourceVersion": (await alice.get(CONFIGMAPS)).version, "allowWatchBookmarks": "true"}
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
    plane: ControlPlane, alice: Api
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


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"what": "earthquake"},
        {"what": "error", "delay": 1},
        {"what": "stale_lists"},
        {"what": "hold", "count": 1},
    ],
)
async def test_fault_with_a_wrong_field_is_refused(plane: ControlPlane, body: dict[str, object]) -> None:
    async with api_from(plane.kubeconfig) as admin:
        assert "fault: " in (await admin.post("/_faults", body)).check(400).message


async def test_unknown_fault_cannot_be_ended(plane: ControlPlane) -> None:
    with pytest.raises(PlaneFailed, match="404"):
        await plane.faults.clear("fault-99999")


async def test_files_with_secrets_are_their_owners_only(plane: ControlPlane) -> None:
    directory = Path(plane.kubeconfig).parent
    names = ("*kubeconfig", "token*.key", "writes.jsonl", "front-proxy.pem")
    found = [path for name in names for path in directory.glob(name)]
    assert len(found) >= 3
    for path in found:
        assert path.stat().st_mode & 0o077 == 0, path
