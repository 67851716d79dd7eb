"""Checks as functions of what was read: evidence written by hand, no server. What collects it runs on live planes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kubeio.models import Lease, Meta
from kubeio.resource import ApiResource
from ringleader.check.checks import CHECKS, all_findings
from ringleader.check.evidence import Evidence, Group, ResourceCount, RingEvidence, Sample, Trouble
from ringleader.check.findings import Finding, Level
from ringleader.check.leases import skew
from ringleader.cluster.causes import Cause
from ringleader.cluster.managed_fields import DatedMeta
from ringleader.cluster.ring import Ring
from ringleader.cluster.snapshot import Gap, Leadership, Snapshot
from tests.ringleader.cluster.snapshots import NOW, condition, leads, lease, ring, snapshot

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
ONE, TWO, GHOST = "one-00000001", "two-00000002", "ghost-00000009"
WORKING = {**condition("Ready", "True", "Working"), "observedGeneration": 0}


def healthy(*leases: Lease, of: Ring | None = None, leadership: Leadership | None = None) -> Snapshot:
    """A ring that its sharder works, with two shards unless others are given."""
    found = of if of is not None else ring(status=WORKING)
    return snapshot(found, *(leases or (lease(ONE), lease(TWO))), leadership=leadership)


def judged(seen: Snapshot, check: str, *counts: ResourceCount, **more: Any) -> list[Finding]:
    """What *check* finds wrong."""
    rings = [RingEvidence(state, counts=list(counts)) for state in seen.rings]
    evidence = Evidence(seen, rings, **more)
    bad = (Level.ERROR, Level.WARNING)
    (only,) = (each for each in CHECKS if each.name == check)
    return [each for each in only.run(evidence) if each.level in bad]


def in_trouble(trouble: Trouble, name: str, cause: Cause | None, *, count: int = 1) -> ResourceCount:
    """A Website in that trouble, with the cause that the second look found; ten Websites in all."""
    meta = DatedMeta(name="site-003", namespace="sites")
    group = Group(count, [Sample(WEBSITES, meta, name, trouble, cause=cause)])
    owners = Counter({name: 10})
    return ResourceCount(WEBSITES, is_main=True, objects=10, owners=owners, groups={(trouble, name): group})


# ---- objects --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "reason", "check", "level"),
    [
        (Trouble.UNOWNED, "NoSharder", "owners", Level.ERROR),
        (Trouble.UNOWNED, "NotAssigned", "owners", Level.ERROR),
        (Trouble.DEAD, "OwnerDead", "owners", Level.ERROR),
        (Trouble.CONTESTED, "Contested", "owners", Level.WARNING),
        (Trouble.UNKNOWN, "OwnerUnknown", "names", Level.ERROR),
        (Trouble.CONTESTED, "OwnerUnknown", "names", Level.ERROR),
        (Trouble.LEAVING, "HandoffLate", "handoffs", Level.ERROR),
        (Trouble.UNWATCHED, "KindUnwatched", "kinds", Level.ERROR),
    ],
)
def test_an_object_in_trouble_twice_is_found_once_with_its_cause(
    trouble: Trouble, reason: str, check: str, level: Level
) -> None:
    count = in_trouble(trouble, GHOST, Cause(reason, "is so", since_seconds=9, remedy="mend it"), count=4)
    found = [
        each for name in ("owners", "names", "handoffs", "kinds") for each in judged(healthy(), name, count)
    ]
    (only,) = found
    assert (only.check, only.level, only.reason) == (check, level, reason)
    assert only.object == "website/site-003 -n sites"
    assert only.summary == "website/site-003 -n sites is so (for 9s)"
    assert only.evidence[0].startswith("ring websites: 4 of 10 websites.example.com ")
    assert only.remedy == "mend it"


@pytest.mark.parametrize("cause", [None, Cause("New", "is new", is_wrong=False)])
def test_what_was_well_at_the_second_look_or_needs_nobody_is_not_told(cause: Cause | None) -> None:
    for trouble in Trouble:
        count = in_trouble(trouble, GHOST, cause)
        assert not [
            each
            for name in ("owners", "names", "handoffs", "kinds")
            for each in judged(healthy(), name, count)
        ]


def test_a_silent_owner_is_told_once_by_its_shard() -> None:
    count = in_trouble(
        Trouble.LEAVING, ONE, Cause("Silent", f"is not reconciled: its owner {ONE} does not renew")
    )
    assert judged(healthy(), "handoffs", count) == []


def test_a_thousand_forged_names_are_told_as_ten() -> None:
    counts = [
        in_trouble(Trouble.UNKNOWN, f"ghost-{n:08x}", Cause("OwnerUnknown", "is so")) for n in range(12)
    ]
    told = judged(healthy(), "names", *counts)
    assert len(told) == 10
    assert told[-1].evidence[-1] == "and 2 more findings of this check"


def test_a_part_that_could_not_be_read_makes_a_check_not_checked_and_hides_nothing() -> None:
    count = in_trouble(Trouble.UNKNOWN, GHOST, Cause("OwnerUnknown", "is so"))
    gaps = {"objects:websites:configmaps": Gap("may not list configmaps", "add this rule")}
    (ring_,) = healthy().rings
    found = all_findings(Evidence(healthy(), [RingEvidence(ring_, counts=[count])], gaps))
    names = [(each.level, each.summary) for each in found if each.check == "names"]
    assert names == [
        (Level.ERROR, "website/site-003 -n sites is so"),
        (Level.UNCHECKED, "may not list configmaps"),
    ]
    assert {each.level for each in found if each.check == "members"} == {Level.OK}


# ---- Leases ---------------------------------------------------------------------------------------------------


def texts(found: Sequence[Finding]) -> list[str]:
    return [each.summary for each in found]


def test_two_shards_of_one_member_that_both_renew_are_told_with_both_names() -> None:
    (first,) = judged(healthy(lease(ONE), lease("one-0000000f")), "members")
    assert first.level is Level.ERROR
    assert first.summary == "member one of ring websites runs 2 times at once: one-00000001 and one-0000000f"
    assert "--member one" in first.remedy


@pytest.mark.parametrize(
    "ended",
    [
        lease("one-0000000d", holder="sharder:s"),
        lease("one-0000000d", holder=""),
        lease("one-0000000d", age_s=99),
    ],
    ids=["taken", "released", "silent"],
)
def test_a_shard_that_has_ended_is_no_second_one(ended: Lease) -> None:
    assert judged(healthy(lease(ONE), ended), "members") == []


def test_a_shard_that_does_not_renew_is_told_with_its_objects() -> None:
    count = ResourceCount(WEBSITES, is_main=True, objects=9)
    count.owners[ONE], count.one_of[ONE] = 6, "website/site-000 -n sites"
    (first,) = judged(healthy(lease(ONE, age_s=40), lease(TWO)), "silent", count)
    assert (first.level, first.object, first.reason) == (Level.ERROR, f"lease/{ONE} -n rings", "Silent")
    assert first.summary == f"shard {ONE} does not renew its Lease: frozen, cut off, or dead (for 40s)"
    assert first.evidence == [
        "website/site-000 -n sites and the rest of its 6 objects wait",
        "its Lease lasts 15 s",
    ]


def test_a_lease_in_the_wrong_namespace_is_told_with_the_right_one() -> None:
    astray, left = lease("three-00000003"), lease("four-00000004", age_s=4000)
    for each in (astray, left):
        each.metadata.namespace = "sites"
    seen = healthy()
    seen = replace(seen, rings=[replace(seen.rings[0], strays=[astray, left])])
    assert texts(judged(seen, "lease namespaces")) == [
        "lease/three-00000003 -n sites (member three) does not count for ring websites: its Leases belong into "
        "namespace rings"
    ]


@pytest.mark.parametrize(
    ("before_s", "after_s", "skew_s"),
    [(3, -2, -0.0), (3, 3, 0.0), (-5, -10, 4.0), (65, 60, -60.0)],
    ids=["right", "not renewed: unknown", "ahead", "behind"],
)
def test_the_skew_is_what_renewals_show(before_s: float, after_s: float, skew_s: float) -> None:
    """Seconds before the first look, and its second look is six seconds later."""
    (state,) = healthy(lease(TWO, age_s=after_s)).rings
    state = replace(state, began_at=NOW, read_at=NOW + timedelta(seconds=6))
    shard = replace(state.shards[0], is_renewing=before_s != after_s)
    assert skew(state, shard) == skew_s


def test_a_clock_that_is_off_is_told_with_way_and_seconds() -> None:
    (told,) = judged(healthy(lease(ONE), lease(TWO, age_s=-300)), "clocks")
    assert told.level is Level.WARNING
    assert told.summary == f"the clock of shard {TWO} (member two) is 300 s ahead"
    seen = replace(healthy(), clock_ahead_s=-9.0)
    assert texts(judged(seen, "clocks")) == ["this machine's clock is 9 s behind the API server's"]


# ---- rings ----------------------------------------------------------------------------------------------------


def two_rings(**spec: Any) -> Snapshot:
    one = healthy()
    other = ring(**spec)
    other = replace(other, metadata=Meta(name="more"), spec=replace(other.spec, name="more"))
    (state,) = snapshot(other).rings
    return replace(one, rings=[*one.rings, state])


@pytest.mark.parametrize(
    ("spec", "namespaces", "is_told"),
    [
        ({}, None, True),
        ({"labelDomain": "other.example.com"}, None, False),
        ({"resources": [{"resource": "secrets"}]}, None, False),
        ({"namespaceSelector": {"matchLabels": {"team": "web"}}}, {"sites": {"team": "web"}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "web"}}}, {"sites": {}}, False),
    ],
)
def test_two_rings_over_one_resource_overlap(spec: dict[str, Any], namespaces: Any, is_told: bool) -> None:
    told = judged(replace(two_rings(**spec), namespaces=namespaces), "overlaps")
    assert bool(told) is is_told
    if told:
        assert (
            "rings websites and more both distribute websites.example.com under the label domain"
            in told[0].summary
        )


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (
            ring(status=condition("Ready", "False", "Forbidden", "may not patch")),
            "is not Ready: Forbidden: may not patch",
        ),
        (ring(status=condition("Ready", "False", "Releasing", "given up")), ""),
        (ring(), "has no status: no sharder works it"),
        (ring(key="Label", status=WORKING), "is refused: spec.keyLabel: None is missing"),
        (ring(status={**WORKING, "observedGeneration": -1}), "its last edit has not been taken up"),
        (
            ring(status=condition("MembersUncertain", "True", "Silent", "members do not renew: a")),
            "members do not renew: a",
        ),
    ],
)
def test_what_the_sharder_says_of_a_ring_is_told(of: Ring, text: str) -> None:
    told = texts(judged(healthy(of=of), "rings"))
    assert any(text in each for each in told) if text else not told


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("FormerController", "scale the former controller to zero"),
        ("FormerLease", "let the sharder get, create and update that Lease"),
    ],
)
def test_a_former_controller_beside_the_ring_is_an_error_with_its_remedy(reason: str, remedy: str) -> None:
    of = ring(status=condition("Ready", "False", reason, "as the sharder says"))
    (finding,) = judged(healthy(of=of), "rings")
    assert (finding.level, finding.remedy.startswith(remedy)) == (Level.ERROR, True)


@pytest.mark.parametrize(
    ("leadership", "text"),
    [
        (Leadership(), "there is no Lease ringleader-sharder in any namespace"),
        (leads(""), "Lease system/ringleader-sharder is free (for 2s)"),
        (leads(age_s=41), "sharder-1 does not renew Lease system/ringleader-sharder (for 41s)"),
    ],
)
def test_that_nobody_leads_is_told_with_the_lease(leadership: Leadership, text: str) -> None:
    (told,) = judged(healthy(leadership=leadership), "sharder")
    assert told.summary == f"ring websites waits: no sharder leads: {text}"
    assert told.evidence == ["new objects and those of dead replicas wait"]


def test_a_healthy_snapshot_has_one_finding_of_each_check_and_none_is_bad() -> None:
    seen = healthy()
    evidence = Evidence(seen, [RingEvidence(seen.rings[0])], crd={"spec": {}})
    found = all_findings(evidence)
    assert {each.level for each in found} == {Level.OK}
    assert len({each.check for each in found}) == len(found)
    assert next(each for each in found if each.check == "sharder").summary == "sharder-1 leads"
