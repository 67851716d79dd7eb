"""Lists that are held back, watches that never are, switches between two: `sharder.unowned.reflectors` on virtual time.

The API server is the fake one of the watch sessions; it knows no selectors, so everything it has is unowned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar, cast

import msgspec
import pytest

from kubeio.errors import BadRequest, Forbidden, HistoryWentBack, KubeError, ServerFailure
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from sharder.ringspec.scope import EVERYWHERE
from sharder.unowned import reflector
from sharder.unowned.access import ObjectAccess
from sharder.unowned.pending import ENOUGH, AssignmentPriority, PendingObjects
from sharder.unowned.permissions import TRY_AGAIN_S, MissingPermissions
from sharder.unowned.reflectors import ENOUGH_TO_DO, LIST_ORPHANS_S, OVERLAP_S, UnownedReflectors
from tests.kubeio.virtual import LoopClock, rng
from tests.kubeio.watches.fake_server import FakeServer
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES

pytestmark = pytest.mark.looptime

T = TypeVar("T")
PAGE = reflector.PAGE


class Servers:
    """One fake server for each of two resources."""

    def __init__(self) -> None:
        self.websites = FakeServer()
        self.configmaps = FakeServer()
        self.on_their_way_s = 0.0
        """How long a list that was made is on its way."""
        self.selectors: dict[str, list[str]] = {"websites": [], "configmaps": []}
        """Of the first pages that were asked for, each one once."""
        self.without_numbers = ""
        """The resource whose versions are no numbers."""
        self.orphans = FakeServer()
        """What a list of `shard in (...)` shows."""

    def _of(self, plural: str) -> FakeServer:
        return self.websites if plural.endswith("websites") else self.configmaps

    async def list_as(
        self,
        resource: ApiResource,
        *,
        type: type[T],  # noqa: A002 - the client's word
        limit: int,
        label_selector: str,
        continue_: str = "",
        **_: object,
    ) -> T:
        if label_selector not in self.selectors[resource.plural]:
            self.selectors[resource.plural].append(label_selector)
        server = self.orphans if " in (" in label_selector else self._of(resource.plural)
        page = await server.list_page(WEBSITES, limit=limit, continue_=continue_)
        await asyncio.sleep(self.on_their_way_s)
        items = b",".join(item.raw for item in page.objects)
        prefix = "opaque-" if resource.plural == self.without_numbers else ""
        meta = msgspec.json.encode(
            {"resourceVersion": prefix + page.resource_version, "continue": page.continue_}
        )
        return msgspec.json.decode(b'{"metadata":%s,"items":[%s]}' % (meta, items), type=type)

    def stream(
        self, path: str, *, query: Mapping[str, str], **more: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._of(path).stream("/apis/example.com/v1/websites", query=query, **more)


class Watched:
    """An unowned watch over *resources*, and what it told."""

    def __init__(self, *resources: ApiResource, controlled: tuple[ApiResource, ...] = ()) -> None:
        self.servers = Servers()
        self.pending = PendingObjects()
        self.waiting = 0
        self.news: list[str] = []
        self.told: list[str] = []
        self.listed: list[float] = []
        clock = LoopClock()
        self.permissions = MissingPermissions(
            now=clock.now, on_change=lambda right, missing: self.told.append(f"{right} {missing}")
        )
        self.unowned = UnownedReflectors(
            ObjectAccess(cast(Client, self.servers), self.permissions, clock, rng()),
            resources,
            self.pending,
            self,
            keys=KEYS,
            scope=EVERYWHERE,
            controlled=controlled,
        )

    def enqueue_name(self, name: str) -> None:
        self.news.append(name[1:])

    def controlled_listed(self) -> None:
        self.enqueue_all()

    def enqueue_all(self) -> None:
        self.listed.append(asyncio.get_running_loop().time())

    def backlog(self) -> int:
        return self.waiting

    @property
    def server(self) -> FakeServer:
        return self.servers.websites

    def fill(self, count: int) -> None:
        for number in range(count):
            self.server.put(f"site-{number:05}")

    def settle(self, name: str) -> None:
        """The mover assigned it: it leaves the selection."""
        found = self.pending.by_name(self.pending.prefix(WEBSITES.group_resource) + f"default/{name}")
        assert found is not None
        self.pending.drop_up_to(self.pending.name(found.ref), int(found.meta.resource_version))
        self.server.remove(name)


@asynccontextmanager
async def watching(
    *resources: ApiResource, controlled: tuple[ApiResource, ...] = ()
) -> AsyncIterator[Watched]:
    watched = Watched(*(resources or (WEBSITES,)), controlled=controlled)
    running = asyncio.create_task(watched.unowned.run())
    yield watched
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_no_further_page_is_asked_for_while_much_is_to_be_done() -> None:
    async with watching() as watched:
        watched.fill(3 * PAGE)
        watched.unowned.select({"a"})
        watched.waiting = ENOUGH_TO_DO
        await asyncio.sleep(60)
        assert (watched.server.requests.count("LIST"), len(watched.pending)) == (1, 0)
        watched.waiting = ENOUGH_TO_DO - 1
        watched.unowned.resume_lists()
        await asyncio.sleep(5)
        assert len(watched.pending) == 3 * PAGE
        assert watched.unowned.listed_at is not None


async def test_no_further_page_is_asked_for_while_much_waits_though_nothing_can_be_done() -> None:
    async with watching() as watched:
        watched.fill(ENOUGH + 3 * PAGE)
        watched.unowned.select({"a"})
        await asyncio.sleep(60)
        assert len(watched.pending) == ENOUGH
        assert watched.unowned.listed_at is None


async def test_what_waits_of_one_kind_holds_no_list_of_another_back() -> None:
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.fill(ENOUGH + PAGE)
        watched.servers.configmaps.put("page")
        watched.servers.configmaps.refuse = broken(5)
        watched.unowned.select({"a"})
        await asyncio.sleep(60)
        assert len(watched.pending) == ENOUGH + 1
        assert "default/page" in watched.news


async def test_what_is_made_while_a_list_is_held_back_is_seen_at_once() -> None:
    async with watching() as watched:
        watched.fill(3 * PAGE)
        watched.unowned.select({"a"})
        await asyncio.sleep(1)
        watched.waiting = ENOUGH_TO_DO
        watched.unowned.resume_lists()
        watched.unowned.refresh()
        await asyncio.sleep(5)
        watched.news.clear()
        watched.server.put("new")
        await asyncio.sleep(0.001)
        assert watched.news == ["default/new"]
        [name] = [name for name in watched.pending.names() if name.endswith("/new")]
        assert watched.pending.priority(name) is AssignmentPriority.NEW


async def test_what_a_list_finds_is_backlog() -> None:
    async with watching() as watched:
        watched.fill(3)
        watched.unowned.select({"a"})
        await asyncio.sleep(1)
        assert {watched.pending.priority(name) for name in watched.pending.names()} == {
            AssignmentPriority.BACKLOG
        }


async def test_nothing_is_shown_twice_at_the_same_version_when_the_watch_switches() -> None:
    async with watching() as watched:
        watched.fill(20)
        watched.unowned.select({"a"})
        await asyncio.sleep(3)
        assert len(watched.news) == 20
        watched.servers.on_their_way_s = 1.0
        watched.unowned.select({"b"})
        await asyncio.sleep(0.5)  # the next list is on its way, and shows everything as it was a moment ago
        watched.settle("site-00007")
        watched.settle("site-00013")
        watched.server.put("made-meanwhile")
        await asyncio.sleep(10)
        assert sorted(watched.news) == sorted({*watched.news}), "each object once"
        assert len(watched.pending) == 19


@pytest.mark.parametrize("later_s", [0.01, 0.05, 0.1])
async def test_a_watch_that_is_being_replaced_takes_nothing_from_the_list_of_the_next_one(
    later_s: float,
) -> None:
    async with watching() as watched:
        watched.fill(3 * PAGE)
        watched.unowned.select({"a"})
        await asyncio.sleep(3)
        watched.server.cut_streams()
        watched.settle("site-00001")
        watched.server.compact()  # the old watch begins anew when it has waited
        await asyncio.sleep(later_s)
        watched.servers.on_their_way_s = 0.1
        watched.unowned.select({"b"})
        await asyncio.sleep(10)
        assert len(watched.pending) == 3 * PAGE - 1


async def test_two_watches_run_for_a_moment_only() -> None:
    async with watching() as watched:
        watched.unowned.select({"a"})
        await asyncio.sleep(3)
        assert watched.server.open_streams == 1
        watched.unowned.select({"b"})
        await asyncio.sleep(OVERLAP_S / 2)
        assert watched.server.open_streams == 2
        await asyncio.sleep(OVERLAP_S)
        assert watched.server.open_streams == 1
        assert watched.pending.remembered == 0


async def test_a_list_that_took_too_long_begins_again_and_what_went_meanwhile_is_forgotten() -> None:
    async with watching() as watched:
        watched.fill(3 * PAGE)
        watched.unowned.select({"a"})
        await asyncio.sleep(0.015)  # a page takes 10 ms
        watched.waiting = ENOUGH_TO_DO
        watched.unowned.resume_lists()
        await asyncio.sleep(1)
        assert PAGE <= len(watched.pending) < 3 * PAGE
        watched.settle("site-00001")
        watched.server.cut_streams()
        watched.server.compact()
        watched.waiting = 0
        watched.unowned.resume_lists()
        await asyncio.sleep(30)
        assert len(watched.pending) == 3 * PAGE - 1
        assert len(watched.news) == 3 * PAGE, "what was known already is no news"
        assert watched.unowned.listed_at is not None


async def test_a_page_that_fails_is_asked_for_again() -> None:
    async with watching() as watched:
        watched.fill(2 * PAGE)
        watched.unowned.select({"a"})
        await watched.server.wait_for_request("WATCH")
        watched.server.refuse = [ServerFailure("LIST", status=500) for _ in range(3)]
        await asyncio.sleep(30)
        assert len(watched.pending) == 2 * PAGE
        assert watched.server.requests.count("LIST") <= 5


async def test_a_list_older_than_what_was_seen_is_not_believed() -> None:
    async with watching() as watched:
        watched.fill(5)
        watched.unowned.select({"a"})
        await asyncio.sleep(3)
        before = watched.server.version
        watched.settle("site-00003")
        await asyncio.sleep(1)
        watched.server.stale_list_at = before
        watched.server.cut_streams()
        watched.server.compact()
        await asyncio.sleep(60)
        assert len(watched.pending) == 4
        assert len(watched.news) == 5


async def test_controlled_objects_are_listed_before_what_controls_them() -> None:
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        watched.fill(3)
        watched.servers.configmaps.put("page")
        watched.servers.configmaps.refuse = [ServerFailure("LIST", status=500) for _ in range(4)]
        watched.unowned.select({"a"})
        assert not watched.unowned.knows_controlled
        await asyncio.sleep(0.1)
        assert watched.news == []
        watched.server.put("new")
        await asyncio.sleep(0.001)
        assert watched.news == ["default/new"], "the watch waits for nobody"
        await asyncio.sleep(30)
        assert watched.news[1] == "default/page"
        assert len(watched.pending) == 5
        assert len(watched.listed) == 2, "once when the controlled ones were known, and once at the end"


async def test_without_controlled_kinds_no_parent_waits_for_the_list() -> None:
    async with watching() as watched:
        watched.waiting = ENOUGH_TO_DO
        watched.unowned.select({"a"})
        assert watched.unowned.knows_controlled


async def test_a_missing_right_is_told_and_tried_again_and_stops_nobody() -> None:
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        message = 'User "s" cannot list resource "configmaps" in API group ""'
        denial = Forbidden("LIST", status=403, reason="Forbidden", message=message)
        watched.servers.configmaps.refuse = [denial] * 3
        watched.servers.configmaps.put("page")
        watched.fill(3)
        watched.unowned.select({"a"})
        await asyncio.sleep(1)
        assert watched.told == ["list configmaps True"]
        assert len(watched.pending) == 3, "the other resource goes on"
        await asyncio.sleep(4 * TRY_AGAIN_S)
        assert watched.told == ["list configmaps True", "list configmaps False"]
        assert len(watched.pending) == 4


async def test_a_new_selector_while_a_list_is_held_back_begins_at_once() -> None:
    async with watching() as watched:
        watched.fill(3 * PAGE)
        watched.waiting = ENOUGH_TO_DO
        watched.unowned.select({"a"})
        await asyncio.sleep(5)
        watched.waiting = 0
        watched.unowned.select({"b"})
        await asyncio.sleep(OVERLAP_S + 1)
        assert len(watched.pending) == 3 * PAGE
        assert watched.server.open_streams == 1


# ---- a resource that cannot be listed -----------------------------------------------------------------------------


def broken(count: int = 1000) -> list[KubeError]:
    message = "conversion webhook for example.com/v1, Kind=Website failed: connection refused"
    return [ServerFailure("LIST configmaps", status=500, reason="InternalError", message=message)] * count


async def test_a_resource_that_cannot_be_listed_delays_no_switch_of_the_others() -> None:
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.unowned.select({"a", "b", "c"})
        await asyncio.sleep(3)
        watched.servers.configmaps.refuse = broken()
        watched.unowned.select({"a", "b"})
        await asyncio.sleep(3)
        watched.unowned.select({"a"})
        await asyncio.sleep(3)
        assert watched.servers.selectors["websites"] == [
            f"{KEYS.shard} notin ({names})" for names in ("a,b,c", "a,b", "a")
        ]
        assert watched.server.open_streams == 1
        assert watched.servers.configmaps.open_streams == 1, "its last watch goes on"
        watched.servers.configmaps.put("page")
        await asyncio.sleep(0.1)
        assert watched.news == ["default/page"]


async def test_a_controlled_kind_that_cannot_be_listed_holds_the_others_up_for_ten_seconds_at_most() -> None:
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        watched.fill(3)
        watched.servers.configmaps.refuse = broken()
        watched.unowned.select({"a"})
        await asyncio.sleep(reflector.GIVES_UP_S - 1)
        assert watched.news == []
        await asyncio.sleep(reflector.GIVES_UP_S + 1)
        assert len(watched.news) == 3
        assert watched.unowned.listed_at is not None


async def test_a_resource_that_fails_for_a_while_is_told_in_the_servers_words_until_it_is_listed() -> None:
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.servers.configmaps.refuse = broken()
        watched.unowned.select({"a"})
        await asyncio.sleep(5)
        assert watched.permissions.failures() == []
        await asyncio.sleep(25)
        [told] = watched.permissions.failures()
        assert told.startswith("list configmaps: ")
        assert "conversion webhook for example.com/v1, Kind=Website failed" in told
        watched.servers.configmaps.refuse = []
        await asyncio.sleep(15)
        assert watched.permissions.failures() == []


async def test_a_request_line_that_is_too_long_for_somebody_ends_nothing() -> None:
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.fill(3)
        watched.servers.configmaps.refuse = [BadRequest("LIST", status=431)] * 3
        watched.servers.configmaps.put("page")
        watched.unowned.select({"a"})
        await asyncio.sleep(30)
        assert len(watched.pending) == 4


# ---- a thousand members -------------------------------------------------------------------------------------------

THOUSAND = [f"controller-7d9f8b6c5d-{number:05}-1a2b3c4d" for number in range(1000)]


async def test_with_a_thousand_members_what_has_no_label_is_watched_and_orphans_are_listed() -> None:
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        watched.fill(1)
        watched.servers.orphans.put("of-the-dead")
        watched.unowned.select(THOUSAND, dead=["dead-1"])
        await asyncio.sleep(3)
        for asked in watched.servers.selectors.values():
            assert asked == [f"!{KEYS.shard}", f"{KEYS.shard} in (dead-1)"]
        assert sorted(set(watched.news)) == ["default/of-the-dead", "default/site-00000"]
        assert watched.unowned.knows_controlled
        assert watched.unowned.listed_at is not None


async def test_with_a_thousand_members_a_death_lists_the_dead_and_nothing_else() -> None:
    async with watching() as watched:
        watched.unowned.select(THOUSAND)
        await asyncio.sleep(3)
        lists = watched.server.requests.count("LIST")
        watched.servers.orphans.put("orphan")
        watched.unowned.select(THOUSAND[1:], dead=THOUSAND[:1])
        await asyncio.sleep(0.1)
        assert watched.news == ["default/orphan"]
        assert watched.unowned.listed_at is not None
        assert watched.server.requests.count("LIST") == lists
        watched.servers.orphans.put("written-late")
        await asyncio.sleep(LIST_ORPHANS_S + 1)
        assert watched.news == ["default/orphan", "default/written-late"]


@pytest.mark.parametrize("later_s", [0.01, 0.03, 0.05, 0.07, 0.09])
async def test_with_a_thousand_members_a_second_death_begins_the_lists_of_the_dead_anew(
    later_s: float,
) -> None:
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        for number in range(3 * PAGE):
            watched.servers.orphans.put(f"orphan-{number:05}")
        watched.unowned.select(THOUSAND, dead=["dead-1"])
        await asyncio.sleep(later_s)
        watched.unowned.select(THOUSAND[1:], dead=["dead-1", THOUSAND[0]])
        await asyncio.sleep(10)
        assert watched.unowned.knows_controlled
        assert watched.unowned.listed_at is not None
        assert watched.servers.selectors["websites"][-1] == f"{KEYS.shard} in ({THOUSAND[0]},dead-1)"


async def test_a_resource_whose_versions_are_no_numbers_is_told_and_stops_nothing() -> None:
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.servers.without_numbers = "configmaps"
        watched.servers.configmaps.put("page")
        watched.fill(2)
        watched.unowned.select({"a"})
        await asyncio.sleep(60)
        assert sorted(watched.news) == ["default/site-00000", "default/site-00001"]
        assert watched.servers.configmaps.requests.count("LIST") < 15
        assert any("'opaque-1" in told for told in watched.permissions.failures())


async def test_a_list_that_is_older_than_what_was_seen_ends_the_work() -> None:
    """etcd was restored from a backup: what is known here is of another history."""
    watched = Watched(WEBSITES)
    watched.fill(3)
    running = asyncio.create_task(watched.unowned.run())
    watched.unowned.select([])
    await asyncio.sleep(1)
    watched.server.stale_list_at = 50
    watched.server.error_event = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    watched.server.cut_streams()
    await asyncio.sleep(30)
    assert running.done()
    with pytest.raises(ExceptionGroup) as caught:
        await running
    assert caught.group_contains(HistoryWentBack)
