"""Lists that are held back, watches that never are, switches between two: `sharder.unowned.reflectors` on virtual time.

The API server is the fake one of the watch sessions; it knows no selectors, so everything it has is unowned.
"""

from __future__ import annotations

import asyncio

import pytest

from kubeio.errors import Forbidden, HistoryWentBack, ServerFailure
from sharder.unowned import pending, reflector
from sharder.unowned.pending import ENOUGH, AssignmentPriority
from sharder.unowned.permissions import TRY_AGAIN_S
from sharder.unowned.reflectors import ENOUGH_TO_DO, LIST_ORPHANS_S, OVERLAP_S
from tests.sharder.pure.unowned_watches import PAGE, Watched, broken, watching
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES

pytestmark = pytest.mark.looptime


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
        assert "default/page" in watched.enqueued


async def test_a_controlled_kind_of_which_too_much_waits_holds_no_list_of_another_kind_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its objects cannot be written, perhaps: what controls them gets its owners."""
    monkeypatch.setattr(pending, "ENOUGH", 50)
    monkeypatch.setattr(reflector, "PAGE", 20)
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        watched.fill(3)
        for number in range(100):
            watched.servers.configmaps.put(f"page-{number:02}")
        watched.unowned.select({"a"})
        await asyncio.sleep(1)
        assert "default/site-00000" in watched.enqueued
        assert watched.unowned.listed_at is None


async def test_what_is_made_while_a_list_is_held_back_is_seen_at_once() -> None:
    async with watching() as watched:
        watched.fill(3 * PAGE)
        watched.unowned.select({"a"})
        await asyncio.sleep(1)
        watched.waiting = ENOUGH_TO_DO
        watched.unowned.resume_lists()
        watched.unowned.refresh()
        await asyncio.sleep(5)
        watched.enqueued.clear()
        watched.server.put("new")
        await asyncio.sleep(0.001)
        assert watched.enqueued == ["default/new"]
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
        assert len(watched.enqueued) == 20
        watched.servers.on_their_way_s = 1.0
        watched.unowned.select({"b"})
        await asyncio.sleep(0.5)  # the next list is on its way, and shows everything as it was a moment ago
        watched.settle("site-00007")
        watched.settle("site-00013")
        watched.server.put("made-meanwhile")
        await asyncio.sleep(10)
        assert sorted(watched.enqueued) == sorted({*watched.enqueued}), "each object once"
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
        assert len(watched.enqueued) == 3 * PAGE, "what was known already is not enqueued again"
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
        assert len(watched.enqueued) == 5


async def test_controlled_objects_are_listed_before_what_controls_them() -> None:
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        watched.fill(3)
        watched.servers.configmaps.put("page")
        watched.servers.configmaps.refuse = [ServerFailure("LIST", status=500) for _ in range(4)]
        watched.unowned.select({"a"})
        assert not watched.unowned.knows_controlled
        await asyncio.sleep(0.1)
        assert watched.enqueued == []
        watched.server.put("new")
        await asyncio.sleep(0.001)
        assert watched.enqueued == ["default/new"], "the watch waits for nobody"
        await asyncio.sleep(30)
        assert watched.enqueued[1] == "default/page"
        assert len(watched.pending) == 5
        assert len(watched.listed) == 2, "once when the controlled ones were known, and once at the end"


async def test_without_controlled_kinds_no_parent_waits_for_the_list() -> None:
    async with watching() as watched:
        watched.waiting = ENOUGH_TO_DO
        watched.unowned.select({"a"})
        assert watched.unowned.knows_controlled


async def test_a_missing_right_is_reported_and_tried_again_and_stops_no_other() -> None:
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        message = 'User "s" cannot list resource "configmaps" in API group ""'
        denial = Forbidden("LIST", status=403, reason="Forbidden", message=message)
        watched.servers.configmaps.refuse = [denial] * 3
        watched.servers.configmaps.put("page")
        watched.fill(3)
        watched.unowned.select({"a"})
        await asyncio.sleep(1)
        assert watched.reported == ["list configmaps True"]
        assert len(watched.pending) == 3, "the other resource goes on"
        await asyncio.sleep(4 * TRY_AGAIN_S)
        assert watched.reported == ["list configmaps True", "list configmaps False"]
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
        assert sorted(set(watched.enqueued)) == ["default/of-the-dead", "default/site-00000"]
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
        assert watched.enqueued == ["default/orphan"]
        assert watched.unowned.listed_at is not None
        assert watched.server.requests.count("LIST") == lists
        watched.servers.orphans.put("written-late")
        await asyncio.sleep(LIST_ORPHANS_S + 1)
        assert watched.enqueued == ["default/orphan", "default/written-late"]


async def test_with_a_thousand_members_a_kind_of_which_too_much_waits_holds_back_no_orphans_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending, "ENOUGH", 50)
    monkeypatch.setattr(reflector, "PAGE", 20)
    async with watching(WEBSITES, CONFIGMAPS, controlled=(CONFIGMAPS,)) as watched:
        for number in range(100):
            watched.servers.orphans.put(f"orphan-{number:02}")
        watched.unowned.select(THOUSAND, dead=["dead-1"])
        await asyncio.sleep(3)
        assert watched.enqueued.count("default/orphan-00") == 2, "one of each kind"
        assert len(watched.pending) < 150


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


async def test_with_a_thousand_members_all_that_is_listed_again_has_its_orphans_listed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Namespaces change while the dead are listed: the list of the next watch ends, and its end forgets them."""
    monkeypatch.setattr(reflector, "PAGE", 20)
    async with watching() as watched:
        for number in range(60):
            watched.servers.orphans.put(f"orphan-{number:02}")
        watched.fill(100)  # so its versions are newer than those of the orphans
        for number in range(100):
            watched.server.remove(f"site-{number:05}")
        watched.unowned.select(THOUSAND, dead=["dead-1"])
        while not len(watched.pending):  # noqa: ASYNC110 - the dead are being listed
            await asyncio.sleep(0.001)
        watched.servers.on_their_way_s = 0.1
        watched.unowned.refresh()
        await asyncio.sleep(LIST_ORPHANS_S - 10)
        assert len(watched.pending) == 60


async def test_a_resource_whose_versions_are_no_numbers_is_reported_and_stops_nothing() -> None:
    async with watching(WEBSITES, CONFIGMAPS) as watched:
        watched.servers.without_numbers = "configmaps"
        watched.servers.configmaps.put("page")
        watched.fill(2)
        watched.unowned.select({"a"})
        await asyncio.sleep(60)
        assert sorted(watched.enqueued) == ["default/site-00000", "default/site-00001"]
        assert watched.servers.configmaps.requests.count("LIST") < 15
        assert any("'opaque-1" in reported for reported in watched.permissions.failures())


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
