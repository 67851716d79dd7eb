"""Who is woken by a change: predicates and what they may not hold back, owners, mapping functions, what is given up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

import shard_controller as sc
from kubeio.errors import InputError
from kubeio.models import ObjectKey
from shard_controller.declare.request import Request
from tests.shard_controller.handlers import BLOG, KEYS_OF_SITES, SITES, Harness, known, never
from tests.shard_controller.objects import KEYS, ME, OTHER

# -- predicates


GOLD = {"labels": {KEYS.shard: ME, "tier": "gold"}}
NEXT = {"generation": 2}
THIRD = {"generation": 3}


@pytest.mark.parametrize(
    ("predicate", "changes", "wakes"),
    [
        (sc.generation_changed, NEXT, True),
        (sc.generation_changed, {"annotations": {"seen": "by a human"}}, False),
        (sc.labels_changed, GOLD, True),
        (sc.annotations_changed, {"annotations": {"note": "x"}}, True),
        (sc.generation_changed | sc.labels_changed, GOLD, True),
        (sc.labels_changed | sc.annotations_changed, NEXT, False),
        (sc.generation_changed & sc.labels_changed, NEXT, False),
        (never | (lambda _old, new: new.meta.generation == 3), THIRD, True),
        ((lambda _old, new: new.meta.generation == 3) | never, THIRD, True),
        (never, NEXT, False),
        (never & sc.generation_changed, NEXT, False),
        ((lambda _old, _new: True) & never, NEXT, False),
        (sc.Predicate(lambda old, new: old.object["metadata"] != new.object["metadata"]), {}, True),
    ],
)
async def test_a_change_wakes_if_the_predicate_wants_it(
    predicate: Any, changes: dict[str, Any], wakes: bool
) -> None:
    harness = await known(when=predicate)
    harness.site(**changes)
    assert await harness.woken() == ["blog"] * wakes


async def test_an_object_without_generation_changes_with_every_version() -> None:
    harness = Harness(when=sc.generation_changed)
    for _ in range(2):
        harness.site(generation=0)
        assert await harness.woken() == ["blog"]


@pytest.mark.parametrize(
    "labels",
    [{KEYS.shard: ME, KEYS.drain: OTHER}, {KEYS.shard: ME, KEYS.drain: ""}, {KEYS.shard: OTHER}],
)
async def test_no_predicate_holds_back_a_change_of_the_ring_s_labels(labels: dict[str, str]) -> None:
    harness = await known(when=never)
    harness.site(labels=labels)
    assert await harness.woken() == ["blog"]


@pytest.mark.parametrize("drain", [{}, {KEYS.drain: OTHER}])
async def test_no_predicate_holds_back_an_object_that_left_and_came_back_between_two_lists(
    drain: dict[str, str],
) -> None:
    harness = Harness(when=never)
    harness.site(labels={KEYS.shard: ME, **drain}, annotations={KEYS.turn: "1"})
    await harness.woken()
    harness.site(labels={KEYS.shard: ME, **drain}, annotations={KEYS.turn: "9"})
    assert await harness.woken() == ["blog"]


async def test_no_predicate_holds_back_what_is_asked_for_without_a_turn() -> None:
    """The labels of two drains are the same, and a sharder of another kind writes no turn."""
    harness = Harness(when=never)
    harness.site(labels={KEYS.shard: ME, KEYS.drain: OTHER})
    await harness.woken()
    harness.site(labels={KEYS.shard: ME, KEYS.drain: OTHER}, annotations={"written": "by another"})
    assert await harness.woken() == ["blog"]


@pytest.mark.parametrize(
    "fields",
    [
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"finalizers": ["example.com/cdn"]},
        {"uid": "uid-of-the-next-of-that-name"},
    ],
)
async def test_no_predicate_holds_back_deletion_and_finalizers(fields: dict[str, Any]) -> None:
    harness = await known(when=never)
    harness.site(**fields)
    assert await harness.woken() == ["blog"]


async def test_no_predicate_holds_back_what_comes_into_the_selection() -> None:
    harness = Harness(when=never)
    harness.site()
    assert await harness.woken() == ["blog"]
    harness.gone(harness.sites, "blog")
    assert await harness.woken() == ["blog"], "what left is looked at: its key may have been drained"
    harness.site()
    assert await harness.woken() == ["blog"]


async def test_no_predicate_holds_back_the_version_that_a_read_has_shown_already() -> None:
    """A refused write has read the newest version and waits for the cache: the event is the only thing that comes."""
    harness = Harness(when=never)
    harness.site()
    await harness.woken()
    harness.await_version(2)
    assert await harness.woken() == []
    harness.site(annotations={"written": "by another"})
    assert await harness.woken() == ["blog"]
    harness.site()
    assert await harness.woken() == []


@pytest.mark.looptime
async def test_a_change_that_came_while_it_was_read_enqueues_soon() -> None:
    harness = Harness(when=never)
    harness.site()
    harness.site(annotations={"written": "by another"})
    await harness.woken()
    harness.await_version(2)
    await asyncio.sleep(0.01)
    assert await harness.woken() == ["blog"]


@pytest.mark.looptime
async def test_a_read_that_stays_behind_the_cache_is_repeated_more_and_more_rarely() -> None:
    """After a restore of etcd a consistent read shows less than the cache, until the watch lists anew."""
    harness = Harness()
    harness.site()
    harness.site()
    await harness.woken()
    reads = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(10):
            while reads < 1000:
                reads += 1
                harness.await_version(1)
                harness.queue.done(await harness.queue.get())
    assert reads < 15


async def test_a_predicate_that_raises_counts_as_true_and_is_logged() -> None:
    harness = Harness(when=lambda old, new: old.object["no such field"] == new)
    harness.site()
    await harness.woken()
    with capture_logs() as logs:
        harness.site()
    assert await harness.woken() == ["blog"]
    assert [(entry["event"], entry["object"]) for entry in logs] == [
        ("predicate failed: object enqueued anyway", "websites.example.com ns/blog")
    ]


async def test_an_owned_resource_has_a_predicate_of_its_own() -> None:
    harness = Harness(owned_when=sc.labels_changed)
    harness.site()
    harness.page()
    await harness.woken()
    harness.page(annotations={"seen": "x"})
    assert await harness.woken() == []
    harness.page(labels={KEYS.shard: ME, "tier": "gold"})
    assert await harness.woken() == ["blog"]


async def test_no_predicate_holds_back_the_drain_of_a_controlled_object() -> None:
    harness = Harness(owned_when=never)
    harness.site()
    harness.page()
    await harness.woken()
    harness.page(labels={KEYS.shard: ME, KEYS.drain: OTHER})
    root = Request("websites.example.com", ObjectKey("ns", "blog"))
    assert await harness.woken() == ["blog"]
    assert list(harness.queue.take_drained(root)) == [Request("configmaps", ObjectKey("ns", "blog"))]


async def test_an_object_that_loses_a_controlled_one_is_woken_too() -> None:
    harness = Harness()
    harness.site("old")
    harness.site("new")
    harness.page("shared", controller="old")
    await harness.woken()
    harness.page("shared", controller="new")
    assert sorted(await harness.woken()) == ["new", "old"]


async def _later(_old: Any, _new: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("function", "problem"),
    [(lambda new: True, "exactly two"), (_later, "is async"), ("generation", "is not a function")],
)
def test_what_cannot_be_a_predicate_is_refused_with_the_right_signature(function: Any, problem: str) -> None:
    with pytest.raises(InputError, match=f"{problem}.*def changed\\(old: sc.Snapshot"):
        sc.Controller(SITES, when=function)


# -- what the watch does not show


async def test_a_child_that_is_made_and_deleted_between_two_lists_wakes_its_owner() -> None:
    harness = await known()
    harness.page("ours")
    page = harness.pages.get(ObjectKey("ns", "ours"))
    assert page is not None
    harness.gone(harness.pages, "ours")
    await harness.woken()
    harness.pages.wrote(page, is_new=True)
    for _ in range(2):
        assert await harness.woken() == []
        harness.handlers.passed(harness.pages, int(page.meta.resource_version))
    assert await harness.woken() == ["blog"]


# -- what was given up


async def test_what_was_given_up_is_not_woken_by_the_echo_of_our_own_write() -> None:
    harness = Harness()
    harness.site()
    await harness.woken()
    harness.queue.fail_permanently(BLOG, version=2)
    harness.site(annotations={"our": "write"})
    assert await harness.woken() == []
    assert harness.queue.has_failed_permanently(BLOG)
    harness.site(annotations={"their": "write"})
    assert await harness.woken() == ["blog"]
    assert not harness.queue.has_failed_permanently(BLOG)


async def test_what_was_given_up_is_woken_by_what_it_owns_and_by_what_is_mapped_to_it() -> None:
    harness = Harness(watches=[sc.Watch(KEYS_OF_SITES, map=lambda _: ["blog"])])
    harness.site()
    for what in ("owned", "watched"):
        await harness.woken()
        harness.queue.fail_permanently(BLOG, version=9)
        if what == "owned":
            harness.page()
        else:
            harness.secret("cert")
        assert await harness.woken() == ["blog"]
        assert not harness.queue.has_failed_permanently(BLOG)


@pytest.mark.parametrize(("version", "is_echo"), [(1, False), (2, True)], ids=["news", "echo"])
async def test_a_change_during_a_reconcile_outweighs_its_giving_up_and_our_own_echo_does_not(
    version: int, is_echo: bool
) -> None:
    harness = Harness()
    harness.site()
    harness.queue.begin(BLOG)
    harness.site(annotations={"somebody's": "write"})
    harness.queue.fail_permanently(BLOG, version=version)
    harness.queue.end(BLOG)
    assert harness.queue.has_failed_permanently(BLOG) is is_echo


async def test_an_object_that_comes_back_is_not_given_up() -> None:
    harness = Harness()
    harness.site()
    harness.queue.fail_permanently(BLOG, version=9)
    harness.gone(harness.sites, "blog")
    assert not harness.queue.has_failed_permanently(BLOG)


async def test_what_is_asked_for_goes_before_what_changed() -> None:
    harness = Harness()
    asked = {KEYS.shard: ME, KEYS.drain: OTHER}
    for name in ("blog", "shop", "news"):
        harness.site(name)
    await harness.woken()
    harness.site("shop", generation=2)
    harness.page("page", controller="blog", labels=asked)
    harness.site("news", labels=asked)
    assert await harness.woken() == ["blog", "news", "shop"]


async def test_the_first_list_waits_behind_changes_and_begins_with_what_was_written_last() -> None:
    harness = Harness(is_listing=True)
    for name in ("old", "middle", "changed", "asked"):
        harness.site(name)
    harness.page("middle", controller="middle")  # its site stays where the list has it
    harness.site("old", labels={KEYS.shard: ME, "colour": "red"})  # written after the others
    assert len(harness.queue) == 0
    harness.handlers.caches_full()
    harness.site("changed", generation=2)
    harness.site("asked", labels={KEYS.shard: ME, KEYS.drain: OTHER})
    assert await harness.woken() == ["asked", "changed", "old", "middle"]


SEEN = {"observedGeneration": 1}


async def test_what_comes_and_was_seen_to_by_its_last_owner_waits_behind_what_changed() -> None:
    harness = Harness()
    harness.site("seen", status=SEEN)
    harness.page("page", controller="seen")  # comes after its controller, as in a handoff
    harness.site("going", status=SEEN, deletionTimestamp="2026-01-01T00:00:00Z")
    harness.site("changed", status=SEEN, generation=2)
    harness.site("new")
    harness.site("strange", status="fine")
    assert await harness.woken() == ["going", "changed", "new", "strange", "seen"]


async def test_what_came_and_waits_goes_first_once_it_changes() -> None:
    harness = Harness()
    for name in ("quiet", "changed", "of a page"):
        harness.site(name, status=SEEN)
    harness.site("changed", status=SEEN, generation=2)
    harness.page("page", controller="of a page")
    harness.page("page", controller="of a page", annotations={"note": "x"})
    assert await harness.woken() == ["changed", "of a page", "quiet"]


async def test_a_resync_goes_behind_what_changed() -> None:
    harness = Harness()
    for name in ("blog", "shop", "news"):
        harness.site(name)
    await harness.woken()
    for name in ("blog", "news"):
        harness.handlers.resync(ObjectKey("ns", name))
    harness.site("shop", generation=2)
    harness.site("news", generation=2)
    assert await harness.woken() == ["shop", "news", "blog"]
