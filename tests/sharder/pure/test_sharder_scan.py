"""When a ring has converged: one whole pass, clean, under one ring version (the protocol's 6.4). On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import cast

import msgspec
import pytest

from kubeio.models import GroupResource, Meta, Object, ObjectKey, ObjectRef
from kubeio.resource import ApiResource
from kubeio.rest.answers import Page
from sharder.membership.shards import ShardState
from sharder.membership.view import ShardView, View
from sharder.moving import scan_pass
from sharder.moving.budget import DrainBudget
from sharder.moving.handoffs import Handoffs
from sharder.moving.missent import MissentObjects
from sharder.moving.scan import LONGEST_RETRY_S, YIELDS_S, Scan
from sharder.planning.decisions import Drain, Touch
from sharder.planning.keys import ControllerName, RingKinds
from sharder.planning.planner import ControllerSeen, Terms
from sharder.ringspec.spec import RingResource
from sharder.unowned.pending import PendingObjects
from sharder.unowned.permissions import MissingPermissions
from sharder.writing.assignment_queue import AssignmentQueue
from sharder.writing.object_writer import WriteOutcome
from sharder.writing.ring_context import RingContext
from tests.sharder.pure.contexts import KINDS, PAGES, SITES, SPEC, SitesContext, running
from tests.sharder.pure.views import (
    CONFIGMAPS,
    KEYS,
    WEBSITES,
    Published,
    child_of,
    make_meta,
    make_view,
    name_for,
)

pytestmark = pytest.mark.looptime

LIVES = {"a-1": ShardState.READY, "b-1": ShardState.READY}
REMOVED = GroupResource("", "secrets")
SECRETS = ApiResource("", "v1", "secrets", "Secret")
ONE, TWO = make_view(LIVES, {"a": "a-1"}), make_view(LIVES, {"a": "a-1", "b": "b-1"})
OF_A, OF_B = name_for(TWO, "a"), name_for(TWO, "b")


class Server:
    """Objects with an owner, listed one page per object and half a second; owners answer when the test says so."""

    def __init__(self) -> None:
        self.stripped = 0
        self.objects: dict[str, Meta] = {}
        self.pages_of_sites: dict[str, Meta] = {}
        self.asked: list[tuple[str, str]] = []
        self.touched: list[str] = []
        self.circles = 0
        self.reads = 0
        self.asked_for_pages_at: list[float] = []

    def own(self, name: str, shard: str) -> None:
        self.objects[name] = make_meta(name, shard=shard)

    def control(self, parent: str, shard: str) -> str:
        """A page of site *parent* that *shard* owns; its name."""
        meta = child_of(parent, shard=shard).meta
        self.pages_of_sites[meta.name] = meta
        return meta.name

    async def pages(self, resource: ApiResource, **_: object) -> AsyncIterator[Page]:
        if resource == CONFIGMAPS:
            yield Page([Object(meta, b"{}") for meta in self.pages_of_sites.values()], "1", "", None)
            return
        self.circles += 1
        for meta in list(self.objects.values()):
            yield Page([Object(meta, b"{}")], "1", "", None)
            self.asked_for_pages_at.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.5)

    async def read(self, resource: ApiResource, meta: Meta) -> Meta | None:
        return self.objects.get(meta.name)

    async def read_controller(self, controller: ControllerName) -> ControllerSeen:
        self.reads += 1
        found = self.objects.get(controller.name)
        return ControllerSeen(found.labels.get(KEYS.shard)) if found else ControllerSeen(exists=False)

    async def write(self, resource: ApiResource, meta: Meta, decision: object) -> WriteOutcome:
        if isinstance(decision, Touch):
            self.touched.append(meta.name)
            return WriteOutcome.DONE
        assert isinstance(decision, Drain)
        self.asked.append((meta.name, decision.to))
        labels = {**meta.labels, KEYS.drain: decision.to}
        kept = self.objects if meta.name in self.objects else self.pages_of_sites
        kept[meta.name] = msgspec.structs.replace(meta, labels=labels)
        return WriteOutcome.DONE


class InFlight:
    """The handoffs of one ring: the part of `sharder.moving.handoffs.Handoffs` that a pass needs."""

    def __init__(self) -> None:
        self.budget = DrainBudget(max_in_flight=10, max_per_owner=10, timeout_s=60)
        self.synced = asyncio.Event()
        self.synced.set()
        self.works: set[ObjectRef] = set()
        self.is_former_left = False

    def __len__(self) -> int:
        return len(self.works)

    def is_free_of_former(self) -> bool:
        return not self.is_former_left

    def __contains__(self, work: ObjectRef) -> bool:
        return work in self.works

    def begin(self, work: ObjectRef, owner: str) -> None:
        self.works.add(work)
        self.budget.begin(work, owner=owner, at=asyncio.get_running_loop().time())

    def failed(self, work: ObjectRef) -> None:
        self.end(work)

    def end(self, work: ObjectRef) -> None:
        self.works.discard(work)
        self.budget.end(work)

    async def wait_changed(self, *, at_most_s: float | None = None) -> None:
        await asyncio.sleep(at_most_s or 0.1)


class Ring(SitesContext):
    """What a pass knows of its ring: the part of `RingContext` that it reads."""

    def __init__(self, view: View, *, kinds: RingKinds = KINDS) -> None:
        self.membership = Published(view)
        super().__init__(self.membership)
        self.kinds = kinds
        self.server = self.client = self.objects = Server()
        self.permissions = MissingPermissions(now=self.clock.now, on_change=lambda _, __: None)
        self.handoffs = InFlight()
        context, pending = cast(RingContext, self), PendingObjects()
        self.pending = pending
        self.to_do = 0
        self.queue, self.missent = AssignmentQueue(context, pending), MissentObjects()
        self.queue.to_do = lambda: self.to_do  # type: ignore[method-assign] # as if so many objects had no owner
        self.scan = Scan(context, cast(Handoffs, self.handoffs), self.missent, self.queue)

    def has_converged(self) -> bool:
        return self.scan.is_converged

    def acknowledge(self, name: str) -> None:
        """The owner passes *name* on."""
        meta = self.server.objects[name]
        self.server.own(name, meta.labels[KEYS.drain])
        self.handoffs.end(ObjectRef(WEBSITES.group_resource, ObjectKey("ns", name)))


@asynccontextmanager
async def passing(ring: Ring) -> AsyncIterator[None]:
    async with running(ring.states, ring.scan.run()):
        yield


async def test_passes_yield_to_objects_without_an_owner() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    ring.to_do = 30_000
    async with passing(ring):
        await asyncio.sleep(100)
        assert ring.server.circles == 0
        ring.to_do = 100
        await asyncio.sleep(3)
        assert ring.has_converged()


async def test_a_ring_that_converged_looks_again_until_what_it_gave_up_is_free() -> None:
    """Drain labels of a removed resource may go long after the last pass: no watch of them was allowed, perhaps."""
    ring = Ring(TWO)
    ring.handoffs.is_former_left = True
    async with passing(ring):
        await asyncio.sleep(100)
        assert ring.has_converged()
        assert not ring.scan.former_free.is_set()
        ring.handoffs.is_former_left = False
        await asyncio.sleep(LONGEST_RETRY_S + 1)
        assert ring.scan.former_free.is_set()
        circles = ring.server.circles
        await asyncio.sleep(1000)
        assert ring.server.circles == circles


async def test_a_removed_resource_is_free_only_after_a_pass_that_began_when_nothing_could_land_any_more() -> (
    None
):
    """An object of it may have been given its owner at admission before, and be stored late."""
    served = {SITES: WEBSITES, PAGES: CONFIGMAPS, REMOVED: SECRETS}
    ring = Ring(TWO, kinds=RingKinds(SPEC, served, worked=(RingResource(REMOVED),)))
    assert ring.kinds.former == (SECRETS,)
    async with passing(ring):
        await asyncio.sleep(100)
        assert ring.has_converged()
        assert not ring.scan.former_free.is_set()
        ring.scan.landed.set()
        await asyncio.sleep(0)
        assert not ring.scan.former_free.is_set()
        await asyncio.sleep(LONGEST_RETRY_S + 1)
        assert ring.scan.former_free.is_set()


async def test_a_namespace_that_is_deselected_before_all_handoffs_are_known_is_touched() -> None:
    """The assigner is at work by then: an assignment to it may be on its way."""
    ring = Ring(TWO)
    ring.server.objects["unowned"] = make_meta("unowned")
    ring.handoffs.synced.clear()
    ring.states.set_selected({"ns"})
    async with passing(ring):
        await asyncio.sleep(1)
        ring.states.set_selected(set())
        await asyncio.sleep(5)
        ring.handoffs.synced.set()
        await asyncio.sleep(5)
    assert ring.server.touched == ["unowned"]


async def test_passes_do_not_yield_for_ever() -> None:
    ring = Ring(TWO)
    for number in range(20):
        ring.server.own(f"site-{number}", "b-1")
    ring.to_do = 30_000
    async with passing(ring):
        await asyncio.sleep(YIELDS_S + 20)
        assert ring.server.circles >= 1
        assert ring.server.asked


async def test_a_pass_under_way_stops_for_objects_without_an_owner_and_begins_anew() -> None:
    """The rest of its list would be old: what it shows at its old owner has another one by then."""
    ring = Ring(ONE)
    for number in range(20):
        ring.server.own(f"site-{number}", "a-1")
    async with passing(ring):
        await asyncio.sleep(3)
        ring.to_do = 30_000
        await asyncio.sleep(60)
        assert ring.server.circles == 1
        assert not ring.has_converged()
        ring.server.objects = {OF_A: make_meta(OF_A, shard="a-1")}
        ring.to_do = 0
        await asyncio.sleep(5)
        assert ring.server.circles == 2
        assert ring.has_converged()


async def test_a_clean_pass_is_convergence_and_nothing_more_is_read() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    ring.server.own(OF_B, "b-1")
    async with passing(ring):
        await asyncio.sleep(100)
        assert ring.has_converged()
        assert ring.scan.last_seen == 2
        assert ring.server.circles == 1


async def test_a_pass_leaves_the_server_to_others_for_as_long_as_a_page_took() -> None:
    ring = Ring(ONE)
    for number in range(5):
        ring.server.own(f"site-{number}", "a-1")
    async with passing(ring):
        await asyncio.sleep(100)
        assert ring.has_converged()
    at = ring.server.asked_for_pages_at
    assert [round(later - earlier, 2) for earlier, later in pairwise(at)] == [1.0] * 4  # a page takes 0.5 s


WITH_DEAD = make_view({**LIVES, "c-1": ShardState.DEAD}, {"a": "a-1", "b": "b-1"})


def left_behind(ring: Ring) -> ObjectRef:
    """An object of a dead shard that the assigner does not know: a stale page shows it, or no watch did."""
    ring.server.own("left", "c-1")
    return ObjectRef(WEBSITES.group_resource, ObjectKey("ns", "left"))


async def test_what_a_list_shows_under_a_dead_name_is_left_alone_if_it_has_an_owner_by_the_next_one() -> None:
    ring = Ring(WITH_DEAD)
    work = left_behind(ring)
    async with passing(ring):
        await asyncio.sleep(0.8)
        assert ring.server.circles == 1
        assert not ring.has_converged()
        ring.server.objects.clear()  # as if it had an owner: the next list does not show it
        await asyncio.sleep(10)
        assert ring.pending.get(work) is None
        assert ring.has_converged()


async def test_what_two_lists_show_under_a_dead_name_gets_an_owner() -> None:
    ring = Ring(WITH_DEAD)
    work = left_behind(ring)
    async with passing(ring):
        await asyncio.sleep(0.3)
        assert ring.server.circles == 1
        assert ring.pending.get(work) is None
        await asyncio.sleep(10)
        assert ring.server.circles >= 2
        assert ring.pending.get(work) is not None


async def test_what_is_read_anew_under_a_dead_name_gets_an_owner_at_once() -> None:
    ring = Ring(WITH_DEAD)
    async with passing(ring):
        await asyncio.sleep(5)
        work = left_behind(ring)
        ring.missent.add(work)
        await asyncio.sleep(0.2)
        assert ring.pending.get(work) is not None


def with_stranger(view: View) -> View:
    """*view*, and a name under care that no shard's Lease ever bore."""
    forged = ShardView("forged", "forged", ShardState.CONTESTED, False, 0.0, had_lease=False)
    return replace(view, shards={**view.shards, "forged": forged})


async def test_a_forged_name_keeps_a_ring_neither_from_converging_nor_from_moving_the_others() -> None:
    ring = Ring(with_stranger(TWO))
    ring.server.own(OF_A, "forged")
    ring.server.own(OF_B, "a-1")
    async with passing(ring):
        await asyncio.sleep(10)
        assert ring.server.asked == [(OF_B, "b-1")]
        ring.acknowledge(OF_B)
        await asyncio.sleep(60)
        assert ring.has_converged()
        assert ring.queue.knows(ObjectRef(WEBSITES.group_resource, ObjectKey("ns", OF_A))), "the assigner's"


async def test_a_name_that_lost_its_lease_keeps_a_ring_from_converging() -> None:
    lost = ShardView("lost", "lost", ShardState.CONTESTED, False, 0.0)
    ring = Ring(replace(TWO, shards={**TWO.shards, "lost": lost}))
    ring.server.own(OF_A, "lost")
    async with passing(ring):
        await asyncio.sleep(60)
        assert not ring.has_converged()


async def test_a_ring_that_is_given_up_is_not_done_while_a_forged_name_stands() -> None:
    ring = Ring(with_stranger(TWO))
    ring.states.set_terms(Terms(releasing=True))
    ring.server.own(OF_A, "forged")
    async with passing(ring):
        await asyncio.sleep(60)
        assert not ring.has_converged()


async def test_a_pass_that_found_something_is_no_convergence() -> None:
    ring = Ring(TWO)
    ring.states.set_terms(Terms(paused=True))
    ring.server.own(OF_B, "a-1")
    async with passing(ring):
        await asyncio.sleep(60)
        assert not ring.has_converged()
        assert ring.server.asked == []
        ring.states.set_terms(Terms())
        await asyncio.sleep(60)
        assert ring.server.asked == [(OF_B, "b-1")]
        assert not ring.has_converged(), "it was asked for and is not there yet"
        ring.acknowledge(OF_B)
        await asyncio.sleep(60)
        assert ring.has_converged()


async def test_a_pass_during_which_the_ring_changed_is_no_convergence() -> None:
    ring = Ring(ONE)
    ring.server.own(OF_B, "a-1")
    ring.server.own(OF_A, "a-1")
    async with passing(ring):
        await asyncio.sleep(0.7)  # the first object was found at its place
        await ring.membership.publish(TWO)
        await asyncio.sleep(10)
        assert ring.server.asked == [(OF_B, "b-1")]
        assert not ring.has_converged()
        ring.acknowledge(OF_B)
        await asyncio.sleep(60)
        assert ring.has_converged()


async def test_a_pass_that_had_begun_before_a_request_is_no_convergence() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    ring.server.own(OF_B, "b-1")
    async with passing(ring):
        await asyncio.sleep(0.7)  # the first object was found at its place
        ring.scan.request_pass()
        await asyncio.sleep(1.0)
        assert not ring.has_converged()
        await asyncio.sleep(2.0)
        assert ring.has_converged()
        assert ring.server.circles == 2


async def test_one_more_pass_casts_no_doubt_on_the_last_one() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    async with passing(ring):
        await asyncio.sleep(10)
        ring.server.own(OF_B, "a-1")
        ring.scan.request_pass(stays_converged=True)
        assert ring.has_converged()
        await asyncio.sleep(10)
        assert ring.server.asked == [(OF_B, "b-1")]


async def test_a_change_of_the_ring_ends_convergence() -> None:
    ring = Ring(ONE)
    ring.server.own(OF_B, "a-1")
    async with passing(ring):
        await asyncio.sleep(10)
        assert ring.has_converged()
        await ring.membership.publish(TWO)
        assert not ring.has_converged()
        await asyncio.sleep(10)
        assert ring.server.asked == [(OF_B, "b-1")]


# ---- controlled objects -------------------------------------------------------------------------------------------


async def test_controlled_objects_beside_their_controllers_cost_no_read() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    ring.server.own(OF_B, "b-1")
    ring.server.control(OF_A, "a-1")
    ring.server.control(OF_B, "b-1")
    async with passing(ring):
        await asyncio.sleep(10)
        assert ring.has_converged()
        assert ring.scan.last_seen == 4
        assert ring.server.reads == 0


async def test_a_controlled_object_whose_controller_moves_is_not_asked_for_and_costs_no_read() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_B, "a-1")
    ring.server.control(OF_B, "a-1")
    async with passing(ring):
        await asyncio.sleep(30)
        assert ring.server.asked == [(OF_B, "b-1")]
        assert ring.server.reads == 0
        assert not ring.has_converged()


async def test_a_controlled_object_left_behind_is_asked_for_after_a_read_of_its_controller() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_B, "b-1")
    page = ring.server.control(OF_B, "a-1")
    async with passing(ring):
        await asyncio.sleep(10)
        assert ring.server.asked == [(page, "b-1")]
        assert ring.server.reads == 1
        assert not ring.has_converged()


async def test_a_controlled_object_of_a_controller_that_is_gone_is_left_to_the_garbage_collector() -> None:
    ring = Ring(TWO)
    ring.server.control(OF_B, "a-1")
    async with passing(ring):
        await asyncio.sleep(10)
        assert ring.server.asked == []
        assert ring.has_converged()


async def test_with_too_many_objects_under_way_controlled_ones_wait_for_a_later_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan_pass, "MAX_DISPLACED", 0)
    ring = Ring(TWO)
    ring.server.own(OF_A, "b-1")
    ring.server.own(OF_B, "b-1")
    page = ring.server.control(OF_B, "a-1")
    async with passing(ring):
        await asyncio.sleep(10)
        assert ring.server.asked == [(OF_A, "a-1")]
        ring.acknowledge(OF_A)
        await asyncio.sleep(10)
        assert ring.server.asked == [(OF_A, "a-1"), (page, "b-1")]
