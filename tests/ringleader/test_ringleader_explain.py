"""`explain` names the cause in its first line, whatever is the matter with the object."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeio.clock import SystemClock, micro_time
from kubeio.errors import InputError
from kubeio.models import Lease, LeaseSpec, Meta, ObjectKey
from kubeio.patch import ApplyPatch, MergePatch
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS
from ringleader.inspect.cluster.dates import DatedMeta, ManagedFields
from ringleader.inspect.cluster.rings import Ring, RingFields
from ringleader.inspect.cluster.sharders import ELECTION_LEASE, Sharders
from ringleader.inspect.cluster.terms import RingDocument
from ringleader.inspect.explain.diagnosis_work import well
from ringleader.inspect.explain.facts import Facts, Way, read_facts
from ringleader.inspect.explain.story import Story, lines, story
from ringleader.inspect.where.one import Placement
from tests.sharder.io.ground import CONFIGMAPS, KEYS, RING, WEBSITES, Ground, HandMadeShard, backdate

SITE = "websites.example.com/default/blog"
OWNER, OTHER = "a-00000001", "b-00000001"
CALLED_ALIKE = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "websites.other.io"},
    "spec": {
        "group": "other.io",
        "scope": "Namespaced",
        "names": {"plural": "websites", "singular": "website", "kind": "Website"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


async def told(ground: Ground, kind: str = "website", name: str = "blog", *, way: Way | None = None) -> Story:
    key = ObjectKey("default", name)
    return story(await read_facts(ground.client, kind, key, ring_name=None, way=way or Way(), timeout_s=10))


async def first_line(
    ground: Ground, kind: str = "website", name: str = "blog", *, way: Way | None = None
) -> str:
    return lines(await told(ground, kind, name, way=way), now=SystemClock().wall())[0]


async def leads(ground: Ground, *, holder: str = "sharder-1", renewed: str = "") -> None:
    """The election Lease of a sharder that leads, without the sharder."""
    now = renewed or micro_time(SystemClock().wall())
    await ground.leases.create(Lease(Meta(name=ELECTION_LEASE), LeaseSpec(holder, 15, now, now, 0)))


async def said_state(ground: Ground, shard: str, state: str) -> None:
    """What a sharder would write beside *shard*'s Lease."""
    from kubeio.resource import LEASES

    patch = MergePatch({"metadata": {"labels": {KEYS.state: state}}})
    await ground.client.patch(LEASES, shard, patch, namespace="default", type=bytes)


async def taken(ground: Ground, shard: HandMadeShard) -> None:
    await shard.fall_silent()
    lease = await shard.lease()
    lease.spec.holder_identity = "sharder-1"
    await ground.leases.swap(lease)


async def owned(ground: Ground, labels: Mapping[str, str] | None = None, **ring: object) -> HandMadeShard:
    """A ring with one member, whose object `blog` has its label (or *labels*), and a sharder that leads."""
    await ground.ring(**ring)
    await leads(ground)
    shard = await ground.shard("a", duration_s=15)
    await ground.site("blog", labels=dict(labels) if labels is not None else {KEYS.shard: OWNER})
    return shard


async def test_an_object_at_its_place_is_told_to_be_well(ground: Ground) -> None:
    await owned(ground)
    found = await told(ground)
    assert not found.finding.is_wrong
    text = "\n".join(lines(found, now=SystemClock().wall()))
    assert text.startswith(f"{SITE} is where it belongs: {OWNER} works on it\n")
    assert "key      example.com_default_blog (group, namespace and name of the object itself)" in text
    assert "of a, 0." in text.partition("arc ")[2].splitlines()[0]
    assert "held by itself, renewed" in text
    assert "working  not asked: --endpoint URL" in text
    assert "sharder-1 leads (Lease default/ringleader-sharder" in text


async def test_an_object_without_an_owner_and_without_replicas(ground: Ground) -> None:
    await ground.ring()
    await leads(ground)
    await ground.site("blog")
    line = await first_line(ground)
    assert line.startswith(
        f"{SITE} has no owner: no replica of ring {RING} lives (no held Lease in namespace default)"
    )


async def test_an_object_without_an_owner_and_without_a_sharder(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a", duration_s=15)
    await ground.site("blog")
    assert "has no owner: no sharder leads: there is no Lease ringleader-sharder" in await first_line(ground)
    await leads(ground, renewed="2026-01-01T00:00:00.000000Z")
    assert (
        "no sharder leads: sharder-1 does not renew Lease default/ringleader-sharder (for "
        in await first_line(ground)
    )


async def test_a_dead_owner_is_named_and_who_is_to_have_the_object(ground: Ground) -> None:
    shard = await owned(ground)
    await ground.shard("b", duration_s=15)
    await taken(ground, shard)
    line = await first_line(ground)
    assert line.startswith(
        f"{SITE} is worked on by nobody: its owner {OWNER} is dead; the sharder gives it to {OTHER} (for "
    )


async def test_a_dead_owner_without_a_sharder_names_both(ground: Ground) -> None:
    await ground.ring()
    shard = await ground.shard("a", duration_s=15)
    await ground.site("blog", labels={KEYS.shard: OWNER})
    await taken(ground, shard)
    line = await first_line(ground)
    assert f"is worked on by nobody: its owner {OWNER} is dead, and no sharder leads" in line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "nobody-00000001",
            "its label names nobody-00000001, of which there is no Lease in namespace default",
        ),
        ("other-00000001", "its label names other-00000001, a Lease of ring other"),
        ("Not_A_Shard", "its label names 'Not_A_Shard', which no shard can be called"),
    ],
)
async def test_a_label_that_names_no_shard_of_the_ring_is_told(ground: Ground, name: str, words: str) -> None:
    await owned(ground, {KEYS.shard: name})
    now = micro_time(SystemClock().wall())
    other = Meta(name="other-00000001", labels={KEYS.ring_label: "other"})
    await ground.leases.create(Lease(other, LeaseSpec("other-00000001", 15, now, now, 0)))
    assert words in await first_line(ground)


async def test_an_owner_that_does_not_renew_is_named(ground: Ground) -> None:
    shard = await owned(ground)
    await shard.fall_silent()
    await said_state(ground, OWNER, "expired")
    line = await first_line(ground)
    assert f"is not worked on: its owner {OWNER} does not renew its Lease: frozen, cut off, or dead" in line


async def test_a_contested_owner_is_waited_for(ground: Ground) -> None:
    shard = await owned(ground)
    await shard.fall_silent()
    lease = await shard.lease()
    lease.spec.holder_identity = "sharder-1"
    lease.metadata.annotations[KEYS.contested] = "true"
    await ground.leases.swap(lease)
    await said_state(ground, OWNER, "contested")
    assert f"waits 2 s before it is given away: the Lease of its owner {OWNER} was taken" in await first_line(
        ground
    )
    election = await ground.leases.get(ELECTION_LEASE)
    election.spec.holder_identity = ""
    await ground.leases.swap(election)
    assert (
        f"is worked on by nobody: the Lease of its owner {OWNER} was taken, and no sharder leads"
        in await first_line(ground)
    )


async def test_a_name_for_which_the_sharder_made_a_tombstone_is_told_as_such(ground: Ground) -> None:
    await owned(ground, {KEYS.shard: "nobody-00000001"})
    now = micro_time(SystemClock().wall())
    made = Meta(name="nobody-00000001", labels={KEYS.ring_label: RING}, annotations={KEYS.contested: now})
    await ground.leases.create(Lease(made, LeaseSpec("sharder:sharder-1", 2, now, now, 0)))
    assert (
        f"{SITE} waits to be given away: its label names nobody-00000001, whose Lease does not exist: it was deleted"
        " by hand, or the label was written by hand"
    ) in await first_line(ground)
    election = await ground.leases.get(ELECTION_LEASE)
    election.spec.holder_identity = ""
    await ground.leases.swap(election)
    line = await first_line(ground)
    assert "is worked on by nobody: its label names nobody-00000001, whose Lease does not exist" in line
    assert ", and no sharder leads: Lease default/ringleader-sharder is free" in line


async def test_a_tombstone_that_is_contested_no_more_is_not_waited_for(ground: Ground) -> None:
    await owned(ground, {KEYS.shard: "nobody-00000001"})
    now = micro_time(SystemClock().wall())
    made = Meta(name="nobody-00000001", labels={KEYS.ring_label: RING})
    await ground.leases.create(Lease(made, LeaseSpec("sharder:sharder-1", 2, now, now, 0)))
    line = await first_line(ground)
    assert "is worked on by nobody: its label names nobody-00000001, whose Lease does not exist" in line
    assert f"; the sharder gives it to {OWNER}" in line


async def test_a_change_that_its_owner_has_not_observed_is_told(ground: Ground) -> None:
    await owned(ground)
    await observe(ground, 1)
    assert "is where it belongs" in await first_line(ground)
    newer = MergePatch({"spec": {"html": "newer"}})
    await ground.client.patch(WEBSITES, "blog", newer, namespace="default", type=bytes)
    assert (
        f"{SITE} has a change that its owner {OWNER} has not observed (generation 2, observed 1)"
        in await first_line(ground)
    )
    await observe(ground, 2)
    assert "is where it belongs" in await first_line(ground)


async def observe(ground: Ground, generation: int) -> None:
    patch = MergePatch({"status": {"observedGeneration": generation}})
    await ground.client.patch(WEBSITES, "blog", patch, namespace="default", subresource="status", type=bytes)


async def applied(ground: Ground, *, manager: str) -> None:
    """A status written by server-side apply: the plane in memory notes who did it only then."""
    body = {"apiVersion": "example.com/v1", "kind": "Website", "status": {"observedGeneration": 1}}
    patch = ApplyPatch(body, force=True)
    await ground.client.patch(
        WEBSITES, "blog", patch, namespace="default", subresource="status", field_manager=manager, type=bytes
    )


async def test_who_else_writes_an_object_is_told(ground: Ground) -> None:
    """A replica writes under the name that its Lease says."""
    await owned(ground)
    await applied(ground, manager="publisher")
    found = await told(ground)
    assert found.finding.cause == f"is where it belongs: {OWNER} works on it, and publisher wrote it too"
    assert not found.finding.is_wrong
    lease = await ground.leases.get(OWNER)
    lease.metadata.annotations[KEYS.field_manager] = "publisher"
    await ground.leases.swap(lease)
    assert (await told(ground)).finding.cause == f"is where it belongs: {OWNER} works on it"


def test_who_wrote_before_there_was_the_ring_is_no_stranger() -> None:
    """The controller that the fleet took over from stands in managedFields for as long as the object lives."""
    ring = Ring(Meta(name=RING, creation_timestamp="2026-11-21T12:00:00Z"), RingFields())
    entry = ManagedFields("old-operator", "status", "2026-11-21T11:59:59Z")
    meta = DatedMeta(name="blog", managed_fields=[entry])
    facts = facts_of(ring, meta)
    assert well(facts).cause == f"is where it belongs: {OWNER} works on it"
    entry.time = "2026-11-21T12:00:01Z"
    assert well(facts).cause.endswith("and old-operator wrote it too")


def facts_of(ring: Ring, meta: DatedMeta) -> Facts:
    placement = Placement(
        object=SITE,
        ring=RING,
        owner=OWNER,
        owner_member="a",
        owner_state="ready",
        drain_to=None,
        desired_member="a",
        desired_shard=OWNER,
        is_placed=True,
        key="",
        key_from="",
        hash="",
        token="",
        why=[],
    )
    terms = RingDocument(None, "", {})
    now = datetime(2026, 11, 21, 13, tzinfo=UTC)
    return Facts(placement, meta, ring, terms, [], Sharders(None), now)


async def test_an_object_of_two_rings_is_told_with_both_owners(ground: Ground) -> None:
    more = RingKeys("more")
    await owned(ground, {KEYS.shard: OWNER, more.shard: "other-00000001"})
    spec = {"leaseNamespace": "default", "resources": [{"group": "example.com", "resource": "websites"}]}
    head = {"apiVersion": "ringleader.dev/v1alpha1", "kind": "ControllerRing", "metadata": {"name": "more"}}
    await ground.client.create(CONTROLLER_RINGS, {**head, "spec": spec}, type=bytes)
    key = ObjectKey("default", "blog")
    facts = await read_facts(ground.client, "website", key, ring_name=RING, way=Way(), timeout_s=10)
    assert story(facts).finding.cause == (
        f"has two owners: {OWNER} in ring {RING}, other-00000001 in ring more"
    )
    error = {"type": "ValueError", "message": "no", "at": ago(5)}
    async with Pages(200, {**KNOWN, "failures": 3, "lastError": error}) as url:
        way = Way(endpoint=url)
        facts = await read_facts(ground.client, "website", key, ring_name=RING, way=way, timeout_s=10)
    assert story(facts).finding.cause.startswith("fails: ValueError"), (
        "what keeps the owner from it comes first"
    )


async def test_a_handoff_is_told_with_both_ends_and_a_late_one_as_stuck(ground: Ground) -> None:
    await owned(ground, {KEYS.shard: OWNER, KEYS.drain: OTHER})
    await ground.shard("b", duration_s=15)
    found = await told(ground)
    assert (found.finding.cause, found.finding.is_wrong) == (f"is on its way from {OWNER} to {OTHER}", False)
    stuck = {
        "type": "DrainStuck",
        "status": "True",
        "message": f"handoffs past drainTimeoutSeconds: {OWNER} (1)",
    }
    await conditioned(ground, stuck)
    await backdate(ground.client, WEBSITES, "blog")
    found = await told(ground)
    assert found.finding.is_wrong
    assert found.finding.cause.startswith(f"is stuck: its owner {OWNER} does not hand it over to {OTHER}")


async def test_a_handoff_to_the_dead_is_told(ground: Ground) -> None:
    await owned(ground, {KEYS.shard: OWNER, KEYS.drain: "gone-00000001"})
    assert f"waits at {OWNER}: it was to go to gone-00000001, which is dead" in await first_line(ground)


async def test_a_paused_ring_and_a_cordoned_member_keep_an_object_where_it_is(ground: Ground) -> None:
    await owned(ground, members={"a": {"cordoned": True}}, paused=True)
    await ground.shard("b", duration_s=15)
    line = await first_line(ground)
    assert line == f"{SITE} stays at {OWNER} although it belongs to {OTHER}: ring {RING} is paused"
    await ground.ring(members={"a": {"cordoned": True}}, paused=False)
    assert "it waits its turn (maxInFlight 1000, per owner 250)" in await first_line(ground)


async def test_a_ring_that_is_refused_is_told_with_its_field(ground: Ground) -> None:
    await owned(ground, {}, key="Label")
    assert (
        "has no owner: the sharder refuses ring websites: spec.keyLabel: None is missing"
        in await first_line(ground)
    )


async def test_too_few_members_a_former_controller_and_a_missing_right_are_told(ground: Ground) -> None:
    await owned(ground, {}, minMembers=3)
    assert "has no owner: ring websites waits for 3 members (spec.minMembers), 1 live" in await first_line(
        ground
    )
    await ground.ring(activation={"lease": {"namespace": "default", "name": "old"}})
    now = micro_time(SystemClock().wall())
    await ground.leases.create(Lease(Meta(name="old"), LeaseSpec("old-pod", 15, now, now, 0)))
    line = await first_line(ground)
    assert "ring websites waits until old-pod gives the former controller's Lease default/old back" in line
    await ground.ring(activation=None, minMembers=1)
    denied = {"type": "Ready", "status": "False", "reason": "Forbidden", "message": "may not patch websites"}
    await conditioned(ground, denied)
    assert "has no owner: ring websites is not ready: may not patch websites" in await first_line(ground)


async def test_a_namespace_that_is_not_selected_is_told(ground: Ground) -> None:
    await owned(ground, {}, namespaceSelector={"matchLabels": {"team": "web"}})
    await ground.namespace("elsewhere", {"team": "other"})
    await ground.site("blog", namespace="elsewhere")
    key = ObjectKey("elsewhere", "blog")
    found = story(await read_facts(ground.client, "website", key, ring_name=None, way=Way(), timeout_s=10))
    assert found.finding.cause == (
        "is not worked on by anybody: the namespaceSelector of ring websites does not select namespace elsewhere"
    )


async def test_a_page_left_behind_by_its_site_is_told(ground: Ground) -> None:
    await owned(ground)
    await ground.shard("b", duration_s=15)
    site = (await ground.client.get(WEBSITES, "blog", namespace="default", type=dict[str, Any]))["metadata"]
    above = Meta(name="blog", uid=site["uid"])
    await ground.make(CONFIGMAPS, "page", labels={KEYS.shard: OTHER}, above=(WEBSITES, above))
    line = await first_line(ground, "configmap", "page")
    assert f"is at {OTHER}, its controller {SITE} at {OWNER}" in line


async def test_an_object_that_waits_for_its_finalizers_is_told(ground: Ground) -> None:
    await owned(ground)
    held = MergePatch({"metadata": {"finalizers": ["example.com/hold"]}})
    await ground.client.patch(WEBSITES, "blog", held, namespace="default", type=bytes)
    await ground.client.delete(WEBSITES, "blog", namespace="default")
    assert "is being deleted and waits for its finalizers (example.com/hold)" in await first_line(ground)


async def test_a_kind_of_two_groups_is_the_one_that_a_ring_distributes_or_ambiguous(ground: Ground) -> None:
    await owned(ground)
    await ground.client.create(CRDS, CALLED_ALIKE, type=bytes)
    await asyncio.sleep(0.5)
    assert (await told(ground)).object == SITE
    both = [{"group": "example.com", "resource": "websites"}, {"group": "other.io", "resource": "websites"}]
    await ground.ring(resources=both)
    with pytest.raises(
        InputError, match=r"is ambiguous: rings distribute websites.*websites.*write one of them"
    ):
        await told(ground)
    assert (await told(ground, "websites.example.com")).object == SITE


# -- what the owner says itself


class Pages:
    """A replica's port, answering with what a test puts there."""

    def __init__(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        head = (
            f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._answer = head.encode() + body
        self.asked: list[str] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
        writer.write(self._answer)
        await writer.drain()
        writer.close()


def ago(seconds: float) -> str:
    from datetime import timedelta

    return (SystemClock().wall() - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


class Ago(float):
    """So many seconds before the test runs, which may be long after this file is read."""


def now_told(page: Any) -> Any:
    """*page* with times in the place of each `Ago`."""
    if isinstance(page, dict):
        return {name: now_told(value) for name, value in page.items()}
    return ago(page) if isinstance(page, Ago) else page


KNOWN: dict[str, Any] = {"shard": OWNER, "cached": {"resourceVersion": "1", "owner": OWNER}, "failures": 0}


@pytest.mark.parametrize(
    ("status", "page", "words", "is_wrong"),
    [
        (200, KNOWN, "is where it belongs", False),
        (
            200,
            {**KNOWN, "runningSince": Ago(120)},
            f"is stuck in its reconcile: {OWNER} has not ended it (for ",
            True,
        ),
        (200, {**KNOWN, "runningSince": Ago(2)}, f"is being worked on by {OWNER}", False),
        (200, {**KNOWN, "queuedSince": Ago(120)}, f"waits for a worker of {OWNER} (for ", True),
        (
            200,
            {
                **KNOWN,
                "failures": 7,
                "lastError": {"type": "ValueError", "message": "no\nhtml", "at": Ago(5)},
            },
            f"fails: ValueError: no html ({OWNER}, 7 times in a row)",
            True,
        ),
        (200, {**KNOWN, "cached": None}, f"has not reached its owner: {OWNER} has never seen it", True),
        (404, {}, f"has not reached its owner: {OWNER} has never seen it", True),
        (401, {}, "is where it belongs", False),
    ],
)
async def test_what_the_owner_says_is_the_cause(
    ground: Ground, status: int, page: dict[str, Any], words: str, is_wrong: bool
) -> None:
    await owned(ground)
    await backdate(ground.client, WEBSITES, "blog")
    pages = Pages(status, now_told(page))
    async with pages as url:
        found = await told(ground, way=Way(endpoint=url))
    assert pages.asked[0] == "/debug/objects/default/blog"
    assert words in lines(found, now=SystemClock().wall())[0]
    assert found.finding.is_wrong is is_wrong
    if status == 401:
        assert "401" in found.working
        assert "port-forward" in found.working


async def test_the_word_of_another_replica_does_not_count(ground: Ground) -> None:
    """Its queue, its errors, that it never saw the object: they are no answer to what was asked."""
    await owned(ground)
    error = {"type": "ValueError", "message": "no", "at": ago(5)}
    async with Pages(200, {**KNOWN, "shard": "c-1", "failures": 3, "lastError": error}) as url:
        found = await told(ground, way=Way(endpoint=url))
    assert found.finding.cause == f"is where it belongs: {OWNER} works on it"
    assert found.working == f"the endpoint is c-1's, not {OWNER}'s: forward the port of pod a"


async def test_an_endpoint_that_is_none_is_refused_and_one_that_is_silent_is_told(ground: Ground) -> None:
    await owned(ground)
    with pytest.raises(InputError, match=r"--endpoint.*write http://127\.0\.0\.1:8081"):
        await told(ground, way=Way(endpoint="ftp://x"))
    found = await told(ground, way=Way(endpoint="127.0.0.1:1"))
    assert "http://127.0.0.1:1 could not be asked: no answer" in found.working


async def conditioned(ground: Ground, *conditions: Mapping[str, object]) -> None:
    """What a sharder would say of the ring."""
    dated = [{"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Told", **each} for each in conditions]
    patch = MergePatch({"status": {"conditions": dated}})
    await ground.client.patch(CONTROLLER_RINGS, RING, patch, subresource="status", type=bytes)


# ---- kinds that no shard works, owners that do not watch what they own ------------------------------------------

MAINS = [
    {
        "group": "example.com",
        "resource": "websites",
        "controlledResources": [{"group": "", "resource": "configmaps"}],
    },
    {"group": "", "resource": "secrets"},
]


async def test_a_kind_that_no_member_works_is_the_cause_with_the_remedy(ground: Ground) -> None:
    await ground.ring(resources=MAINS)
    await leads(ground)
    await ground.shard("sum", duration_s=15, works="secrets")
    await ground.site("blog")
    found = await told(ground)
    assert found.finding.cause == f"has no owner: no member of ring {RING} works websites.example.com"
    assert found.finding.do.startswith(
        "start replicas of the controller that works it, or take the resource out"
    )
    assert found.placement.why[0].startswith(f"no member of ring {RING} works websites.example.com")


async def test_a_kind_that_is_worked_waits_for_no_other(ground: Ground) -> None:
    await ground.ring(resources=MAINS)
    await leads(ground)
    await ground.shard("site", duration_s=15, works="configmaps,websites.example.com")
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "KindUnworked",
        "message": "no member works secrets",
    }
    patch = MergePatch({"status": {"conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    await ground.client.patch(CONTROLLER_RINGS, RING, patch, subresource="status", type=bytes)
    await ground.site("blog")
    assert (await told(ground)).finding.cause.startswith("is new: the sharder gives it an owner")


async def test_an_owner_that_does_not_watch_the_kind_is_the_cause(ground: Ground) -> None:
    await ground.ring(resources=MAINS)
    await leads(ground)
    await ground.shard("site", duration_s=15, works="configmaps,websites.example.com")
    await ground.shard("sum", duration_s=15, works="secrets")
    await ground.site("blog", labels={KEYS.shard: "sum-00000001", KEYS.drain: "site-00000001"})
    found = await told(ground)
    assert found.finding.cause == (
        "is not worked on: sum-00000001 does not watch websites.example.com: the object waits for the end of that shard"
    )
    assert found.finding.do.startswith("delete pod sum, or wait for its end")
    assert found.placement.why[-1] in found.finding.cause


async def test_a_controlled_kind_that_was_added_meanwhile_asks_for_new_replicas(ground: Ground) -> None:
    await ground.ring(resources=MAINS)
    await leads(ground)
    await ground.shard("site", duration_s=15, works="websites.example.com")
    site = await ground.site("blog", labels={KEYS.shard: "site-00000001"})
    await ground.page(site)
    unowned = (await told(ground, "configmap")).finding
    assert unowned.cause == "has no owner: site-00000001, which is to have it, does not watch configmaps"
    assert unowned.do == "roll the replicas: they learn at their start what the ring controls"
    patch = MergePatch({"metadata": {"labels": {KEYS.shard: "site-00000001"}}})
    await ground.client.patch(CONFIGMAPS, "blog", patch, namespace="default", type=bytes)
    owned_ = (await told(ground, "configmap")).finding
    assert owned_.cause.startswith("is not worked on: site-00000001 does not watch configmaps")
    assert owned_.do == unowned.do
