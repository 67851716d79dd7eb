"""What is given to whom, and on which evidence: the protocol's 6.3, on virtual time.

The real assigner, planner and ring; a membership and a server that do what the test says, and note requests.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import cast

import msgspec
import pytest

from kubeio.models import Meta, ObjectKey, ObjectRef, OwnerReference
from sharder.membership.shards import ShardState
from sharder.membership.view import AssignmentHold, View, WaitReason
from sharder.planning.decisions import Decision
from sharder.planning.planner import CHILDREN_FIRST_S, Subject
from sharder.ringspec.spec import Pace
from sharder.unowned.pending import AssignmentPriority
from sharder.writing.assignment_queue import (
    FIRST_RETRY_S,
    LONGEST_RETRY_S,
    SOME,
    SPARE,
)
from sharder.writing.evidence_reads import NEXT_S
from sharder.writing.object_writer import WriteOutcome
from sharder.writing.ring_context import RingContext
from tests.sharder.pure.assigning import (
    OF_A,
    OF_B,
    READ_S,
    TWO,
    FakeMembership,
    Ring,
    at_version,
    last_renewed_before,
    moving,
    no_slots,
)
from tests.sharder.pure.views import CONFIGMAPS, WEBSITES, child_of, make_meta, make_view, names_for

pytestmark = pytest.mark.looptime


async def test_new_objects_go_before_those_of_the_dead() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.02
        async with no_slots(ring):
            for number in range(50):
                ring.shows(ring.objects.put(make_meta(f"orphan-{number}", shard="c-dead")))
            await asyncio.sleep(0.1)
            for number in range(5):
                ring.shows(ring.objects.put(make_meta(f"new-{number}")))
        await asyncio.sleep(10)
        order = [sent.name for sent in ring.objects.sent]
        assert len(order) == 55
        in_hand = ring.limiter.allowed(Pace.URGENT) + SPARE
        assert max(order.index(f"new-{number}") for number in range(5)) < in_hand + 7


async def test_an_object_made_anew_while_its_first_assignment_is_written_has_one_worker() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 1.0
        old = ring.objects.put(make_meta(OF_A))
        named = ObjectRef(WEBSITES.group_resource, old.key)
        ring.pending.put(named, old, at=ring.clock.now(), priority=AssignmentPriority.BACKLOG)
        ring.queue.enqueue(named)
        await asyncio.sleep(0.5)
        anew = ring.objects.put(msgspec.structs.replace(old, uid="anew", resource_version="9"))
        ring.pending.drop(ring.pending.name(named))
        ring.shows(anew)
        await asyncio.sleep(5)
        first, second = ring.objects.sent
        assert (first.version, second.version) == ("7", "9")
        assert second.at - first.at >= 1.0
        assert ring.owner(OF_A) == "a-1"
        assert len(ring.pending) == 0


async def test_writes_that_fail_are_tried_ever_more_rarely_and_a_success_begins_anew() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.objects.answers[OF_A] = WriteOutcome.LATER
        meta = ring.objects.put(make_meta(OF_A))
        ring.shows(meta)
        await asyncio.sleep(60)
        gaps = [later.at - one.at for one, later in pairwise(ring.objects.sent)]
        assert gaps[0] <= FIRST_RETRY_S + 0.1
        assert gaps[-1] == pytest.approx(LONGEST_RETRY_S, rel=0.25)
        del ring.objects.answers[OF_A]
        await asyncio.sleep(15)
        assert ring.owner(OF_A) == "a-1"
        ring.objects.answers[OF_A] = WriteOutcome.LATER
        ring.objects.sent.clear()
        ring.shows(ring.objects.put(at_version(500, meta)))
        await asyncio.sleep(1)
        assert ring.objects.sent[1].at - ring.objects.sent[0].at <= FIRST_RETRY_S + 0.1


async def test_a_new_object_goes_before_a_backlog() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.02
        for number in range(800):
            meta = ring.objects.put(make_meta(f"site-{number}"))
            work = ObjectRef(WEBSITES.group_resource, meta.key)
            ring.pending.put(work, meta, at=ring.clock.now(), priority=AssignmentPriority.BACKLOG)
            ring.queue.enqueue(work)
        await asyncio.sleep(0.5)
        asked_at = ring.clock.now()
        ring.shows(ring.objects.put(make_meta("new")))
        await asyncio.sleep(0.5)
        [sent] = [sent for sent in ring.objects.sent if sent.name == "new"]
        assert sent.at - asked_at <= NEXT_S + READ_S + 0.021


@pytest.mark.parametrize(
    ("priority", "asked", "pace"),
    [
        (AssignmentPriority.NEW, None, Pace.URGENT),
        (AssignmentPriority.ORPHANED, None, Pace.URGENT),
        (AssignmentPriority.BACKLOG, None, Pace.BACKGROUND),
        (AssignmentPriority.NEW, Pace.NORMAL, Pace.NORMAL),
        (AssignmentPriority.BACKLOG, Pace.URGENT, Pace.URGENT),
    ],
)
async def test_objects_without_a_worker_are_urgent_a_backlog_is_polite_unless_the_ring_says_otherwise(
    priority: AssignmentPriority, asked: Pace | None, pace: Pace
) -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1"), pace=asked) as ring:
        ring.objects.takes_s = 0.1
        for number in range(20):
            meta = ring.objects.put(make_meta(f"site-{number}"))
            work = ObjectRef(WEBSITES.group_resource, meta.key)
            ring.pending.put(work, meta, at=ring.clock.now(), priority=priority)
            ring.queue.enqueue(work)
        await asyncio.sleep(0.1)
        assert ring.limiter.in_flight == ring.limiter.allowed(pace)
    assert ring.limiter.allowed(Pace.URGENT) > ring.limiter.allowed(Pace.NORMAL)


async def test_an_object_that_may_not_be_written_stays_until_it_is_asked_for_again() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.objects.answers["one"] = WriteOutcome.DENIED
        ring.shows(ring.objects.put(make_meta("one")))
        await asyncio.sleep(60)
        assert len(ring.objects.sent) == 1
        assert len(ring.pending) == 1
        del ring.objects.answers["one"]
        ring.queue.enqueue_some(WEBSITES.group_resource, "elsewhere")
        ring.queue.enqueue_some(WEBSITES.group_resource, "ns")
        await asyncio.sleep(1)
        assert [sent.name for sent in ring.objects.sent] == ["one", "one"]
        assert len(ring.pending) == 0


async def test_a_closed_resource_is_tried_with_other_objects_each_time() -> None:
    """Those that came first may be the ones that cannot be written."""
    names = [f"site-{number}" for number in range(3 * SOME)]
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.objects.answers |= dict.fromkeys(names, WriteOutcome.DENIED)
        for name in names:
            ring.shows(ring.objects.put(make_meta(name)))
        await asyncio.sleep(10)
        ring.objects.sent.clear()
        for _ in range(20):
            ring.queue.enqueue_some(WEBSITES.group_resource, "ns")
            await asyncio.sleep(1)
        assert len(ring.objects.sent) == 20 * SOME
        assert {sent.name for sent in ring.objects.sent} == set(names)


async def test_a_slot_that_comes_late_is_used_under_the_ring_of_then() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        async with no_slots(ring):
            ring.shows(ring.objects.put(make_meta(OF_A)))
            await asyncio.sleep(3)
            both_live = {"a-1": ShardState.READY, "b-1": ShardState.READY}
            ring.membership.view = replace(make_view(both_live, {"b": "b-1"}), version=TWO.version + 1)
        await asyncio.sleep(1)
        assert [sent.to for sent in ring.objects.sent] == ["b-1"]


async def test_an_object_made_anew_while_its_name_was_read_is_not_forgotten() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        anew = msgspec.structs.replace(make_meta(OF_A), uid="anew", resource_version="9")

        async def gone(*_: object) -> None:
            ring.shows(ring.objects.put(anew))  # the watch is quicker than the answer

        ring.objects.read = gone  # type: ignore[method-assign, assignment]
        ring.objects.put(at_version(8, make_meta(OF_A)))
        ring.shows(make_meta(OF_A))
        await asyncio.sleep(5)
        assert [sent.version for sent in ring.objects.sent] == ["7", "9"]
        assert ring.owner(OF_A) == "a-1"


async def test_when_all_that_was_to_be_done_has_gone_the_next_page_is_asked_for() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        meta = make_meta(OF_A)
        ring.shows(meta)
        ring.pending.drop(ring.pending.name(ObjectRef(WEBSITES.group_resource, meta.key)))
        await asyncio.sleep(5)
        assert ring.lists.resumed > 0
        assert ring.queue.to_do() == 0


async def test_an_object_that_has_an_owner_by_now_is_left_to_it() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.shows(make_meta(OF_A))
        owned = msgspec.structs.replace(make_meta(OF_A, shard="b-1"), resource_version="9")
        ring.objects.put(owned)
        await asyncio.sleep(5)
        assert len(ring.objects.sent) == 1
        assert ring.owner(OF_A) == "b-1"
        assert len(ring.pending) == 0
        assert await missent_names(ring) == [OF_A], "it is not where it belongs"


async def missent_names(ring: Ring) -> list[str]:
    async with asyncio.timeout(1):
        return [ref.key.name for ref in await ring.missent.get_all()]


async def test_an_object_whose_assignment_was_on_its_way_while_the_ring_changed_is_missent() -> None:
    """A pass under the newer ring may have listed it without an owner."""
    only_a = replace(make_view({"a-1": ShardState.READY, "b-1": ShardState.READY}, {"a": "a-1"}), version=0)
    async with moving(FakeMembership(only_a, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 10
        for name in (OF_A, OF_B):
            ring.shows(ring.objects.put(make_meta(name)))
        await asyncio.sleep(1)
        ring.membership.view = TWO
        await asyncio.sleep(10)
        assert [ring.owner(name) for name in (OF_A, OF_B)] == ["a-1", "a-1"]
        assert await missent_names(ring) == [OF_B]
        ring.shows(ring.objects.put(make_meta(names_for(TWO, "b", 2)[1])))
        await asyncio.sleep(20)
        with pytest.raises(TimeoutError):
            await missent_names(ring)


async def dead_tree(ring: Ring) -> tuple[Meta, Meta]:
    """A site and its page that carry a dead name; the watch has shown the page, and nobody looked at it yet."""
    parent = ring.objects.put(make_meta(OF_A, shard="c-dead"))
    child = ring.objects.put(msgspec.structs.replace(child_of(OF_A, shard="c-dead").meta, uid="child"))
    work = ObjectRef(CONFIGMAPS.group_resource, ObjectKey("ns", child.name))
    ring.pending.put(work, child, at=ring.clock.now())
    ring.shows(parent)
    return parent, child


async def test_an_instant_that_is_over_before_its_view_is_published_is_not_asked_for_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with moving(FakeMembership(replace(TWO, hold=AssignmentHold(WaitReason.NO_MEMBERS, 5.0)))) as ring:
        plans_at: list[float] = []

        def counted(subject: Subject) -> Decision:
            plans_at.append(ring.clock.now())
            assert len(plans_at) < 1000
            return RingContext.plan(cast(RingContext, ring), subject)

        monkeypatch.setattr(ring, "plan", counted)
        ring.shows(ring.objects.put(make_meta("site")))
        await asyncio.sleep(6)
        late = [at for at in plans_at if at >= 5]
        assert late[0] == 5
        assert 10 <= len(late) <= 21


async def test_a_dead_shards_parent_goes_once_its_children_went() -> None:
    async with moving(FakeMembership(replace(TWO, at=0.0), "a-1", "b-1")) as ring:
        parent, child = await dead_tree(ring)
        await asyncio.sleep(0.5)
        assert ring.objects.sent == [], "its child still carries the dead name"
        ring.shows(child, CONFIGMAPS)
        ring.queue.enqueue(ObjectRef(CONFIGMAPS.group_resource, ObjectKey("ns", child.name)))
        await asyncio.sleep(1)
        assert [sent.name for sent in ring.objects.sent] == [child.name, parent.name]


async def test_a_dead_shards_parent_goes_after_ten_seconds_anyway_though_membership_stands_still() -> None:
    async with moving(FakeMembership(replace(TWO, at=0.0), "a-1", "b-1")) as ring:
        began = ring.clock.now()
        parent, _ = await dead_tree(ring)
        await asyncio.sleep(30)
        assert [sent.name for sent in ring.objects.sent] == [parent.name]
        assert ring.objects.sent[0].at - began == pytest.approx(CHILDREN_FIRST_S, abs=0.3)
        assert len(ring.membership.began) <= 3, "it is not asked about for ever"


async def test_what_changed_since_its_owner_renewed_goes_before_the_others_with_its_children() -> None:
    async with moving(FakeMembership(last_renewed_before(50), "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.05
        unchanged = [f"other-{number}" for number in range(300)]
        for name in unchanged:
            ring.shows(ring.objects.put(at_version(40, make_meta(name, shard="c-dead"))))
        child = ring.objects.put(msgspec.structs.replace(child_of(OF_A, shard="c-dead").meta, uid="child"))
        ring.shows(child, CONFIGMAPS)
        ring.shows(ring.objects.put(at_version(60, make_meta(OF_A, shard="c-dead"))))
        await asyncio.sleep(20)
        order = [sent.name for sent in ring.objects.sent]
        assert sorted(order) == sorted([*unchanged, child.name, OF_A])
        assert order.index(child.name) < order.index(OF_A) < 100


async def test_what_changes_after_a_wait_of_ten_seconds_goes_first_and_its_children_with_it() -> None:
    async with moving(FakeMembership(last_renewed_before(50), "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.05
        parent = ring.objects.put(at_version(40, make_meta(OF_A, shard="c-dead")))
        others = [f"other-{number}" for number in range(2000)]
        for name in others:
            ring.shows(ring.objects.put(at_version(40, make_meta(name, shard="c-dead"))))
        ring.shows(parent)
        child = ring.objects.put(msgspec.structs.replace(child_of(OF_A, shard="c-dead").meta, uid="child"))
        ring.shows(child, CONFIGMAPS)
        await asyncio.sleep(CHILDREN_FIRST_S + 1)
        done = len(ring.objects.sent)
        assert OF_A not in [sent.name for sent in ring.objects.sent], "others are before it"
        ring.shows(ring.objects.put(at_version(60, parent)))
        await asyncio.sleep(1)
        order = [sent.name for sent in ring.objects.sent][done:]
        assert {OF_A, child.name} <= set(order)


async def test_what_is_controlled_goes_first_if_its_wanted_controller_went_before_it_was_known() -> None:
    async with moving(FakeMembership(last_renewed_before(50), "a-1", "b-1")) as ring:
        ring.lists.knows_controlled = False
        ring.shows(ring.objects.put(at_version(60, make_meta(OF_A, shard="c-dead"))))
        await asyncio.sleep(CHILDREN_FIRST_S + 2)
        assert [sent.name for sent in ring.objects.sent] == [OF_A]
        ring.objects.takes_s = 0.05
        pages = []
        for number in range(300):
            ring.objects.put(make_meta(f"other-{number}", shard="a-1"))
            page = child_of(f"other-{number}", shard="c-dead").meta
            pages.append(
                ring.objects.put(at_version(40, msgspec.structs.replace(page, uid=f"page-{number}")))
            )
        for page in pages:
            ring.shows(page, CONFIGMAPS)
        child = ring.objects.put(msgspec.structs.replace(child_of(OF_A, shard="c-dead").meta, uid="child"))
        ring.shows(child, CONFIGMAPS)
        await asyncio.sleep(20)
        assert [sent.name for sent in ring.objects.sent].index(child.name) < 100


MIN_MEMBERS = make_view({"a-1": ShardState.READY}, {"a": "a-1"}, hold=AssignmentHold(WaitReason.MIN_MEMBERS))


@pytest.mark.parametrize(("view", "shard"), [(MIN_MEMBERS, None), (last_renewed_before(5), "c-dead")])
async def test_an_object_that_says_it_controls_itself_costs_no_more_than_others(
    view: View, shard: str | None
) -> None:
    async with moving(FakeMembership(view, "a-1", "b-1")) as ring:
        itself = OwnerReference("example.com/v1", "Website", OF_A, f"uid-of-{OF_A}", controller=True)
        ring.shows(ring.objects.put(make_meta(OF_A, shard=shard, owner_references=[itself])))
        await asyncio.sleep(CHILDREN_FIRST_S - 1)
        assert len(ring.membership.began) <= 2


async def test_objects_of_a_dead_owner_hold_no_list_back() -> None:
    async with moving(FakeMembership(TWO)) as ring:  # nobody is held: nothing is written
        for number in range(3):
            ring.shows(ring.objects.put(make_meta(f"orphan-{number}", shard="c-dead")))
        assert (ring.queue.to_do(), ring.queue.backlog()) == (3, 0)
        never_owned = make_meta("never-owned")
        ring.pending.put(
            ObjectRef(WEBSITES.group_resource, ObjectKey("ns", never_owned.name)),
            never_owned,
            at=0.0,
            priority=AssignmentPriority.BACKLOG,
        )
        ring.queue.enqueue(ObjectRef(WEBSITES.group_resource, ObjectKey("ns", never_owned.name)))
        assert (ring.queue.to_do(), ring.queue.backlog()) == (4, 1)
