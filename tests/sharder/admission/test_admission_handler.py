"""Who is labelled when it is created, and who is left to the ordinary way: every answer is the planner's, shown by
a Lease that is read after the request came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kubeio.errors import NotFound, Unreachable
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import Lease, LeaseSpec, Meta
from sharder.admission.handler import AdmissionHandler
from sharder.admission.review import (
    MAX_MANAGED,
    MAX_TRACKED_BYTES,
    AdmissionRequest,
    Labelled,
    Skipped,
    read_review,
)
from sharder.membership.shards import ShardState
from sharder.membership.view import AssignmentHold, View, WaitReason
from sharder.planning.keys import ControllerName, RingKinds
from sharder.planning.planner import ControllerSeen, Terms
from sharder.planning.state import RingStates
from sharder.ringspec.spec import KeyKind, LeaseRef
from sharder.unowned.namespaces import Namespaces
from tests.sharder.admission.reviews import Doc, child, managed, review, website
from tests.sharder.pure.contexts import PAGES, SITES, SPEC
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES, make_view, name_for

pytestmark = pytest.mark.looptime

BOTH = {"a-1": ShardState.READY, "b-1": ShardState.READY}
PLACES = {"a": "a-1", "b": "b-1"}
OF_A, OF_B = (name_for(make_view(BOTH, PLACES), member) for member in "ab")
HOLDS = (WaitReason.NOT_SYNCED, WaitReason.MIN_MEMBERS, WaitReason.START_DELAY)
NOT_HELD = (ShardState.RELEASED, ShardState.CONTESTED, ShardState.DEAD)


@dataclass
class Leases:
    """Leases by name: what stands in `holderIdentity`. *label* is the ring they are of."""

    holders: dict[str, str]
    ring: str = KEYS.ring

    async def get(self, name: str) -> Lease:
        if name not in self.holders:
            raise NotFound("GET lease", status=404)
        return Lease(Meta(name=name, labels={KEYS.ring_label: self.ring}), LeaseSpec(self.holders[name]))


@dataclass
class World:
    """What one sharder sees, and what the API server says when it is asked."""

    view: View = field(default_factory=lambda: make_view(BOTH, PLACES))
    leases: Leases = field(default_factory=lambda: Leases({"a-1": "a-1", "b-1": "b-1"}))
    former: Leases = field(default_factory=lambda: Leases({}))
    controllers: dict[str, ControllerSeen] = field(default_factory=dict)
    selected: bool = True
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    terms: dict[str, Any] = field(default_factory=dict)
    releasing: bool = False

    async def wait_newer(self, version: int) -> View:
        raise AssertionError("an answer waits for no other view")

    async def read_controller(self, controller: ControllerName) -> ControllerSeen:
        if controller.name not in self.controllers:
            raise Unreachable("GET website", "no answer in time", maybe_done=True)
        return self.controllers[controller.name]

    @asynccontextmanager
    async def handler(self) -> AsyncIterator[AdmissionHandler]:
        spec = make_spec(resources=SPEC.resources, assign_at_admission=True, **self.terms)
        yield AdmissionHandler(
            spec=spec,
            kinds=RingKinds(spec, {SITES: WEBSITES, PAGES: CONFIGMAPS}),
            states=RingStates(
                self,
                Terms(paused=spec.paused, releasing=self.releasing),
                None if self.selected else frozenset(),
            ),
            namespaces=cast(Namespaces, self),
            read_controller=self.read_controller,
            leases=SharedLeaseReads(self.leases),
            former=SharedLeaseReads(self.former),
        )

    async def asked(self, asked: AdmissionRequest) -> object:
        self.synced.set()
        async with self.handler() as handler:
            return await handler.verdict(asked)

    async def created(self, obj: Doc, **request: Any) -> object:
        return await self.asked(read_review(review(obj, **request)))


@pytest.mark.parametrize("request_", [{}, {"dryRun": True}], ids=["create", "dry-run"])
@pytest.mark.parametrize("terms", [{}, {"paused": True}], ids=["at-work", "paused"])
async def test_a_root_gets_the_owner_that_the_ring_gives_it(
    terms: dict[str, Any], request_: dict[str, Any]
) -> None:
    world = World(terms=terms)
    assert await world.created(website(OF_A), **request_) == Labelled("a-1")
    assert await world.created(website(OF_B), **request_) == Labelled("b-1")


@pytest.mark.parametrize(
    ("obj", "left"),
    [
        pytest.param(website("", generateName="blog-"), Skipped.GENERATED_NAME, id="no-name-no-key"),
        pytest.param(website("blog", labels={KEYS.shard: "b-1"}), Skipped.ALREADY_LABELLED, id="labelled"),
    ],
)
async def test_an_object_without_a_key_or_with_an_owner_is_left(obj: Doc, left: Skipped) -> None:
    assert await World().created(obj) is left


def naming(kind: str, key: str) -> Doc:
    return managed({"f:metadata": {f"f:{kind}": {f"f:{key}": {}}}})


@pytest.mark.parametrize(
    "meta",
    [
        {"managedFields": []},
        {"managedFields": None},
        {"managedFields": [managed({"f:spec": {}})] * (MAX_MANAGED + 1)},
        {"managedFields": [managed({"f:spec": {}}), naming("labels", KEYS.shard)]},
        {"managedFields": [naming("labels", KEYS.drain)]},
        {"managedFields": [naming("annotations", KEYS.turn)]},
        {"labels": {KEYS.drain: "a-1"}},
        {"annotations": {KEYS.turn: "0", "large": "x"}},
        {"annotations": {"large": "x" * MAX_TRACKED_BYTES}},
    ],
)
async def test_what_may_have_come_with_keys_of_the_ring_is_left_to_the_watch(meta: Doc) -> None:
    """The guard tells by managedFields who wrote the keys: the object's creator, or this webhook (ADR 35)."""
    assert await World().created(website("blog", **meta)) is Skipped.MAY_BRING_KEYS


async def test_managed_fields_are_read_however_deep_the_object_is_nested() -> None:
    world = World()
    obj = website(OF_A)
    body = review(obj).replace(b'"html": "x"', b'"html": ' + b"[" * 5_000 + b"]" * 5_000)
    assert await world.asked(read_review(body)) == Labelled("a-1")


@pytest.mark.parametrize(
    ("request_", "left"),
    [
        ({"operation": "UPDATE"}, Skipped.NOT_A_CREATE),
        ({"subResource": "status"}, Skipped.NOT_A_CREATE),
        ({"resource": "gadgets"}, Skipped.NOT_OURS),
        ({"group": "other.example.com"}, Skipped.NOT_OURS),
        ({"object": {"metadata": []}}, Skipped.NOT_OURS),
    ],
)
async def test_what_the_ring_does_not_distribute_is_left(request_: dict[str, Any], left: Skipped) -> None:
    assert await World().created(website("blog"), **request_) is left


async def test_namespaces_that_are_not_selected_are_left() -> None:
    assert await World(selected=False).created(website("blog")) is Skipped.NOT_SELECTED


async def test_until_the_namespaces_have_been_listed_nothing_is_labelled() -> None:
    world = World()
    async with world.handler() as handler:
        assert await handler.verdict(read_review(review(website("blog")))) is Skipped.NOT_SELECTED


async def test_a_ring_that_is_being_deleted_takes_nothing_in() -> None:
    assert await World(releasing=True).created(website("blog")) is Skipped.NOT_OURS


WAITING = {
    **{str(reason): make_view(BOTH, PLACES, hold=AssignmentHold(reason)) for reason in HOLDS},
    **{str(state): make_view({**BOTH, "a-1": state}, PLACES) for state in NOT_HELD},
    "a-place-that-waits-for-its-next-life": make_view(BOTH, {"a": None, "b": "b-1"}),
}


@pytest.mark.parametrize("view", WAITING.values(), ids=WAITING)
async def test_what_would_have_to_wait_is_left(view: View) -> None:
    assert await World(view=view).created(website(OF_A)) is Skipped.WAITS


@pytest.mark.parametrize("holder", ["", "sharder:x", "b-1"])
async def test_a_name_whose_lease_is_not_shown_held_is_not_written(holder: str) -> None:
    """The view may be old: what counts is the Lease, read after the request came."""
    world = World(leases=Leases({"a-1": holder}))
    assert await world.created(website(OF_A)) is Skipped.NO_EVIDENCE


async def test_a_lease_that_is_gone_or_of_another_ring_is_no_evidence() -> None:
    world = World(leases=Leases({}))
    name = OF_A
    assert await world.created(website(name)) is Skipped.NO_EVIDENCE
    world.leases = Leases({"a-1": "a-1"}, ring="another")
    assert await world.created(website(name)) is Skipped.NO_EVIDENCE


async def test_before_activation_nothing_is_labelled_whatever_the_sharder_believes() -> None:
    former = LeaseRef("shop", "shop-controller")
    world = World(terms={"activation": former})
    name = OF_A
    for holder in ("", "shop-controller-7", "ringleader:another"):
        world.former = Leases({"shop-controller": holder})
        assert await world.created(website(name)) is Skipped.NO_EVIDENCE
    world.former = Leases({"shop-controller": f"ringleader:{KEYS.ring}"})
    assert await world.created(website(name)) == Labelled("a-1")


# -- other keys than the object's own


async def test_under_key_namespace_everything_in_one_is_born_with_one_owner() -> None:
    world = World(terms={"key": KeyKind.NAMESPACE})
    verdicts = {await world.created(website(f"site-{number}")) for number in range(20)}
    assert len(verdicts) == 1
    assert verdicts <= {Labelled("a-1"), Labelled("b-1")}
    spread = {await world.created(website("site"), namespace=f"ns-{number}") for number in range(20)}
    assert spread == {Labelled("a-1"), Labelled("b-1")}


async def test_under_key_label_the_label_that_it_is_born_with_decides() -> None:
    world = World(terms={"key": KeyKind.LABEL, "key_label": "tenant"})
    of_one = {await world.created(website(f"site-{n}", labels={"tenant": "x"})) for n in range(20)}
    assert len(of_one) == 1
    spread = {await world.created(website("site", labels={"tenant": f"t-{n}"})) for n in range(20)}
    assert spread == {Labelled("a-1"), Labelled("b-1")}


# -- controlled objects


@pytest.mark.parametrize(
    ("controller", "verdict"),
    [
        pytest.param(ControllerSeen("b-1"), Labelled("b-1"), id="where-its-controller-belongs"),
        pytest.param(ControllerSeen("a-1"), Labelled("a-1"), id="where-its-controller-is"),
        pytest.param(ControllerSeen("nobody-1"), Skipped.WAITS, id="unknown-owner"),
        pytest.param(None, Skipped.NO_EVIDENCE, id="unreadable-controller"),
    ],
)
async def test_a_controlled_object_goes_with_its_controller(
    controller: ControllerSeen | None, verdict: object
) -> None:
    world = World(controllers={OF_B: controller} if controller else {})
    assert await world.created(child(OF_B), resource="configmaps", group="") == verdict


async def test_an_object_of_a_controlled_kind_that_no_object_of_the_ring_controls_is_left() -> None:
    obj = child("blog", ownerReferences=[])
    assert await World().created(obj, resource="configmaps", group="") is Skipped.NOT_OURS
