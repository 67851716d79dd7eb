"""Who is woken by a change: predicates and what they may not hold back, owners, mapping functions, what is given up."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs

import shard_controller as sc
from kubeio.clock import ManualClock
from kubeio.decoding import object_from
from kubeio.errors import InputError
from kubeio.models import ObjectKey
from kubeio.watches.store import Change
from shard_controller.declare.request import Request
from shard_controller.objects.caches import Caches, ReadOnlyCache, ResourceCache
from shard_controller.reconcile.event_handlers import EventHandlers
from shard_controller.reconcile.reconcile_queue import ReconcileQueue
from shard_controller.shard.lease_validity import LeaseValidity
from shard_controller.shard.ownership import ShardOwnership
from tests.shard_controller.objects import CONFIGMAPS, KEYS, ME, OTHER, SECRETS, WEBSITES, reference

SITES = sc.Resource("websites.example.com/v1", dict)
PAGES = sc.Resource("configmaps/v1", dict)
KEYS_OF_SITES = sc.Resource("secrets/v1", dict)
BLOG = Request("websites.example.com", ObjectKey("ns", "blog"))
never = sc.Predicate(lambda _old, _new: False)


class Room:
    """The event handlers of the shard `ME`, its caches and its queue, without informers and workers."""

    def __init__(
        self,
        *,
        when: Any = None,
        owned_when: Any = None,
        watches: Iterable[sc.Watch[Any]] = (),
        is_listing: bool = False,
    ) -> None:
        clock = ManualClock()
        self.queue = ReconcileQueue(clock=clock, rng=random.Random(1))
        self.sites = ResourceCache(WEBSITES, clock=clock, remembers=True)
        self.pages = ResourceCache(CONFIGMAPS, clock=clock, remembers=True)
        self.watched = [ReadOnlyCache(watch, SECRETS, clock=clock) for watch in watches]
        caches = Caches(self.sites, [self.pages], self.watched, {PAGES.text: self.pages})
        controller = sc.Controller(
            SITES, owns=[sc.Owned(PAGES, when=owned_when)], watches=tuple(watches), when=when
        )
        validity = LeaseValidity(duration_s=15, sent_at=clock.now())
        ownership = ShardOwnership(KEYS, ME, validity=validity, clock=clock)
        self.handlers = EventHandlers(controller, caches, ownership, self.queue)
        if not is_listing:
            self.handlers.caches_full()
        self._versions = 0

    def site(self, name: str = "blog", *, status: Any = None, **fields: Any) -> None:
        """The watch shows a Website."""
        self._show(self.sites, {**self._body(name, **fields), "status": status})

    def page(self, name: str = "blog", *, controller: str = "blog", **fields: Any) -> None:
        """The watch shows a ConfigMap that *controller* controls."""
        self._show(self.pages, self._body(name, ownerReferences=[reference(controller)], **fields))

    def secret(self, name: str, namespace: str = "ns", **fields: Any) -> None:
        """The watch shows a Secret, which nobody of the ring controls."""
        self._show(self.watched[0], self._body(name, namespace=namespace, **fields))

    def gone(self, kind: ResourceCache, name: str) -> None:
        """The watch shows that an object left."""
        key = ObjectKey("ns", name)
        known = kind.store.remove(key)
        assert known is not None
        self._tell(kind, Change(key, known.meta, None))

    def await_version(self, version: int) -> None:
        """A read has shown *version* of the Website blog."""
        known = self.sites.store.meta(BLOG.key)
        assert known is not None
        self.queue.await_version(BLOG, version, known=int(known.resource_version))

    def _body(self, name: str, *, namespace: str = "ns", **fields: Any) -> dict[str, Any]:
        self._versions += 1
        metadata = {
            "uid": f"uid-{name}",
            "generation": 1,
            "labels": {KEYS.shard: ME},
            **fields,
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(self._versions),
        }
        return {"metadata": metadata}

    def _show(self, kind: ResourceCache, body: dict[str, Any]) -> None:
        change = kind.store.learn(object_from(json.dumps(body).encode()))
        assert change is not None
        self._tell(kind, change)

    def _tell(self, kind: ResourceCache, change: Change) -> None:
        if isinstance(kind, ReadOnlyCache):
            self.handlers.watched_changed(kind, change)
        else:
            self.handlers.changed(kind, change)

    async def woken(self) -> list[str]:
        """Names of what has been woken since the last question."""
        names = []
        while len(self.queue):
            task = await self.queue.get()
            self.queue.done(task)
            names.append(task.key.name)
        return names


# -- predicates


GOLD = {"labels": {KEYS.shard: ME, "tier": "gold"}}
NEXT = {"generation": 2}
THIRD = {"generation": 3}


async def known(**options: Any) -> Room:
    """A room whose site is known and has been looked at."""
    room = Room(**options)
    room.site()
    assert await room.woken() == ["blog"]
    return room


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
    room = await known(when=predicate)
    room.site(**changes)
    assert await room.woken() == ["blog"] * wakes


async def test_an_object_without_generation_changes_with_every_version() -> None:
    room = Room(when=sc.generation_changed)
    for _ in range(2):
        room.site(generation=0)
        assert await room.woken() == ["blog"]


@pytest.mark.parametrize(
    "labels",
    [{KEYS.shard: ME, KEYS.drain: OTHER}, {KEYS.shard: ME, KEYS.drain: ""}, {KEYS.shard: OTHER}],
)
async def test_no_predicate_holds_back_a_change_of_the_ring_s_labels(labels: dict[str, str]) -> None:
    room = await known(when=never)
    room.site(labels=labels)
    assert await room.woken() == ["blog"]


@pytest.mark.parametrize(
    "fields",
    [
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"finalizers": ["example.com/cdn"]},
        {"uid": "uid-of-the-next-of-that-name"},
    ],
)
async def test_no_predicate_holds_back_deletion_and_finalizers(fields: dict[str, Any]) -> None:
    room = await known(when=never)
    room.site(**fields)
    assert await room.woken() == ["blog"]


async def test_no_predicate_holds_back_what_comes_into_the_selection() -> None:
    room = Room(when=never)
    room.site()
    assert await room.woken() == ["blog"]
    room.gone(room.sites, "blog")
    assert await room.woken() == ["blog"], "what left is looked at: its key may have been drained"
    room.site()
    assert await room.woken() == ["blog"]


async def test_no_predicate_holds_back_the_version_that_a_read_has_shown_already() -> None:
    """A refused write has read the newest version and waits for the cache: the event is the only thing that comes."""
    room = Room(when=never)
    room.site()
    await room.woken()
    room.await_version(2)
    assert await room.woken() == []
    room.site(annotations={"written": "by another"})
    assert await room.woken() == ["blog"]
    room.site()
    assert await room.woken() == []


async def test_news_that_came_while_it_was_read_wakes_at_once() -> None:
    room = Room(when=never)
    room.site()
    room.site(annotations={"written": "by another"})
    await room.woken()
    room.await_version(2)
    assert await room.woken() == ["blog"]


async def test_a_predicate_that_raises_counts_as_true_and_is_told() -> None:
    room = Room(when=lambda old, new: old.object["no such field"] == new)
    room.site()
    await room.woken()
    with capture_logs() as logs:
        room.site()
    assert await room.woken() == ["blog"]
    assert [(entry["event"], entry["object"]) for entry in logs] == [
        ("predicate failed: object enqueued anyway", "websites.example.com ns/blog")
    ]


async def test_an_owned_resource_has_a_predicate_of_its_own() -> None:
    room = Room(owned_when=sc.labels_changed)
    room.site()
    room.page()
    await room.woken()
    room.page(annotations={"seen": "x"})
    assert await room.woken() == []
    room.page(labels={KEYS.shard: ME, "tier": "gold"})
    assert await room.woken() == ["blog"]


async def test_no_predicate_holds_back_the_drain_of_a_controlled_object() -> None:
    room = Room(owned_when=never)
    room.site()
    room.page()
    await room.woken()
    room.page(labels={KEYS.shard: ME, KEYS.drain: OTHER})
    root = Request("websites.example.com", ObjectKey("ns", "blog"))
    assert await room.woken() == ["blog"]
    assert room.queue.take_drained(root) == {Request("configmaps", ObjectKey("ns", "blog"))}


async def test_an_object_that_loses_a_controlled_one_is_woken_too() -> None:
    room = Room()
    room.site("old")
    room.site("new")
    room.page("shared", controller="old")
    await room.woken()
    room.page("shared", controller="new")
    assert sorted(await room.woken()) == ["new", "old"]


async def _later(_old: Any, _new: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("function", "problem"),
    [(lambda new: True, "exactly two"), (_later, "is async"), ("generation", "is not a function")],
)
def test_what_cannot_be_a_predicate_is_refused_with_the_right_signature(function: Any, problem: str) -> None:
    with pytest.raises(InputError, match=f"{problem}.*def changed\\(old: sc.Snapshot"):
        sc.Controller(SITES, when=function)


# -- watched resources


def sites_of(secret: sc.Snapshot[dict[str, Any]]) -> list[str]:
    return [name for name in secret.meta.annotations.get("sites", "").split(",") if name]


async def test_a_watched_object_wakes_what_its_map_names_before_and_after() -> None:
    room = Room(watches=[sc.Watch(KEYS_OF_SITES, map=sites_of)])
    for name in ("blog", "shop", "wiki"):
        room.site(name)
    await room.woken()
    room.secret("cert", annotations={"sites": "blog,shop"})
    assert sorted(await room.woken()) == ["blog", "shop"]
    room.secret("cert", annotations={"sites": "shop,wiki"})
    assert sorted(await room.woken()) == ["blog", "shop", "wiki"]
    room.gone(room.watched[0], "cert")
    assert sorted(await room.woken()) == ["shop", "wiki"]


async def test_a_map_may_name_keys_of_another_namespace() -> None:
    room = Room(watches=[sc.Watch(KEYS_OF_SITES, map=lambda _: [sc.Key("ns", "blog")])])
    room.site()
    await room.woken()
    room.secret("cert", namespace="certificates")
    assert await room.woken() == ["blog"]


async def test_what_this_shard_does_not_have_is_not_woken() -> None:
    room = Room(watches=[sc.Watch(KEYS_OF_SITES, map=lambda _: ["theirs", "blog"])])
    room.site()
    await room.woken()
    room.secret("cert")
    assert await room.woken() == ["blog"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda secret: secret.object["no such field"], "KeyError"),
        (lambda _: "blog", r"return a list, \['blog'\]"),
        (lambda _: [("ns", "blog")], r"sc.Key\(namespace, name\)"),
        (lambda _: None, "TypeError"),
    ],
)
async def test_a_map_that_fails_is_told_with_its_object_and_the_next_change_works(
    answer: Any, told: str
) -> None:
    def affected(secret: sc.Snapshot[dict[str, Any]]) -> Any:
        return answer(secret) if secret.name == "bad" else ["blog"]

    room = Room(watches=[sc.Watch(KEYS_OF_SITES, map=affected)])
    room.site()
    await room.woken()
    with capture_logs() as logs:
        room.secret("bad")
    assert await room.woken() == []
    assert logs[0]["object"] == "secrets ns/bad"
    assert re.search(told, logs[0]["error"])
    room.secret("good")
    assert await room.woken() == ["blog"]


async def test_a_watch_has_a_predicate_of_its_own() -> None:
    room = Room(watches=[sc.Watch(KEYS_OF_SITES, map=lambda _: ["blog"], when=sc.labels_changed)])
    room.site()
    room.secret("cert")
    await room.woken()
    room.secret("cert", annotations={"rotated": "yes"})
    assert await room.woken() == []
    room.secret("cert", labels={"rotated": "yes"})
    assert await room.woken() == ["blog"]


async def _later_map(_secret: Any) -> list[str]:
    return []


of_two: Any = lambda _old, _new: []  # noqa: E731 - mypy would see through a def
async_map: Any = _later_map


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda: sc.Watch(KEYS_OF_SITES, map=of_two), "exactly one argument"),
        (lambda: sc.Watch(KEYS_OF_SITES, map=async_map), "is async"),
        (lambda: sc.Watch(KEYS_OF_SITES, map=sites_of, namespaces="team"), r"namespaces=\['team'\]"),
        (lambda: sc.Watch(KEYS_OF_SITES, map=sites_of, namespaces=["Team"]), "cannot be a namespace"),
        (
            lambda: sc.Controller(SITES, watches=[sc.Watch(KEYS_OF_SITES, map=sites_of)] * 2),
            "watches: 'secrets/v1' is there twice",
        ),
        (lambda: sc.Controller(SITES, owns=[PAGES, PAGES]), "owns: 'configmaps/v1' is there twice"),
    ],
)
def test_a_watch_that_cannot_work_is_refused(declare: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        declare()


# -- what was given up


async def test_what_was_given_up_is_not_woken_by_the_echo_of_our_own_write() -> None:
    room = Room()
    room.site()
    await room.woken()
    room.queue.fail_permanently(BLOG, version=2)
    room.site(annotations={"our": "write"})
    assert await room.woken() == []
    assert room.queue.has_failed_permanently(BLOG)
    room.site(annotations={"their": "write"})
    assert await room.woken() == ["blog"]
    assert not room.queue.has_failed_permanently(BLOG)


async def test_what_was_given_up_is_woken_by_what_it_owns_and_by_what_is_mapped_to_it() -> None:
    room = Room(watches=[sc.Watch(KEYS_OF_SITES, map=lambda _: ["blog"])])
    room.site()
    for what in ("owned", "watched"):
        await room.woken()
        room.queue.fail_permanently(BLOG, version=9)
        if what == "owned":
            room.page()
        else:
            room.secret("cert")
        assert await room.woken() == ["blog"]
        assert not room.queue.has_failed_permanently(BLOG)


@pytest.mark.parametrize(("version", "is_echo"), [(1, False), (2, True)], ids=["news", "echo"])
async def test_news_during_a_reconcile_outweighs_its_giving_up_and_our_own_echo_does_not(
    version: int, is_echo: bool
) -> None:
    room = Room()
    room.site()
    room.queue.begin(BLOG)
    room.site(annotations={"somebody's": "write"})
    room.queue.fail_permanently(BLOG, version=version)
    room.queue.end(BLOG)
    assert room.queue.has_failed_permanently(BLOG) is is_echo


async def test_an_object_that_comes_back_is_not_given_up() -> None:
    room = Room()
    room.site()
    room.queue.fail_permanently(BLOG, version=9)
    room.gone(room.sites, "blog")
    assert not room.queue.has_failed_permanently(BLOG)


async def test_what_is_asked_for_goes_before_what_changed() -> None:
    room = Room()
    asked = {KEYS.shard: ME, KEYS.drain: OTHER}
    for name in ("blog", "shop", "news"):
        room.site(name)
    await room.woken()
    room.site("shop", generation=2)
    room.page("page", controller="blog", labels=asked)
    room.site("news", labels=asked)
    assert await room.woken() == ["blog", "news", "shop"]


async def test_the_first_list_waits_behind_changes_and_begins_with_what_was_written_last() -> None:
    room = Room(is_listing=True)
    for name in ("old", "middle", "changed", "asked"):
        room.site(name)
    room.page("middle", controller="middle")  # its site stays where the list has it
    room.site("old", labels={KEYS.shard: ME, "colour": "red"})  # written after the others
    assert len(room.queue) == 0
    room.handlers.caches_full()
    room.site("changed", generation=2)
    room.site("asked", labels={KEYS.shard: ME, KEYS.drain: OTHER})
    assert await room.woken() == ["asked", "changed", "old", "middle"]


SEEN = {"observedGeneration": 1}


async def test_what_comes_and_was_seen_to_by_its_last_owner_waits_behind_what_changed() -> None:
    room = Room()
    room.site("seen", status=SEEN)
    room.page("page", controller="seen")  # comes after its controller, as in a handoff
    room.site("going", status=SEEN, deletionTimestamp="2026-01-01T00:00:00Z")
    room.site("changed", status=SEEN, generation=2)
    room.site("new")
    room.site("strange", status="fine")
    assert await room.woken() == ["going", "changed", "new", "strange", "seen"]


async def test_what_came_and_waits_goes_first_once_it_changes() -> None:
    room = Room()
    for name in ("quiet", "changed", "of a page"):
        room.site(name, status=SEEN)
    room.site("changed", status=SEEN, generation=2)
    room.page("page", controller="of a page")
    room.page("page", controller="of a page", annotations={"note": "x"})
    assert await room.woken() == ["changed", "of a page", "quiet"]


async def test_a_resync_goes_behind_what_changed() -> None:
    room = Room()
    for name in ("blog", "shop", "news"):
        room.site(name)
    await room.woken()
    for name in ("blog", "news"):
        room.handlers.resync(ObjectKey("ns", name))
    room.site("shop", generation=2)
    room.site("news", generation=2)
    assert await room.woken() == ["shop", "news", "blog"]
