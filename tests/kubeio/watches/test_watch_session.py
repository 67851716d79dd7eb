"""A watch session heals by itself and never goes back in time; on virtual time, against a fake server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeio.errors import (
    BadRequest,
    Expired,
    Forbidden,
    KubeError,
    NotFound,
    ServerFailure,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Changed, Gap, ListDone, Listed, ListStarted, Reflector, WatchEvent
from kubeio.watches.store import Change, Store
from tests.kubeio.virtual import LoopClock, rng
from tests.kubeio.watches.fake_server import WEBSITES, FakeServer

pytestmark = pytest.mark.looptime


def session(server: FakeServer, *, page_size: int = 3, label_selector: str = "") -> Reflector:
    return Reflector(
        ListerWatcher(server.client, WEBSITES, label_selector=label_selector),
        page_size=page_size,
        clock=LoopClock(),
        rng=rng(),
    )


class Recording:
    """The events of a session so far."""

    def __init__(self, source: Reflector) -> None:
        self.source = source
        self.events: list[WatchEvent] = []

    async def run(self) -> None:
        async for event in self.source.events():
            self.events.append(event)

    def gaps(self) -> list[Gap]:
        return [event for event in self.events if isinstance(event, Gap)]


@asynccontextmanager
async def running(main: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """*main* runs inside the block; what it raises fails the test."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(main())
        yield
        task.cancel()


class Followed:
    """An informer of a server's Websites, and the changes that it told since the last look."""

    def __init__(self, server: FakeServer, on_change: Callable[[Change], None] | None = None) -> None:
        self.server = server
        self.source = session(server)
        self.changes: list[Change] = []
        self.store = Store()
        self.informer = Informer(self.source, store=self.store, on_change=on_change or self.changes.append)

    def equals_the_server(self) -> bool:
        return {key: self.store.raw(key) for key in self.store} == self.server.snapshot()


@asynccontextmanager
async def following(
    server: FakeServer, *, on_change: Callable[[Change], None] | None = None, synced: bool = True
) -> AsyncIterator[Followed]:
    followed = Followed(server, on_change)
    async with running(followed.informer.run):
        if synced:
            await followed.informer.synced.wait()
            followed.changes.clear()
        yield followed


def server_with(count: int, *, has_watch_list: bool = True) -> FakeServer:
    server = FakeServer(has_watch_list=has_watch_list)
    for number in range(count):
        server.put(f"site-{number}")
    return server


@pytest.mark.parametrize("has_watch_list", [True, False])
async def test_first_list_is_whole_and_a_consistent_read(has_watch_list: bool) -> None:
    server = server_with(8, has_watch_list=has_watch_list)
    recording = Recording(session(server, label_selector="a=b"))
    async with running(recording.run):
        await asyncio.sleep(1)
    assert isinstance(recording.events[0], ListStarted)
    assert recording.events[-1] == ListDone(str(server.version))
    parts = [event.objects for event in recording.events if isinstance(event, Listed)]
    assert sum(len(part) for part in parts) == 8
    assert len(parts) == 3
    assert recording.source.resource_version == str(server.version)
    first_list = server.queries[0 if has_watch_list else 1]
    assert not first_list.get("rv")
    assert not first_list.get("resourceVersion")
    if has_watch_list:
        assert server.requests == ["WATCHLIST"], "the watch goes on in the same stream"
        assert first_list["labelSelector"] == "a=b"
    else:
        assert server.requests == ["WATCHLIST", "LIST", "LIST", "LIST", "WATCH"]


async def test_server_that_ignores_the_wish_for_a_streamed_list_is_read_in_pages() -> None:
    server = server_with(1, has_watch_list=False)
    server.ignores_watch_list = True
    async with following(server, synced=False) as followed:
        await asyncio.sleep(29)
        assert not followed.informer.synced.is_set(), "nothing proved that the stream was complete"
        await asyncio.sleep(2)
        assert followed.informer.synced.is_set()
        assert followed.equals_the_server()


async def test_a_streamed_list_that_the_server_ends_is_read_in_pages_at_once() -> None:
    server = server_with(8)
    server.ends_streams_after = 3
    async with following(server, synced=False) as followed:
        await asyncio.sleep(0.2)
        assert followed.informer.synced.is_set()
        assert followed.equals_the_server()
    assert server.requests == ["WATCHLIST", "LIST", "LIST", "LIST", "WATCH"]


async def test_changes_reach_the_consumer_at_once_with_their_kind() -> None:
    server = server_with(0)
    async with following(server) as followed:
        server.put("a", spec=1)
        await asyncio.sleep(0.01)
        server.put("a", spec=2)
        await asyncio.sleep(0.01)
        server.remove("a")
        await asyncio.sleep(0.01)
    reported = [(change.old is not None, change.new is not None) for change in followed.changes]
    assert reported == [(False, True), (True, True), (True, False)]


@pytest.mark.parametrize(
    "error",
    [
        Unauthorized("LIST", status=401),
        Forbidden("LIST", status=403),
        NotFound("LIST", status=404),
        BadRequest("LIST", status=400),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_first_list_that_cannot_succeed_is_reported_and_a_later_one_heals(error: KubeError) -> None:
    server = FakeServer()
    server.refuse = [BadRequest("WATCH", status=400), error]
    with pytest.raises(type(error)):
        await session(server).events().__anext__()

    recording = Recording(session(server))
    async with running(recording.run):
        await asyncio.sleep(1)
        server.compact()
        server.put("a")
        server.compact()
        server.cut_streams()
        server.refuse = [Expired("WATCH", status=410), error]
        await asyncio.sleep(5)
    assert error in [gap.error for gap in recording.gaps()]
    assert recording.events[-1] == ListDone(str(server.version))
    assert recording.source.failures == 0
    assert recording.source.last_error is None


async def test_first_list_waits_for_a_server_that_is_down() -> None:
    server = server_with(0)
    server.is_down = True
    async with following(server, synced=False) as followed:
        await asyncio.sleep(100)
        assert followed.source.failures > 5
        assert followed.source.sign_of_life_at == 0
        assert len(server.requests) < 25, "it backs off"
        server.is_down = False
        await asyncio.sleep(31)
        assert followed.informer.synced.is_set()


async def test_end_of_a_watch_is_followed_by_a_watch_and_not_by_a_list() -> None:
    server = server_with(1)
    async with following(server) as followed:
        await asyncio.sleep(3600)
        server.put("b")
        await asyncio.sleep(0.1)
        assert followed.equals_the_server()
    assert server.requests[0] == "WATCHLIST"
    assert set(server.requests[1:]) == {"WATCH"}
    assert 6 <= len(server.requests) <= 13, "each watch lasts 5 to 10 minutes"


async def test_cut_watch_resumes_and_misses_nothing() -> None:
    server = server_with(0)
    async with following(server) as followed:
        for number in range(5):
            server.cut_streams()
            server.put(f"site-{number}")
            await asyncio.sleep(0.001)
        await asyncio.sleep(10)
        assert followed.equals_the_server()
    assert "LIST" not in server.requests
    assert server.open_streams == 0


async def test_version_that_expired_leads_to_a_list_not_older_than_what_was_seen() -> None:
    server = server_with(7)
    async with following(server) as followed:
        seen = followed.source.resource_version
        server.is_down = True
        server.cut_streams()
        await asyncio.sleep(1)
        server.remove("site-3")
        server.put("site-1", spec=9)
        server.put("site-8")
        server.compact()
        server.is_down = False
        came_back = len(server.requests)
        await asyncio.sleep(40)
        assert followed.equals_the_server()
    assert server.requests[came_back:][:2] == ["WATCH", "LIST"], "the first answer of 410 leads to the list"
    lists = [q for verb, q in zip(server.requests, server.queries, strict=True) if verb == "LIST"]
    assert lists[0] == {"rv": seen, "match": "NotOlderThan", "limit": "3"}
    assert {each.key.name for each in followed.changes} == {"site-1", "site-3", "site-8"}, "only differences"


async def test_stale_list_is_refused_and_brings_nothing_back() -> None:
    server = server_with(1)
    stale = server.version
    async with following(server) as followed:
        server.remove("site-0")
        await asyncio.sleep(1)
        followed.changes.clear()
        server.stale_list_at = stale
        server.refuse = [Expired("WATCH", status=410)]
        server.cut_streams()
        await asyncio.sleep(20)
        assert followed.changes == []
        assert len(followed.store) == 0
        assert "StaleList" in str(followed.source.last_error)
        server.stale_list_at = None
        await asyncio.sleep(40)
        assert followed.source.last_error is None
        assert followed.equals_the_server()


async def test_silent_watch_is_dead_and_is_started_again() -> None:
    server = server_with(0)
    async with following(server, synced=False) as followed:
        await asyncio.sleep(150)
        assert server.requests == ["WATCHLIST"], "bookmarks keep it alive"
        server.freeze_streams()
        server.put("a")
        await asyncio.sleep(120 + 90 - 150 - 1)
        assert len(followed.store) == 0
        await asyncio.sleep(2)
        assert followed.equals_the_server()
        assert server.open_streams == 1
        assert server.requests == ["WATCHLIST", "LIST", "WATCH"]


async def test_sign_of_life_stands_still_while_the_server_says_nothing() -> None:
    server = server_with(0)
    async with following(server, synced=False) as followed:
        await asyncio.sleep(125)
        assert followed.source.sign_of_life_at == pytest.approx(120, abs=1)
        server.is_down = True
        server.cut_streams()
        await asyncio.sleep(100)
        assert followed.source.sign_of_life_at == pytest.approx(120, abs=1)


async def test_quiet_server_that_sends_no_bookmarks_is_known_to_be_alive_by_lists() -> None:
    server = server_with(0)
    server.sends_bookmarks = False
    async with following(server, synced=False) as followed:
        for _ in range(600):
            await asyncio.sleep(1)
            assert LoopClock().now() - followed.source.sign_of_life_at < 92


@asynccontextmanager
async def recording(server: FakeServer) -> AsyncIterator[Recording]:
    """The events of a session that has watched for a second before the block begins."""
    found = Recording(session(server))
    async with running(found.run):
        await asyncio.sleep(1)
        yield found


async def test_error_event_is_retried_with_backoff_from_the_same_version() -> None:
    server = server_with(0)
    async with recording(server) as found:
        server.error_event = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "boom"}
        server.cut_streams()
        await asyncio.sleep(20)
        server.put("a")
        await asyncio.sleep(1)
    assert [type(gap.error) for gap in found.gaps()][1] is ServerFailure
    assert isinstance(found.events[-1], Changed)
    assert "LIST" not in server.requests


async def test_retry_after_is_honoured_and_not_by_all_in_the_same_instant() -> None:
    server = server_with(0)
    async with recording(server) as found:
        server.refuse = [TooManyRequests("WATCH", status=429, retry_after_s=7)]
        server.cut_streams()
        await asyncio.sleep(30)
    waits = [gap.retry_in_s for gap in found.gaps()]
    assert waits[0] <= 0.25
    assert 7 < waits[1] <= 8


async def test_what_an_outage_taught_about_waiting_is_forgotten_when_the_server_answers() -> None:
    server = server_with(0)
    away = Unreachable("WATCH", "connection refused", maybe_done=False)
    async with recording(server) as found:
        server.refuse = [*[away] * 6, Expired("WATCH", status=410)]
        server.cut_streams()
        await asyncio.sleep(60)
    expired = next(gap for gap in found.gaps() if isinstance(gap.error, Expired))
    assert max(gap.retry_in_s for gap in found.gaps()) > 2
    assert expired.retry_in_s <= 0.25


async def test_watch_that_ends_as_soon_as_it_begins_is_not_repeated_in_a_hot_loop() -> None:
    server = server_with(0)
    async with recording(server):
        server.polite_end_after_s = 0.0
        server.cut_streams()
        await asyncio.sleep(60)
    assert 3 < len(server.requests) < 20


async def test_torn_line_is_not_believed_and_nothing_is_missed() -> None:
    server = server_with(0)
    async with following(server) as followed:
        server.torn_line = True
        server.put("a")
        await asyncio.sleep(5)
        assert followed.equals_the_server()


async def test_list_whose_pages_expire_is_read_in_one_go_and_the_unfinished_one_removes_nothing() -> None:
    server = server_with(7, has_watch_list=False)
    async with following(server) as followed:
        server.refuse = [Expired("WATCH", status=410)]
        server.cut_streams()
        await server.wait_for_request("LIST")
        await asyncio.sleep(0.011)  # its first page was read
        server.put("new")
        server.compact()
        await asyncio.sleep(30)
        assert followed.equals_the_server()
    limits = [q["limit"] for verb, q in zip(server.requests, server.queries, strict=True) if verb == "LIST"]
    assert limits[-1] == "0"
    assert [change.key.name for change in followed.changes] == ["new"]


async def test_list_that_was_read_in_one_go_comes_in_parts() -> None:
    server = server_with(8, has_watch_list=False)
    found = Recording(session(server))
    async with running(found.run):
        await server.wait_for_request("LIST")
        await asyncio.sleep(0.011)  # its first page was read
        server.compact()
        await asyncio.sleep(30)
    assert server.queries[-2]["limit"] == "0"
    parts = [len(event.objects) for event in found.events if isinstance(event, Listed)]
    assert parts[-3:] == [3, 3, 2]


async def test_watch_refused_again_and_again_leads_to_a_list() -> None:
    server = server_with(0)
    async with following(server) as followed:
        server.refuse = [ServerFailure("WATCH", status=500)] * 6
        server.cut_streams()
        await asyncio.sleep(60)
        server.put("a")
        await asyncio.sleep(1)
        assert followed.equals_the_server()
    assert "LIST" in server.requests


async def test_closing_the_events_closes_the_stream() -> None:
    server = FakeServer(has_watch_list=True)
    events = session(server).events()
    while not isinstance(await anext(events), ListDone):
        pass
    assert server.open_streams == 1
    await events.aclose()
    assert server.open_streams == 0


@pytest.mark.parametrize("has_watch_list", [True, False])
async def test_a_list_that_comes_at_once_leaves_the_loop_to_others_between_its_parts(
    has_watch_list: bool,
) -> None:
    loop = asyncio.get_running_loop()
    turns: list[None] = []
    taken: Counter[int] = Counter()

    def hear(change: Change) -> None:
        taken[len(turns)] += 1
        loop.call_soon(turns.append, None)  # runs in the loop's next turn

    async with following(server_with(40, has_watch_list=has_watch_list), on_change=hear):
        pass
    assert taken.total() == 40
    assert max(taken.values()) == 3, "the session's page size"


@pytest.mark.parametrize("has_watch_list", [True, False])
async def test_an_object_nested_too_deep_is_in_the_store_and_the_session_goes_on(
    has_watch_list: bool,
) -> None:
    server = server_with(0, has_watch_list=has_watch_list)
    deep = "[" * 9_900 + "]" * 9_900
    server.put("first", spec=deep)
    async with following(server) as followed:
        server.put("second", spec=deep)
        server.put("third")
        await asyncio.sleep(1)
        assert {key.name for key in followed.store} == {"first", "second", "third"}


async def test_what_fails_for_one_object_stops_no_other() -> None:
    def on_change(change: Change) -> None:
        if change.key.name == "bad":
            raise RuntimeError("whatever")

    server = server_with(1, has_watch_list=False)
    async with following(server, on_change=on_change) as followed:
        for name in ("bad", "better"):
            server.put(name)
        await asyncio.sleep(1)
        assert {key.name for key in followed.store} == {"site-0", "bad", "better"}
