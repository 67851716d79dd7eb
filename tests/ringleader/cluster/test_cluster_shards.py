"""Shards, hash rings, counts and rows: what rings, Leases and labels show, and how it is laid out."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from kubeio.errors import InputError
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import PROXY_MANAGER, RingKeys
from kubeio.resource import ApiResource
from ring import HashRing, object_key
from ringleader.cluster.managed_fields import DatedMeta
from ringleader.cluster.object_state import ObjectState
from ringleader.cluster.objects import parse_target
from ringleader.cluster.placement import Row, row
from ringleader.cluster.ring import Ring, choose_ring, ring_of
from ringleader.cluster.ring_status import ObjectCount, counted_status, ideal_shares
from ringleader.cluster.shards import HashRings, ring_weights, shards_of
from ringleader.cluster.snapshot import RingState, Snapshot
from ringleader.describe.object_view import why_desired
from ringleader.inspect.status.layout import member_table, ring_table
from ringleader.output import Form, Table, age

NOW = datetime(2026, 11, 21, 12, 0, 10, tzinfo=UTC)
KEYS = RingKeys("websites")
MAIN = "websites.example.com"
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
MAINS = [
    {"group": "example.com", "resource": "websites", "controlledResources": [{"resource": "configmaps"}]},
    {"resource": "secrets"},
]


def ring(name: str = "websites", **spec: object) -> Ring:
    found = {"resources": MAINS[:1], "leaseNamespace": "rings", **spec}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return ring_of({"metadata": {"name": name}, "spec": found, "status": status})


RING = ring(members={"c": {"cordoned": True}, "b": {"weight": 3.0}})


def lease(
    shard: str, member: str, *, holder: str | None = None, created: str = "", contested: bool = False
) -> Lease:
    annotations = {KEYS.member: member} | ({KEYS.contested: "x"} if contested else {})
    return Lease(
        Meta(name=shard, annotations=annotations, creation_timestamp=created),
        LeaseSpec(
            holder_identity=shard if holder is None else holder, renew_time="2026-11-21T12:00:07.000000Z"
        ),
    )


LEASES = [
    lease("a-1", "a", created="2026-11-21T11:00:00Z"),
    lease("a-2", "a", created="2026-11-21T11:30:00Z"),
    lease("b-1", "b"),
    lease("c-1", "c"),
    lease("d-1", "d", holder="sharder-1"),
]


def test_the_latest_of_several_shards_of_a_member_is_active() -> None:
    found = shards_of(RING, LEASES, now=NOW)
    assert [(shard.name, shard.is_active) for shard in found] == [
        ("a-2", True),
        ("a-1", False),
        ("b-1", True),
        ("c-1", True),
        ("d-1", False),
    ]
    assert found[0].age_s == 3.0
    assert found[-1].state == "taken"
    assert not found[-1].is_live


def test_a_contested_shard_keeps_its_objects() -> None:
    (shard,) = shards_of(RING, [lease("x-1", "x", holder="sharder-1", contested=True)], now=NOW)
    assert shard.is_live
    assert not shard.is_active


def test_a_released_shard_is_not_active() -> None:
    (shard,) = shards_of(RING, [lease("x-1", "x", holder="")], now=NOW)
    assert (shard.state, shard.is_live, shard.is_active) == ("released", True, False)


def test_cordoned_members_are_not_on_the_ring_and_weights_count() -> None:
    assert ring_weights(RING, shards_of(RING, LEASES, now=NOW)) == {"a": 1.0, "b": 3.0}


def test_a_shard_whose_caches_are_not_full_is_not_active() -> None:
    filling, full = lease("a-1", "a"), lease("b-1", "b")
    for each in (filling, full):
        each.metadata.annotations[KEYS.protocol] = "v1"
    full.metadata.annotations[KEYS.synced] = "true"
    found = shards_of(RING, [filling, full], now=NOW)
    assert [(shard.name, shard.is_active) for shard in found] == [("a-1", False), ("b-1", True)]


def test_each_main_resource_has_the_ring_of_those_that_work_it() -> None:
    two = ring(resources=MAINS)
    leases = [lease("a-1", "a"), lease("b-1", "b"), lease("c-1", "c")]
    leases[0].metadata.annotations[KEYS.resources] = "websites.example.com"
    leases[1].metadata.annotations[KEYS.resources] = "configmaps,secrets"
    found = shards_of(two, leases, now=NOW)
    rings = HashRings(two, found)
    assert sorted(rings.of("websites.example.com").members) == ["a", "c"]
    assert sorted(rings.of("secrets").members) == ["b", "c"]
    assert sorted(rings.whole.members) == ["a", "b", "c"]
    assert ideal_shares(two, found) == {"a": 0.25, "b": 0.25, "c": 0.5}
    alike = HashRings(two, shards_of(two, leases[2:], now=NOW))
    assert alike.of("secrets") is alike.whole


def test_the_status_counts_the_unowned_and_those_on_their_way() -> None:
    count = ObjectCount(owners=Counter({"a-2": 25, "b-1": 70, "d-1": 3, "": 2}), leaving=Counter({"b-1": 5}))
    shown = counted_status(RING, shards_of(RING, LEASES, now=NOW), count)
    assert (shown.objects, shown.unowned, shown.in_flight, shown.ready) == (100, 5, 5, "True")
    by_shard = {member.shard: member for member in shown.members}
    assert (by_shard["a-2"].share, by_shard["a-2"].ideal) == (0.25, 0.25)
    assert (by_shard["b-1"].share, by_shard["b-1"].ideal, by_shard["b-1"].in_flight) == (0.7, 0.75, 5)
    assert by_shard["c-1"].ideal == 0


def test_tables_align_and_hide_what_is_only_wide() -> None:
    count = ObjectCount(owners=Counter({"a-2": 1250}))
    shown = counted_status(RING, shards_of(RING, LEASES[:2], now=NOW), count)
    assert ring_table(shown).lines(is_wide=False) == [
        "RING       OBJECTS   UNOWNED   IN FLIGHT   PLACES   READY   BALANCED",
        "websites   1,250     0         0           1        True    Unknown",
    ]
    narrow, wide = (member_table(shown, is_wide=flag).lines(is_wide=flag) for flag in (False, True))
    assert narrow[1] == "a        held    3s          1,250     100.0%   100.0%"
    assert "SHARD" in wide[0]
    assert "SHARD" not in narrow[0]


def test_a_table_is_as_wide_as_its_widest_cell() -> None:
    assert Table(("A", "B"), [["long cell", "x"]]).lines(is_wide=False) == ["A           B", "long cell   x"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (3.9, "3s"), (119, "119s"), (600, "10m"), (7200, "2h"), (172800, "2d")]
)
def test_ages_are_written_as_kubectl_writes_them(seconds: float | None, text: str) -> None:
    assert age(seconds) == text


def state(of: Ring, leases: list[Lease]) -> RingState:
    return RingState(of, shards_of(of, leases, now=NOW))


def placed(of: RingState, labels: dict[str, str]) -> Row:
    meta = Meta(name="blog", namespace="sites", labels=labels)
    return row(of, "websites.example.com", meta, object_key("example.com", "sites", "blog"), MAIN)


def test_a_row_agrees_with_the_ring_and_says_why() -> None:
    of = state(RING, [lease("a-2", "a"), lease("b-1", "b")])
    hashed = HashRing({"a": 1, "b": 3}).explain(object_key("example.com", "sites", "blog"))
    shard = {"a": "a-2", "b": "b-1"}[hashed.owner]
    found = placed(of, {KEYS.shard: shard})
    assert (found.desired_shard, found.is_placed, found.owner_state) == (shard, True, "held")
    assert (found.hash, found.token) == (f"{hashed.hash:016x}", f"{hashed.token:016x}")
    meta = DatedMeta(name="blog", namespace="sites")
    (why,) = why_desired(ObjectState(Snapshot(NOW), of, found, meta))
    assert "the first token at or after the hash" in why


@pytest.mark.parametrize(
    ("labels", "owner_state"),
    [
        ({}, "unowned"),
        ({KEYS.shard: "d-1"}, "taken"),
        ({KEYS.shard: "nobody-1"}, "no Lease"),
        ({KEYS.shard: "a-1"}, "held"),
        ({KEYS.shard: "a-1", KEYS.drain: "b-1"}, "held"),
        ({KEYS.shard: "a-1", KEYS.drain: ""}, "held"),
    ],
)
def test_a_row_shows_that_an_object_is_not_where_it_belongs(labels: dict[str, str], owner_state: str) -> None:
    found = placed(state(RING, LEASES), labels)
    assert (found.owner_state, found.is_placed) == (owner_state, False)
    assert found.drain_to == labels.get(KEYS.drain)


@pytest.mark.parametrize(
    ("leases", "why"),
    [
        ([], "no member is on the ring: no shard of it is live"),
        (["secrets"], "no member of ring websites works websites.example.com: such objects wait"),
    ],
)
def test_without_members_nobody_is_desired(leases: list[str], why: str) -> None:
    found = [lease(f"a-{index}", "a") for index, _ in enumerate(leases)]
    for each, works in zip(found, leases, strict=True):
        each.metadata.annotations[KEYS.resources] = works
    of = state(ring(resources=MAINS), found)
    at = placed(of, {})
    assert (at.desired_shard, at.is_placed, at.hash) == ("", False, "")
    assert why_desired(ObjectState(Snapshot(NOW), of, at, DatedMeta())) == [why]


def test_a_kind_of_no_ring_is_refused_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"these are distributed: configmaps, websites\.example\.com"):
        choose_ring([RING], ApiResource("", "v1", "secrets", "Secret"), None)
    with pytest.raises(InputError, match="create a ControllerRing first"):
        choose_ring([], WEBSITES, None)


def test_a_kind_of_two_rings_needs_the_flag() -> None:
    other = ring("other")
    with pytest.raises(InputError, match="--ring"):
        choose_ring([RING, other], WEBSITES, None)
    assert choose_ring([RING, other], WEBSITES, "other") is other


@pytest.mark.parametrize("text", ["blog", "website/", "/blog", "a/b/c/d", "a//c", ""])
def test_a_target_is_kind_and_name(text: str) -> None:
    with pytest.raises(InputError, match="website/blog"):
        parse_target(text)


def test_a_namespace_in_a_target_belongs_behind_n() -> None:
    with pytest.raises(InputError, match="write it as website/blog -n sites"):
        parse_target("website/sites/blog")


def test_forms_are_those_of_kubectl() -> None:
    assert [form.value for form in Form] == ["json", "yaml", "name", "wide"]


def test_an_owner_that_does_not_watch_what_it_owns_does_not_place_it() -> None:
    of = state(ring(resources=MAINS), two_controllers("websites.example.com"))
    found = placed(of, {KEYS.shard: "b-1"})
    assert (found.desired_shard, found.is_placed) == ("a-1", False)


def two_controllers(works: str) -> list[Lease]:
    """*a-1* works what *works* says, *b-1* Secrets."""
    leases = [lease("a-1", "a"), lease("b-1", "b")]
    leases[0].metadata.annotations[KEYS.resources] = works
    leases[1].metadata.annotations[KEYS.resources] = "secrets"
    return leases


@pytest.mark.parametrize("written", ["", ",", " , ,", " "])
def test_a_lease_that_names_no_kind_works_all_as_with_the_sharder(written: str) -> None:
    assert shards_of(RING, two_controllers(written), now=NOW)[0].resources is None


def test_the_ideal_share_counts_main_resources_by_their_objects() -> None:
    two = ring(resources=MAINS)
    found = shards_of(two, two_controllers("websites.example.com"), now=NOW)
    assert ideal_shares(two, found) == {"a": 0.5, "b": 0.5}
    assert ideal_shares(two, found, {"websites.example.com": 90, "secrets": 10}) == {"a": 0.9, "b": 0.1}
    assert ideal_shares(two, found, {"websites.example.com": 99}) == {"a": 0.99, "b": 0.01}


def test_a_proxy_serves_its_probes_beside_those_of_its_controller() -> None:
    native, proxy = lease("a-1", "a"), lease("b-1", "b")
    proxy.metadata.annotations[KEYS.field_manager] = PROXY_MANAGER
    found = shards_of(RING, [native, proxy], now=NOW)
    assert [(shard.is_proxy, shard.probes_port) for shard in found] == [(False, 8081), (True, 8091)]
