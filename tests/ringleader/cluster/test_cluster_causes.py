"""Causes, as a table over snapshots: the first sentence of `describe`, `check` and `status` about one ring."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from kubeio.models import Lease, Meta, ObjectKey
from ringleader.cluster.causes import ring_causes, why_no_leader, why_ring_waits
from ringleader.cluster.managed_fields import ManagedFields
from ringleader.cluster.object_causes import cause_of, two_owners
from ringleader.cluster.object_state import Controller
from ringleader.cluster.snapshot import Leadership, Snapshot
from tests.ringleader.cluster.snapshots import (
    KEYS,
    MAINS,
    ago,
    condition,
    leads,
    lease,
    ring,
    site,
    snapshot,
)

A, B, GHOST = "a-00000001", "b-00000001", "ghost-00000009"
HELD_BY_A = {KEYS.shard: A}
TAKEN = lease(A, holder="sharder:s", marks={KEYS.process: "x"})
CONTESTED = lease(A, holder="sharder:s", state="contested", marks={KEYS.contested: "x", KEYS.process: "x"})
PLACEHOLDER = lease(GHOST, holder="sharder:s", marks={KEYS.contested: "x"})
NOBODY = Leadership()
KIND_UNWORKED = condition("Ready", "False", "KindUnworked", "no member works secrets")
CORDONED = {"a": {"cordoned": True}}


class Case(NamedTuple):
    """One object in one snapshot, and what is said of it."""

    name: str
    seen: Snapshot
    labels: dict[str, str]
    reason: str
    text: str
    is_wrong: bool = True
    more: dict[str, Any] = {}  # noqa: RUF012


CASES = [
    # ---- does its ring want it
    Case(
        "deleted ring",
        snapshot(ring(deleted=True), lease(A)),
        HELD_BY_A,
        "RingDeleted",
        f"is being given up by {A}: ring websites is being deleted",
    ),
    Case(
        "namespace not selected",
        snapshot(
            ring(namespaceSelector={"matchLabels": {"team": "web"}}), lease(A), namespaces={"sites": {}}
        ),
        {},
        "NamespaceNotSelected",
        "is not reconciled: the namespaceSelector of ring websites does not select namespace sites",
    ),
    Case(
        "to be released",
        snapshot(None, lease(A)),
        {**HELD_BY_A, KEYS.drain: ""},
        "Released",
        f"is being released: {A} is asked to give it up",
        is_wrong=False,
    ),
    # ---- has it an owner
    Case(
        "no sharder ever led",
        snapshot(None, lease(A), leadership=NOBODY),
        {},
        "NoSharder",
        "has no owner: no sharder leads: there is no Lease ringleader-sharder in any namespace",
    ),
    Case(
        "a sharder is silent",
        snapshot(None, lease(A), leadership=leads(age_s=40)),
        {},
        "NoSharder",
        "has no owner: no sharder leads: sharder-1 does not renew Lease system/ringleader-sharder",
    ),
    Case(
        "a sharder gave its Lease back",
        snapshot(None, lease(A), leadership=leads("")),
        {},
        "NoSharder",
        "has no owner: no sharder leads: Lease system/ringleader-sharder is free",
    ),
    Case(
        "refused ring",
        snapshot(ring(key="Label"), lease(A)),
        {},
        "RingRefused",
        "has no owner: the sharder refuses ring websites: spec.keyLabel: None is missing",
    ),
    Case(
        "former controller",
        snapshot(
            ring(activation={"lease": {"namespace": "old", "name": "op"}}), lease(A), former_holder="op-1"
        ),
        {},
        "FormerController",
        "has no owner: ring websites waits until op-1 gives the former controller's Lease old/op back",
    ),
    Case(
        "former Lease out of reach, before any replica",
        snapshot(ring(status=condition("Ready", "False", "FormerLease", "no object gets an owner; no Role"))),
        {},
        "RingNotReady",
        "has no owner: ring websites is not ready: no object gets an owner; no Role",
    ),
    Case(
        "former Lease out of reach of a ring that works",
        snapshot(ring(status=condition("Ready", "True", "FormerLease", "no Role"))),
        {},
        "NoReplica",
        "has no owner: no replica of ring websites lives (no held Lease in namespace rings)",
    ),
    Case(
        "missing right",
        snapshot(ring(status=condition("Ready", "False", "Forbidden", "may not patch")), lease(A)),
        {},
        "RingNotReady",
        "has no owner: ring websites is not ready: may not patch",
    ),
    Case(
        "no replica",
        snapshot(),
        {},
        "NoReplica",
        "has no owner: no replica of ring websites lives (no held Lease in namespace rings)",
    ),
    Case(
        "only silent replicas",
        snapshot(None, lease(A, age_s=99)),
        {},
        "NoReplica",
        f"has no owner: no replica of ring websites renews its Lease in namespace rings: {A}",
    ),
    Case(
        "caches not full",
        snapshot(None, lease(A, marks={KEYS.synced: ""})),
        {},
        "NoReplica",
        "has no owner: no replica of ring websites has filled its caches yet",
    ),
    Case(
        "kind unworked",
        snapshot(ring(resources=MAINS), lease(A, works="secrets")),
        {},
        "KindUnworked",
        "has no owner: no member of ring websites works websites.example.com",
    ),
    Case(
        "all cordoned",
        snapshot(ring(members=CORDONED), lease(A)),
        {},
        "AllCordoned",
        "has no owner: every member of ring websites is cordoned",
    ),
    Case(
        "too few members",
        snapshot(ring(minMembers=3), lease(A)),
        {},
        "MinMembers",
        "has no owner: ring websites waits for 3 members (spec.minMembers), 1 live",
    ),
    Case(
        "ring waits",
        snapshot(ring(status=condition("Ready", "False", "Waiting", "for leases")), lease(A)),
        {},
        "RingNotReady",
        "has no owner: ring websites is not ready: for leases",
    ),
    Case(
        "another kind is unworked",
        snapshot(ring(status=KIND_UNWORKED), lease(A)),
        {},
        "New",
        "is new: the sharder gives it an owner in a moment",
        is_wrong=False,
        more={"age_s": 3.0},
    ),
    Case(
        "not assigned",
        snapshot(None, lease(A)),
        {},
        "NotAssigned",
        f"has no owner although {A} could have it: the sharder has not written the label",
    ),
    Case(
        "new twice",
        snapshot(None, lease(A)),
        {},
        "NotAssigned",
        f"has no owner although {A} could have it",
        more={"age_s": 3.0, "is_lasting": True},
    ),
    Case(
        "its place is silent",
        snapshot(ring(members={"b": {"cordoned": True}}), lease(A, state="expired"), lease(B)),
        {},
        "Silent",
        f"has no owner: the shard at its place is silent: {A} does not renew its Lease",
    ),
    Case(
        "desired ignores the kind",
        snapshot(None, lease(A, works="websites.example.com")),
        {},
        "KindUnwatched",
        f"has no owner: {A}, which is to have it, does not watch configmaps",
        more={"kind": "configmaps"},
    ),
    # ---- does its owner live
    Case(
        "no Lease of that name",
        snapshot(None, lease(A)),
        {KEYS.shard: GHOST},
        "OwnerUnknown",
        f"is not reconciled: its label names {GHOST}, but Lease rings/{GHOST} does not exist: it was deleted, "
        f"or the label was written by hand; the sharder gives it to {A}",
    ),
    Case(
        "no name of a shard",
        snapshot(None, lease(A)),
        {KEYS.shard: "Not_A_Shard"},
        "OwnerUnknown",
        "is not reconciled: its label names 'Not_A_Shard', which no shard can be called",
    ),
    Case(
        "a Lease of another ring",
        snapshot(None, lease(A)),
        {KEYS.shard: GHOST},
        "OwnerUnknown",
        f"its label names {GHOST}, a Lease of ring more",
        more={"foreign_lease": Lease(Meta(labels={KEYS.ring_label: "more"}))},
    ),
    Case(
        "a Lease of no ring",
        snapshot(None, lease(A)),
        {KEYS.shard: GHOST},
        "OwnerUnknown",
        f"its label names {GHOST}, a Lease of no ring",
        more={"foreign_lease": Lease(Meta())},
    ),
    Case(
        "placeholder",
        snapshot(None, lease(A), PLACEHOLDER),
        {KEYS.shard: GHOST},
        "OwnerUnknown",
        f"waits 60 s before it is given away: its label names {GHOST}, but Lease rings/{GHOST} does not exist",
    ),
    Case(
        "placeholder without a sharder",
        snapshot(None, lease(A), PLACEHOLDER, leadership=NOBODY),
        {KEYS.shard: GHOST},
        "OwnerUnknown",
        "does not exist: it was deleted, or the label was written by hand, and no sharder leads",
    ),
    Case(
        "placeholder contested no more",
        snapshot(None, lease(A), lease(GHOST, holder="sharder:s")),
        {KEYS.shard: GHOST},
        "OwnerUnknown",
        f"is not reconciled: its label names {GHOST}",
    ),
    Case(
        "contested",
        snapshot(None, CONTESTED),
        HELD_BY_A,
        "Contested",
        f"waits 60 s before it is given away: the Lease of its owner {A} was taken, and it may still work",
    ),
    Case(
        "contested without a sharder",
        snapshot(None, CONTESTED, leadership=NOBODY),
        HELD_BY_A,
        "Contested",
        f"is not reconciled: the Lease of its owner {A} was taken, and no sharder leads",
    ),
    Case(
        "dead",
        snapshot(None, TAKEN, lease(B)),
        HELD_BY_A,
        "OwnerDead",
        f"is not reconciled: its owner {A} is dead; the sharder gives it to {B}",
    ),
    Case(
        "dead without a sharder",
        snapshot(None, TAKEN, lease(B), leadership=NOBODY),
        HELD_BY_A,
        "OwnerDead",
        f"its owner {A} is dead, and no sharder leads",
    ),
    Case(
        "left, place kept",
        snapshot(ring(holdSeconds=30), lease(A, holder="")),
        HELD_BY_A,
        "Held",
        f"waits for the next shard of a: its owner {A} has left",
        is_wrong=False,
    ),
    Case(
        "left for too long",
        snapshot(None, lease(A, holder="", age_s=20)),
        HELD_BY_A,
        "Held",
        f"waits for the next shard of a: its owner {A} has left",
    ),
    Case(
        "expired",
        snapshot(None, lease(A, state="expired")),
        HELD_BY_A,
        "Silent",
        f"is not reconciled: its owner {A} does not renew its Lease: frozen, cut off, or dead",
    ),
    Case(
        "silent without a sharder",
        snapshot(None, lease(A, state="ready", age_s=40), leadership=NOBODY),
        HELD_BY_A,
        "Silent",
        "frozen, cut off, or dead, and no sharder leads",
    ),
    Case(
        "silent, whatever the sharder last wrote",
        snapshot(None, lease(A, state="ready", age_s=40)),
        HELD_BY_A,
        "Silent",
        f"is not reconciled: its owner {A} does not renew its Lease",
    ),
    Case(
        "kind unwatched",
        snapshot(ring(resources=MAINS), lease(A, works="secrets"), lease(B)),
        {**HELD_BY_A, KEYS.drain: B},
        "KindUnwatched",
        f"is not reconciled: {A} does not watch websites.example.com: the object waits for the end of that shard",
    ),
    # ---- is it where it belongs
    Case(
        "on its way",
        snapshot(None, lease(A), lease(B)),
        {**HELD_BY_A, KEYS.drain: B},
        "Handoff",
        f"is on its way from {A} to {B}",
        is_wrong=False,
    ),
    Case(
        "late",
        snapshot(ring(status=condition("DrainStuck", "True", message=f"late: {A} (1)")), lease(A), lease(B)),
        {**HELD_BY_A, KEYS.drain: B},
        "HandoffLate",
        f"is stuck: its owner {A} does not hand it over to {B} (drainTimeoutSeconds 60)",
    ),
    Case(
        "to the dead",
        snapshot(None, lease(A)),
        {**HELD_BY_A, KEYS.drain: GHOST},
        "HandoffToDead",
        f"waits at {A}: it was to go to {GHOST}, which is dead",
        is_wrong=False,
    ),
    Case(
        "to the dead without a sharder",
        snapshot(None, lease(A), leadership=NOBODY),
        {**HELD_BY_A, KEYS.drain: GHOST},
        "HandoffToDead",
        f"it was to go to {GHOST}, which is dead, and no sharder leads",
    ),
    Case(
        "paused",
        snapshot(ring(members=CORDONED, paused=True), lease(A), lease(B)),
        HELD_BY_A,
        "Paused",
        f"stays at {A} although it belongs to {B}: ring websites is paused",
        is_wrong=False,
    ),
    Case(
        "waits its turn",
        snapshot(ring(members=CORDONED), lease(A), lease(B)),
        HELD_BY_A,
        "WaitsTurn",
        "it waits its turn (maxInFlight 1000, per owner 250)",
        is_wrong=False,
    ),
    Case(
        "stays without a sharder",
        snapshot(ring(members=CORDONED), lease(A), lease(B), leadership=NOBODY),
        HELD_BY_A,
        "NoSharder",
        f"stays at {A} although it belongs to {B}: no sharder leads",
    ),
    Case(
        "stays, its place is silent",
        snapshot(ring(members=CORDONED), lease(A), lease(B, state="uncertain")),
        HELD_BY_A,
        "Silent",
        f"stays at {A} although it belongs to {B}: {B} does not renew its Lease",
    ),
    Case(
        "controller gone",
        snapshot(None, lease(A)),
        HELD_BY_A,
        "ControllerGone",
        "is left over: its controller website/blog is gone",
        more={"controller": Controller("website/blog", ObjectKey("", "blog"), exists=False)},
    ),
    Case(
        "left behind",
        snapshot(None, lease(A), lease(B)),
        HELD_BY_A,
        "LeftBehind",
        f"is at {A}, its controller website/blog at {B}",
        more={"controller": Controller("website/blog", ObjectKey("", "blog"), B)},
    ),
    Case("well", snapshot(None, lease(A)), HELD_BY_A, "", ""),
    Case("well although nobody leads", snapshot(None, lease(A), leadership=NOBODY), HELD_BY_A, "", ""),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_object_has_one_cause(case: Case) -> None:
    found = cause_of(site(case.seen, case.labels, **case.more))
    if not case.reason:
        assert found is None
        return
    assert found is not None
    assert (found.reason, found.is_wrong) == (case.reason, case.is_wrong)
    assert case.text in found.text
    assert found.remedy or not found.is_wrong


def test_every_reason_of_a_wrong_object_is_one_word_for_programs() -> None:
    assert {case.reason for case in CASES if case.reason and not case.reason.isalpha()} == set()


def test_a_handoff_is_late_by_the_date_of_its_label_whatever_the_sharder_says() -> None:
    seen = snapshot(None, lease(A), lease(B))
    obj = site(seen, {**HELD_BY_A, KEYS.drain: B})
    written = f'{{"f:metadata": {{"f:labels": {{"f:{KEYS.drain}": {{}}}}}}}}'.replace(" ", "").encode()
    for age_s, reason in ((61, "HandoffLate"), (59, "Handoff")):
        entry = ManagedFields("sharder", time=ago(age_s), fields_v1=msgspec.Raw(written))
        obj.meta.managed_fields = [entry]
        found = cause_of(obj)
        assert found is not None
        assert (found.reason, round(found.since_seconds or 0)) == (reason, age_s)


def test_two_owners_are_told_with_both_rings() -> None:
    obj = site(snapshot(None, lease(A)), HELD_BY_A, other_owners={"more": B})
    found = two_owners(obj)
    assert found is not None
    assert found.text == f"has two owners: {A} in ring websites, {B} in ring more"


@pytest.mark.parametrize(
    ("leadership", "leads_", "text"),
    [
        (leads(), True, ""),
        (leads(age_s=29), True, ""),
        (leads(age_s=31), False, "sharder-1 does not renew Lease system/ringleader-sharder"),
        (NOBODY, False, "there is no Lease ringleader-sharder in any namespace"),
        (Leadership(is_known=False), None, ""),
    ],
)
def test_a_sharder_leads_for_two_durations_after_its_last_renewal(
    leadership: Leadership, leads_: bool | None, text: str
) -> None:
    nobody = why_no_leader(leadership)
    assert leadership.leads is leads_
    assert (nobody.text if nobody else "") == (f"no sharder leads: {text}" if text else "")


def test_a_second_snapshot_shows_who_renews_whatever_the_clocks_say() -> None:
    """The sharder's clock and a shard's are five minutes behind; another shard is dead."""
    first = snapshot(None, lease(A, age_s=310), lease(B, age_s=40), leadership=leads(age_s=310))
    later = snapshot(None, lease(A, age_s=304), lease(B, age_s=40), leadership=leads(age_s=304))
    assert (first.leadership.leads, later.leadership.leads) == (False, False)
    both = later.after(first)
    assert both.leadership.leads is True
    assert {shard.name: shard.is_silent for shard in both.rings[0].shards} == {A: False, B: True}


def test_what_a_second_look_could_not_read_stays_as_the_first_one_showed_it() -> None:
    first = snapshot(ring(paused=True), lease(A))
    later = snapshot(ring(), lease(B))
    blind = Snapshot(later.now, later.rings, Leadership(is_known=False), None, {"leases:websites": object()})  # type: ignore[dict-item]
    both = blind.after(first)
    assert [shard.name for shard in both.rings[0].shards] == [A]
    assert not both.rings[0].ring.spec.paused
    assert both.leadership.leads is True


def test_a_refused_ring_is_shown_with_the_fields_that_can_be_used() -> None:
    spec: dict[str, Any] = {
        "imbalancePercent": 700,
        "members": {"a": {"weight": 1.00001}, "b": {"weight": 3}},
        "virtualNodes": "many",
        "nodes": 3,
    }
    refused = ring(**spec, drainTimeoutSeconds=7)
    for field in ("spec.imbalancePercent", "spec.members[a].weight", "spec.virtualNodes", "spec.nodes"):
        assert field in refused.refusal
    assert (refused.spec.eps, refused.spec.virtual_nodes, refused.spec.drain_timeout_s) == (0.05, 1000, 7)
    seen = snapshot(refused, lease(A), lease(B))
    assert dict(seen.rings[0].hash_rings.whole.weights) == {"a": 1, "b": 3}
    assert [cause.reason for cause in ring_causes(seen, seen.rings[0])] == ["RingRefused"]


def test_a_ring_has_a_cause_for_each_kind_and_each_silent_shard() -> None:
    seen = snapshot(ring(resources=MAINS), lease(A, works="secrets"), lease(B, state="expired"))
    (state,) = seen.rings
    assert why_ring_waits(seen, state) is None
    assert [cause.text.partition(":")[0] for cause in ring_causes(seen, state)] == [
        f"shard {B} does not renew its Lease"
    ]
    only = snapshot(ring(resources=MAINS), lease(A, works="secrets"))
    assert [cause.text for cause in ring_causes(only, only.rings[0])] == [
        "no member of ring websites works websites.example.com"
    ]
