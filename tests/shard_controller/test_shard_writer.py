"""Writes and handoffs of one shard against a real API server: fences, creates without answers, the order of a drain."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry

import shard_controller as sc
from devcluster.embedded import Fault
from kubeio.access.cluster import load_cluster
from kubeio.clock import ManualClock, SystemClock, micro_time
from kubeio.decoding import object_from
from kubeio.errors import ApiError, InputError, ServerFailure, api_error
from kubeio.leases.lease import Leases
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import Lease, LeaseSpec, Meta, Object, ObjectKey
from kubeio.patch import JsonPatch
from kubeio.rest.client import Client
from kubeio.rest.events import EventRecorder
from kubeio.shard.handoff import Directed, KeepOwner, Plain
from kubeio.shard.lease_validity import LeaseValidity
from shard_controller.api.context import Context
from shard_controller.api.session import ReconcileSession
from shard_controller.declare.errors import Elsewhere, Refused
from shard_controller.objects.caches import Caches, ResourceCache, version_of
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.shard.drain import DrainAcknowledger, NotAcknowledged
from shard_controller.shard.identities import unnamed
from shard_controller.shard.ownership import ShardOwnership
from shard_controller.shard.writer import FencedWriter, Unanswered
from sharder.planning.decisions import Assign
from sharder.planning.patches import patch_of
from tests.shard_controller.bench import NAMESPACE as NS
from tests.shard_controller.bench import Bench
from tests.shard_controller.objects import CONFIGMAPS, KEYS, ME, OTHER, WEBSITES, reference

PAGES = sc.Resource("configmaps/v1", dict)
SITES = sc.Resource("websites.example.com/v1", dict)
OF_THIS_RING = {KEYS.ring_label: KEYS.ring}
BLOG = ObjectKey(NS, "blog")


class Shard:
    """The writing rooms of one shard with the name `ME`, under the account `web-0`; its cache is filled by the test."""

    def __init__(self, bench: Bench, client: Client) -> None:
        clock, metrics = SystemClock(), ControllerMetrics(CollectorRegistry(), controller="c", workers=1)
        self.bench = bench
        self.client = client
        self.sites = ResourceCache(WEBSITES, declared=SITES)
        self.pages = ResourceCache(CONFIGMAPS)
        self.caches = Caches(self.sites, [self.pages], (), {PAGES.text: self.pages})
        validity = LeaseValidity(duration_s=600, sent_at=clock.now())
        self.ownership = ShardOwnership(KEYS, ME, validity=validity, clock=clock)
        leases = Leases(client, NS)
        self.writer = FencedWriter(
            unnamed(client),
            self.ownership,
            leases=leases,
            field_manager="test",
            observers=[metrics],
            spans=None,
            clock=clock,
            rng=random.Random(1),
        )
        self.handover = DrainAcknowledger(
            self.caches, self.ownership, self.writer, SharedLeaseReads(leases), metrics
        )

    async def knows(self, kind: ResourceCache, key: ObjectKey) -> Meta:
        """Show *key* to the cache as a watch would; gives its metadata."""
        raw = await self.client.get(kind.resource, key.name, namespace=key.namespace, type=bytes)
        found = object_from(raw)
        kind.store.learn(found)
        return found.meta

    async def create_page(self, site: Meta, *, is_wanted: bool = True) -> Object:
        """Have the page of *site*, as its reconcile would."""
        body = page_of(site, label=ME)
        return await self.writer.create(
            self.pages, body, key=BLOG, owner_uid=site.uid, is_wanted=lambda: is_wanted
        )

    def session(self, current: Object | None = None) -> ReconcileSession:
        """A reconcile of *current*, of the site as the cache knows it if none is given."""
        current = current or self.sites.get(BLOG)
        assert current is not None
        events = EventRecorder(
            self.client, reporter="test", instance=ME, clock=SystemClock(), rng=random.Random(1)
        )
        return ReconcileSession(current, self.caches, self.writer, events, structlog.get_logger())

    def writes(self, verb: str, *, code: int) -> int:
        return len(self.bench.writes("web-0", resource="configmaps", verb=verb, code=code))


def page_of(site: Meta, *, label: str) -> dict[str, object]:
    owner = reference(site.name, site.uid)
    meta = {"name": "blog", "namespace": NS, "labels": {KEYS.shard: label}, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"page": "old"}}


@pytest.fixture
async def shard(bench: Bench) -> AsyncIterator[Shard]:
    kubeconfig = await bench.plane.kubeconfig_for("web-0")
    async with Client(load_cluster(kubeconfig=str(kubeconfig))) as client:
        await bench.site("blog", "", owner=ME)
        yield Shard(bench, client)


async def give(shard: Shard, owner: str) -> Meta:
    """Give the site to *owner* as the sharder would."""
    raw = await shard.client.get(WEBSITES, "blog", namespace=NS, type=bytes)
    meta = object_from(raw).meta
    patch = patch_of(Assign(owner, was=meta.labels.get(KEYS.shard, "")), meta, keys=KEYS)
    answer = await shard.bench.client.patch(WEBSITES, "blog", patch, namespace=NS, type=bytes)
    return object_from(answer).meta


async def existing_page(shard: Shard, *, label: str = ME) -> Meta:
    """A page of the site, made by somebody else; the cache does not show it."""
    site = await shard.knows(shard.sites, BLOG)
    raw = await shard.bench.client.create(CONFIGMAPS, page_of(site, label=label), namespace=NS, type=bytes)
    return object_from(raw).meta


async def test_a_refused_write_is_reported_and_not_sent_again(shard: Shard) -> None:
    page = await existing_page(shard)
    await shard.bench.label(CONFIGMAPS, "blog", shard=OTHER)
    with pytest.raises(Refused):
        await shard.writer.patch(shard.pages, page, JsonPatch().add("/data/page", "mine"))
    assert shard.writes("patch", code=422) == 1
    assert shard.writes("patch", code=200) == 0


async def test_a_write_of_an_earlier_turn_is_refused_although_the_object_came_back(shard: Shard) -> None:
    first = await give(shard, ME)
    late = JsonPatch().add("/spec/html", "of the first turn")
    await give(shard, OTHER)
    again = await give(shard, ME)
    with pytest.raises(Refused):
        await shard.writer.patch(shard.sites, first, late)
    ownership = shard.ownership
    assert ownership.token(first) < ownership.token(again)
    answer = await shard.writer.patch(shard.sites, again, JsonPatch().add("/spec/html", "now"))
    assert ownership.token(answer.meta) == ownership.token(again), (
        "a write of the owner is no change of the owner"
    )


async def test_an_object_that_got_its_owner_without_a_turn_is_written_by_name_and_uid(shard: Shard) -> None:
    site = await shard.knows(shard.sites, BLOG)
    assert KEYS.turn not in site.annotations
    answer = await shard.writer.patch(shard.sites, site, JsonPatch().add("/spec/html", "now"))
    assert (shard.ownership.token(site), answer.meta.uid) == (0, site.uid)


async def test_who_takes_the_turn_off_his_object_gets_it_written_after_one_more_read(shard: Shard) -> None:
    site = await give(shard, ME)
    await shard.bench.merge(WEBSITES, "blog", metadata={"annotations": {KEYS.turn: None}})
    change = JsonPatch().add("/spec/html", "now")
    with pytest.raises(Refused):
        await shard.writer.patch(shard.sites, site, change)
    found = await shard.writer.read(shard.sites, BLOG)
    assert found is not None
    await shard.writer.patch(shard.sites, found.meta, change)


@pytest.mark.parametrize("turn", ["", "x7", "-1", "1.5", "٣", "9" * 5000])
async def test_a_turn_that_is_no_version_is_tested_as_it_stands_and_is_no_token(
    shard: Shard, turn: str
) -> None:
    await shard.bench.merge(WEBSITES, "blog", metadata={"annotations": {KEYS.turn: turn}})
    site = await shard.knows(shard.sites, BLOG)
    assert shard.ownership.token(site) == 0
    await shard.writer.patch(shard.sites, site, JsonPatch().add("/spec/html", "now"))


@pytest.mark.parametrize("stale", ["version", "uid"])
async def test_a_delete_names_the_uid_and_the_version_that_was_seen(shard: Shard, stale: str) -> None:
    page = await existing_page(shard)
    if stale == "version":
        await shard.bench.label(CONFIGMAPS, "blog", shard=OTHER)
    else:
        page = msgspec.structs.replace(page, uid="of-an-earlier-one")
    with pytest.raises(Refused):
        await shard.writer.delete(shard.pages, page)
    assert await shard.bench.find(CONFIGMAPS, "blog") is not None


async def test_a_child_that_the_cache_does_not_show_yet_is_adopted(shard: Shard) -> None:
    page = await existing_page(shard)
    site = await shard.knows(shard.sites, BLOG)
    found = await shard.create_page(site)
    assert found.meta.uid == page.uid
    assert shard.writes("delete", code=200) == 0


async def test_a_create_without_an_answer_is_looked_for(shard: Shard) -> None:
    await shard.bench.plane.faults.add(
        Fault(what="lose_answer", user="web-0", verb="create", resource="configmaps", count=1)
    )
    site = await shard.knows(shard.sites, BLOG)
    created = await shard.create_page(site, is_wanted=False)
    assert created.meta.controller is not None
    assert shard.writes("create", code=201) == 1


async def test_a_create_without_an_answer_that_a_read_does_not_find_is_repeated(shard: Shard) -> None:
    """Not once the reconcile is over. What finds or creates the object settles nothing: the first may still arrive."""
    await shard.bench.plane.faults.add(
        Fault(what="error", user="web-0", verb="create", resource="configmaps", count=2)
    )
    site = await shard.knows(shard.sites, BLOG)
    with pytest.raises(ServerFailure):
        await shard.create_page(site, is_wanted=False)
    created = await shard.create_page(site)
    assert created.meta.controller is not None
    assert shard.writes("create", code=201) == 1
    assert shard.handover.waits_s(site, Plain()) == pytest.approx(60, abs=5)
    assert shard.handover.waits_s(site, KeepOwner()) == 0
    assert shard.handover.waits_s(created.meta, Plain()) == 0


async def test_a_write_that_the_server_gave_up_on_is_unanswered_for_a_minute() -> None:
    clock = ManualClock()
    unanswered = Unanswered(clock)
    for status, settled_in_s in ((504, 60.0), (422, 60.0)):
        with pytest.raises(ApiError):
            async with unanswered.request():
                raise api_error("PATCH x", status=status, reason="", message="", retry_after_s=None)
        assert unanswered.settled_in_s() == settled_in_s
    clock.advance(60)
    assert unanswered.settled_in_s() == 0
    with pytest.raises(ApiError):
        async with unanswered.request():
            raise api_error("PATCH x", status=422, reason="", message="", retry_after_s=None)
    assert unanswered.settled_in_s() == 0


async def test_a_task_that_a_reconcile_left_behind_creates_nothing(shard: Shard) -> None:
    await shard.knows(shard.sites, BLOG)
    async with shard.writer:
        session = shard.session()
        session.close()
        context = Context(None, session)
        with pytest.raises(RuntimeError, match="the reconcile is over"):
            await context.create(PAGES, "blog", {"data": {}})
    assert await shard.bench.find(CONFIGMAPS, "blog") is None


async def test_the_answer_to_an_own_write_was_seen(shard: Shard) -> None:
    read = await shard.knows(shard.sites, BLOG)
    session = shard.session()
    assert session.seen == read
    await session.write_finalizers(["example.com/page"])
    await session.write_status({"phase": "Refused"})
    assert session.seen == session.current.meta != read


@pytest.mark.parametrize(
    "edit",
    [
        {"spec": {"html": "next"}},
        {"metadata": {"labels": {KEYS.drain: OTHER}}},
        {"metadata": {"annotations": {"note": "x"}}},
        {"metadata": {"ownerReferences": [reference("shop", "u-1")]}},
    ],
    ids=["spec", "drain", "annotation", "owner"],
)
async def test_the_answer_to_an_own_write_may_show_what_was_not_seen(
    shard: Shard, edit: dict[str, object]
) -> None:
    read = await shard.knows(shard.sites, BLOG)
    session = shard.session()
    await shard.bench.merge(WEBSITES, "blog", **edit)
    await session.write_status({"phase": "Refused"})
    assert version_of(session.current.meta) > version_of(read)
    assert session.seen == read


async def test_a_reconcile_keeps_the_generation_that_it_read(shard: Shard) -> None:
    read = await shard.knows(shard.sites, BLOG)
    session = shard.session()
    await shard.bench.edit("blog", "next")
    await session.write_finalizers(["example.com/page"])
    assert session.current.meta.generation == read.generation + 1
    assert session.meta.generation == read.generation
    assert session.meta.finalizers == ["example.com/page"]


async def test_an_object_that_others_edited_before_an_own_write_does_not_delete_itself(shard: Shard) -> None:
    await shard.knows(shard.sites, BLOG)
    session = shard.session()
    await shard.bench.edit("blog", "next")
    await session.write_status({"phase": "Expired"})
    with pytest.raises(Refused):
        await Context(None, session).delete_self()
    assert (await shard.bench.get("websites", "blog"))["spec"]["html"] == "next"


@pytest.mark.parametrize(("data", "is_seen"), [("old", True), ("next", False)])
async def test_an_object_without_generation_is_compared_whole(shard: Shard, data: str, is_seen: bool) -> None:
    def version(number: int, data: str) -> Object:
        body = {"metadata": {"name": "blog", "resourceVersion": f"{number}"}, "data": data}
        return object_from(msgspec.json.encode(body))

    session = shard.session(version(7, "old"))
    session.current = version(9, data)
    assert version_of(session.seen) == (9 if is_seen else 7)


@pytest.mark.parametrize("how", ["create", "apply"])
async def test_a_child_in_another_namespace_is_refused(shard: Shard, how: str) -> None:
    """Garbage collection would delete it, and the next reconcile create it, for ever."""
    await shard.knows(shard.sites, BLOG)
    async with shard.writer:
        context = Context(None, shard.session())
        with pytest.raises(
            InputError, match=r"namespace: 'other' is not that of default/blog.*leave namespace= out"
        ):
            await getattr(context, how)(PAGES, "blog", {"data": {}}, namespace="other")
    assert shard.writes("create", code=201) == 0


async def test_a_reconcile_that_was_cut_off_ends_when_its_create_is_settled(shard: Shard) -> None:
    await shard.bench.plane.faults.add(
        Fault(what="latency", user="web-0", verb="create", resource="configmaps", count=1, delay_s=1.0)
    )
    await shard.knows(shard.sites, BLOG)
    async with shard.writer:
        session = shard.session()
        context = Context(None, session)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await context.create(PAGES, "blog", {"data": {"page": "new"}})
        assert await shard.bench.find(CONFIGMAPS, "blog") is None
        await session.settled()
        assert await shard.bench.find(CONFIGMAPS, "blog") is not None


async def create_lease(shard: Shard, holder: str = OTHER) -> None:
    """The Lease of `OTHER`, renewed just now."""
    now = micro_time(SystemClock().wall())
    meta = Meta(name=OTHER, namespace=NS, labels=OF_THIS_RING)
    await Leases(shard.bench.client, NS).create(Lease(meta, LeaseSpec(holder, 15, now, now, 0)))


async def test_our_child_under_another_live_name_is_asked_for_by_a_drain_label(shard: Shard) -> None:
    await create_lease(shard)
    await existing_page(shard, label=OTHER)
    site = await shard.knows(shard.sites, BLOG)
    with pytest.raises(Elsewhere):
        await shard.create_page(site)
    assert await shard.bench.labels(CONFIGMAPS, "blog") == {KEYS.shard: OTHER, KEYS.drain: ME}


async def test_our_child_under_a_dead_name_is_left_to_the_sharder(shard: Shard) -> None:
    await existing_page(shard, label=OTHER)
    site = await shard.knows(shard.sites, BLOG)
    with pytest.raises(Elsewhere):
        await shard.create_page(site)
    assert await shard.bench.labels(CONFIGMAPS, "blog") == {KEYS.shard: OTHER}


# -- handoffs


async def test_children_are_passed_on_before_their_parent(shard: Shard) -> None:
    await existing_page(shard)
    await shard.knows(shard.pages, BLOG)
    await shard.bench.label(WEBSITES, "blog", drain="")
    site = await shard.knows(shard.sites, BLOG)
    await shard.handover.hand_over(shard.sites, site, Directed(OTHER))
    given_up = [write.resource for write in shard.bench.writes("web-0", verb="patch", code=200)]
    assert given_up == ["configmaps", "websites.example.com"]


@pytest.mark.parametrize("holder", [None, "", "sharder:s-1"])
async def test_a_drain_towards_a_name_that_no_read_shows_held_is_plain(
    shard: Shard, holder: str | None
) -> None:
    if holder is not None:
        await create_lease(shard, holder)
    await shard.bench.label(WEBSITES, "blog", drain=OTHER)
    site = await shard.knows(shard.sites, BLOG)
    await shard.handover.hand_over(shard.sites, site, Directed(OTHER))
    assert await shard.bench.labels(WEBSITES, "blog") == {}


async def test_a_directed_handoff_begins_a_turn_and_leaves_other_annotations_alone(shard: Shard) -> None:
    await create_lease(shard)
    change = {"annotations": {"team": "shop"}, "labels": {KEYS.drain: OTHER}}
    await shard.bench.merge(WEBSITES, "blog", metadata=change)
    site = await shard.knows(shard.sites, BLOG)
    cached = msgspec.structs.replace(site, annotations={})  # what a transform left of it
    await shard.handover.hand_over(shard.sites, cached, Directed(OTHER))
    found = await shard.bench.find(WEBSITES, "blog")
    assert found["metadata"]["labels"] == {KEYS.shard: OTHER}
    assert found["metadata"]["annotations"] == {"team": "shop", KEYS.turn: site.resource_version}


async def test_an_object_that_keeps_changing_is_given_up_all_the_same(shard: Shard) -> None:
    await shard.bench.label(WEBSITES, "blog", drain="")
    site = await shard.knows(shard.sites, BLOG)

    async def touch() -> None:
        for number in range(10_000):
            await shard.bench.merge(WEBSITES, "blog", metadata={"annotations": {"touched": str(number)}})
            await asyncio.sleep(0.005)

    touching = asyncio.create_task(touch())
    await asyncio.sleep(0.05)  # what the cache has is old by now
    try:
        await shard.handover.hand_over(shard.sites, site, Plain())
    finally:
        touching.cancel()
        with suppress(asyncio.CancelledError):
            await touching
    assert await shard.bench.labels(WEBSITES, "blog") == {}


async def test_an_object_that_no_patch_may_change_is_reported_with_the_servers_message(shard: Shard) -> None:
    await shard.bench.label(WEBSITES, "blog", drain="")
    site = await shard.knows(shard.sites, BLOG)
    refusal = Fault(
        what="error", code=422, user="web-0", verb="patch", message="labels are frozen by policy x"
    )
    await shard.bench.plane.faults.add(refusal)
    with pytest.raises(NotAcknowledged, match="refuses that: labels are frozen by policy x"):
        await shard.handover.hand_over(shard.sites, site, Plain())


async def test_an_object_that_is_gone_is_given_up(shard: Shard) -> None:
    site = await shard.knows(shard.sites, BLOG)
    await shard.bench.delete(WEBSITES, "blog")
    await shard.handover.hand_over(shard.sites, site, Directed(OTHER))
    assert shard.sites.get(BLOG) is None or not shard.ownership.is_unanswered(shard.sites, BLOG)


async def test_an_object_that_changed_meanwhile_is_not_given_up_as_it_was(shard: Shard) -> None:
    site = await shard.knows(shard.sites, BLOG)
    await shard.bench.label(WEBSITES, "blog", drain=OTHER)
    with pytest.raises(NotAcknowledged):
        await shard.handover.hand_over(shard.sites, site, Plain())
    assert await shard.bench.labels(WEBSITES, "blog") == {KEYS.shard: ME, KEYS.drain: OTHER}
