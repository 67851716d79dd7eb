"""What a scan is made of, each by itself: missent objects, suspects, requests, and the queue that it fills."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from kubeio.models import ObjectKey, ObjectRef
from sharder.moving.drain_requests import DrainRequests, Misplaced
from sharder.moving.handoffs import Handoffs
from sharder.moving.missent import MAX_MISSENT, MissentObjects
from sharder.moving.scan_pass import MAX_SUSPECTS, Pass
from sharder.planning.state import ScanVersion
from sharder.unowned import pending
from sharder.writing.ring_context import RingContext
from tests.sharder.pure import assigning
from tests.sharder.pure import test_sharder_scan as scan
from tests.sharder.pure.views import KEYS, WEBSITES, child_of, make_meta

pytestmark = pytest.mark.looptime
ANY = ScanVersion(1, 1)


def ref(name: str) -> ObjectRef:
    return ObjectRef(WEBSITES.group_resource, ObjectKey("ns", name))


def fill(missent: MissentObjects) -> None:
    """As many objects as are remembered."""
    for number in range(MAX_MISSENT):
        missent.add(ref(f"site-{number}"))


async def test_so_many_missent_objects_are_remembered_and_no_more() -> None:
    missent = MissentObjects()
    for number in range(MAX_MISSENT + 5):
        missent.add(ref(f"site-{number}"))
    assert len(await missent.get_all()) == MAX_MISSENT
    missent.add(ref("another"))
    assert await missent.get_all() == [ref("another")]


async def test_with_too_many_missent_objects_a_pass_is_made_and_the_next_one_not_before_30_s() -> None:
    ring = scan.Ring(scan.TWO)
    async with scan.passing(ring):
        await asyncio.sleep(1)
        for _ in range(8):
            fill(ring.missent)
            await asyncio.sleep(5)
        assert ring.server.circles == 3


async def test_a_pass_for_missent_objects_that_has_to_wait_is_made_30_s_after_the_last_one() -> None:
    ring = scan.Ring(scan.TWO)
    async with scan.passing(ring):
        await asyncio.sleep(1)
        for _ in range(2):
            fill(ring.missent)
            await asyncio.sleep(10)
        assert ring.server.circles == 2
        await asyncio.sleep(15)
        assert ring.server.circles == 3
        await asyncio.sleep(100)
        assert ring.server.circles == 3


def test_a_suspect_is_confirmed_by_the_same_version_in_the_next_pass() -> None:
    first = Pass(ANY)
    assert not first.confirms(ref("a"), "7")
    second = Pass(ANY, suspected=first.suspects)
    assert second.confirms(ref("a"), "7")
    assert not second.confirms(ref("a"), "8")
    for number in range(MAX_SUSPECTS + 5):
        second.confirms(ref(f"b-{number}"), "1")
    assert len(second.suspects) == MAX_SUSPECTS


async def test_requests_wait_by_owner_for_the_budget_and_what_is_in_flight_is_not_asked_again() -> None:
    ring = scan.Ring(scan.TWO)
    ring.handoffs.budget.max_per_owner = 1
    requests = DrainRequests(cast(RingContext, ring), cast(Handoffs, ring.handoffs))
    pass_ = Pass(ANY)
    for name in ("one", "two"):
        ring.server.own(name, "a-1")
        meta = ring.server.objects[name]
        requests.add(Misplaced(ref(name), meta, ring.kinds.role(WEBSITES, meta), "a-1"), pass_)
    async with asyncio.TaskGroup() as tasks:
        requests.send_allowed(pass_, tasks)
        assert len(requests) == 1
        requests.add(Misplaced(ref("one"), meta, ring.kinds.role(WEBSITES, meta), "a-1"), pass_)
        assert len(requests) == 1
        requests.clear()
    assert len(requests) == 0


async def test_an_owner_for_which_much_waits_keeps_no_other_owner_s_requests_out() -> None:
    ring = scan.Ring(scan.TWO)
    requests = DrainRequests(cast(RingContext, ring), cast(Handoffs, ring.handoffs))
    for number in range(20):
        meta = make_meta(f"site-{number}", shard="a-1" if number else "b-1")
        role = ring.kinds.role(WEBSITES, meta)
        requests.add(Misplaced(ref(meta.name), meta, role, meta.labels[KEYS.shard]), Pass(ANY))
    requests.trim(10)
    assert len(requests) == 5 + 1
    async with asyncio.TaskGroup() as tasks:
        requests.send_allowed(Pass(ANY), tasks)
    assert ref("site-0") in ring.handoffs


async def test_an_object_that_no_watch_showed_is_enqueued_once_and_not_beside_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = assigning.Ring(assigning.FakeMembership(assigning.TWO, "a-1", "b-1"))
    assert ring.queue.enqueue_unshown(ref("a"), make_meta("a"))
    assert not ring.queue.enqueue_unshown(ref("a"), make_meta("a")), "it is known to wait"
    assert ring.queue.to_do() == 1
    monkeypatch.setattr(pending, "ENOUGH", 1)
    assert not ring.queue.enqueue_unshown(ref("b"), make_meta("b"))
    assert not ring.queue.knows(ref("b"))


async def test_a_controller_is_ahead_until_every_controlled_object_is_known() -> None:
    ring = assigning.Ring(assigning.FakeMembership(assigning.last_renewed_before(50), "a-1", "b-1"))
    child = child_of("a", shard="c-dead").meta
    page = ObjectRef("configmaps", child.key)
    ring.queue.note_ahead(child.owner_references[0].uid)
    ring.queue.controlled_listed()
    ring.pending.put(page, child, at=0)
    ring.queue.enqueue(page)
    name = ring.pending.name(page)
    assert ring.pending.priority(name) is pending.AssignmentPriority.ORPHANED
    ring.queue.note_ahead(child.owner_references[0].uid)
    ring.queue.enqueue(page)
    assert ring.pending.priority(name) is pending.AssignmentPriority.NEW
