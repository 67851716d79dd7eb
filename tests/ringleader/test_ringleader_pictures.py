"""`status` and `where`: what they conclude from rings, Leases and labels, and how it is laid out."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import msgspec
import pytest

from kubeio.errors import InputError
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from ring import HashRing, object_key
from ringleader.inspect.cluster.keys import Key, Target
from ringleader.inspect.cluster.picture import ObjectCount, ideal_shares, picture
from ringleader.inspect.cluster.rings import (
    Distributed,
    Kind,
    Member,
    Ring,
    RingFields,
    Rings,
    lives,
    ring_weights,
)
from ringleader.inspect.status.command import member_table, ring_table
from ringleader.inspect.where.one import choose_ring, lines, parse_target, place
from ringleader.output import Form, Table, age

NOW = datetime(2026, 11, 21, 12, 0, 10, tzinfo=UTC)
KEYS = RingKeys("websites")
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
RING = Ring(
    metadata=Meta(name="websites"),
    spec=RingFields(
        resources=[Distributed("websites", "example.com", [Kind("configmaps")])],
        lease_namespace="rings",
        members={"c": Member(cordoned=True), "b": Member(weight=3.0)},
    ),
    status={"conditions": [{"type": "Ready", "status": "True"}]},
)


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


def test_the_latest_of_several_lives_fills_the_place() -> None:
    found = lives(RING, LEASES, now=NOW)
    assert [(life.shard, life.fills_place) for life in found] == [
        ("a-2", True),
        ("a-1", False),
        ("b-1", True),
        ("c-1", True),
        ("d-1", False),
    ]
    assert found[0].age_s == 3.0
    assert found[-1].state == "taken"
    assert not found[-1].is_live


def test_a_contested_life_keeps_its_objects() -> None:
    (life,) = lives(RING, [lease("x-1", "x", holder="sharder-1", contested=True)], now=NOW)
    assert life.is_live
    assert not life.fills_place


def test_a_released_life_has_no_place() -> None:
    (life,) = lives(RING, [lease("x-1", "x", holder="")], now=NOW)
    assert (life.state, life.is_live, life.fills_place) == ("released", True, False)


def test_cordoned_members_are_not_on_the_ring_and_weights_count() -> None:
    assert ring_weights(RING, lives(RING, LEASES, now=NOW)) == {"a": 1.0, "b": 3.0}


def test_a_life_whose_caches_are_not_full_has_no_place() -> None:
    filling, full = lease("a-1", "a"), lease("b-1", "b")
    for each in (filling, full):
        each.metadata.annotations[KEYS.protocol] = "v1"
    full.metadata.annotations[KEYS.synced] = "true"
    found = lives(RING, [filling, full], now=NOW)
    assert [(life.shard, life.fills_place) for life in found] == [("a-1", False), ("b-1", True)]


def test_each_main_resource_has_the_ring_of_those_that_work_it() -> None:
    two = [Distributed("websites", "example.com"), Distributed("secrets")]
    ring = msgspec.structs.replace(RING, spec=msgspec.structs.replace(RING.spec, resources=two, members={}))
    leases = [lease("a-1", "a"), lease("b-1", "b"), lease("c-1", "c")]
    leases[0].metadata.annotations[KEYS.resources] = "websites.example.com"
    leases[1].metadata.annotations[KEYS.resources] = "configmaps,secrets"
    found = lives(ring, leases, now=NOW)
    rings = Rings(ring, found)
    assert sorted(rings.of("websites.example.com").members) == ["a", "c"]
    assert sorted(rings.of("secrets").members) == ["b", "c"]
    assert sorted(rings.whole.members) == ["a", "b", "c"]
    assert ideal_shares(ring, found) == {"a": 0.25, "b": 0.25, "c": 0.5}
    alike = Rings(ring, lives(ring, leases[2:], now=NOW))
    assert alike.of("secrets") is alike.whole


def test_the_picture_counts_the_unowned_and_those_on_their_way() -> None:
    count = ObjectCount(owners=Counter({"a-2": 25, "b-1": 70, "d-1": 3, "": 2}), leaving=Counter({"b-1": 5}))
    shown = picture(RING, lives(RING, LEASES, now=NOW), count)
    assert (shown.objects, shown.unowned, shown.in_flight, shown.ready) == (100, 5, 5, "True")
    by_shard = {member.shard: member for member in shown.members}
    assert (by_shard["a-2"].share, by_shard["a-2"].ideal) == (0.25, 0.25)
    assert (by_shard["b-1"].share, by_shard["b-1"].ideal, by_shard["b-1"].in_flight) == (0.7, 0.75, 5)
    assert by_shard["c-1"].ideal == 0


def test_tables_align_and_hide_what_is_only_wide() -> None:
    count = ObjectCount(owners=Counter({"a-2": 1250}))
    shown = picture(RING, lives(RING, LEASES[:2], now=NOW), count)
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


def placed(labels: dict[str, str], leases: list[Lease]) -> tuple[str, list[str], bool]:
    target = Target(WEBSITES, Meta(name="blog", namespace="sites", labels=labels))
    key = Key(object_key("example.com", "sites", "blog"), "its own name")
    placement = place(RING, target, key, lives(RING, leases, now=NOW))
    return placement.desired_shard, placement.why, placement.is_placed


def test_where_agrees_with_the_ring_and_says_why() -> None:
    leases = [lease("a-2", "a"), lease("b-1", "b")]
    wanted = HashRing({"a": 1, "b": 3}).owner(object_key("example.com", "sites", "blog"))
    shard = {"a": "a-2", "b": "b-1"}[wanted]
    desired, why, is_placed = placed({KEYS.shard: shard}, leases)
    assert (desired, is_placed, why[-1]) == (shard, True, "it is where it belongs")
    assert "the first token at or after the hash" in why[0]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({}, "it has no owner"),
        ({KEYS.shard: "d-1"}, "d-1 is dead"),
        ({KEYS.shard: "nobody-1"}, "nobody-1 is dead"),
        ({KEYS.shard: "a-1"}, "not the desired one"),
        ({KEYS.shard: "a-1", KEYS.drain: "b-1"}, "on its way to b-1"),
        ({KEYS.shard: "a-1", KEYS.drain: ""}, "being released"),
    ],
)
def test_where_says_why_an_object_is_not_where_it_belongs(labels: dict[str, str], words: str) -> None:
    _, why, is_placed = placed(labels, LEASES)
    assert words in why[-1]
    assert not is_placed


def test_without_members_nobody_is_desired() -> None:
    desired, why, is_placed = placed({}, [])
    assert (desired, is_placed) == ("", False)
    assert "no member is on the ring" in why[0]


def test_the_answer_for_people_names_owner_key_and_hash() -> None:
    target = Target(WEBSITES, Meta(name="blog", namespace="sites", labels={KEYS.shard: "a-2"}))
    placement = place(
        RING, target, Key("example.com_sites_blog", "its own name"), lives(RING, LEASES, now=NOW)
    )
    text = "\n".join(lines(placement))
    assert "owner    a-2 (held, Lease renewed 3s ago)" in text
    assert "key      example.com_sites_blog (its own name)" in text
    assert "hash     " in text


def test_a_kind_of_no_ring_is_refused_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"these are distributed: configmaps, websites\.example\.com"):
        choose_ring([RING], ApiResource("", "v1", "secrets", "Secret"), None)
    with pytest.raises(InputError, match="create a ControllerRing first"):
        choose_ring([], WEBSITES, None)


def test_a_kind_of_two_rings_needs_the_flag() -> None:
    other = Ring(metadata=Meta(name="other"), spec=RING.spec)
    with pytest.raises(InputError, match="--ring"):
        choose_ring([RING, other], WEBSITES, None)
    assert choose_ring([RING, other], WEBSITES, "other") is other


@pytest.mark.parametrize("text", ["blog", "website/", "/blog", "a/b/c", ""])
def test_a_target_is_kind_and_name(text: str) -> None:
    with pytest.raises(InputError, match="website/blog"):
        parse_target(text)


def test_forms_are_those_of_kubectl() -> None:
    assert [form.value for form in Form] == ["json", "yaml", "name", "wide"]


def two_controllers(works: str, *, owner: str = "") -> tuple[Ring, list[Lease], Target]:
    """A ring of Websites and Secrets; *a-1* works what *works* says, *b-1* Secrets; a Website of *owner*."""
    mains = [Distributed("websites", "example.com"), Distributed("secrets")]
    ring = msgspec.structs.replace(RING, spec=msgspec.structs.replace(RING.spec, resources=mains, members={}))
    leases = [lease("a-1", "a"), lease("b-1", "b")]
    leases[0].metadata.annotations[KEYS.resources] = works
    leases[1].metadata.annotations[KEYS.resources] = "secrets"
    labels = {KEYS.shard: owner} if owner else {}
    return ring, leases, Target(WEBSITES, Meta(name="blog", namespace="sites", labels=labels))


def test_where_says_that_nobody_works_a_kind() -> None:
    ring, leases, target = two_controllers("secrets")
    placement = place(ring, target, Key("k", "", "websites.example.com"), lives(ring, leases, now=NOW))
    assert placement.why[0] == "no member of ring websites works websites.example.com: such objects wait"
    assert (placement.desired_shard, placement.is_placed) == ("", False)


def test_where_says_that_an_owner_does_not_watch_what_it_owns() -> None:
    ring, leases, target = two_controllers("websites.example.com", owner="b-1")
    placement = place(ring, target, Key("k", "", "websites.example.com"), lives(ring, leases, now=NOW))
    assert (
        placement.why[-1]
        == "b-1 does not watch websites.example.com: the object waits for the end of that shard"
    )
    assert (placement.desired_shard, placement.is_placed) == ("a-1", False)


@pytest.mark.parametrize("written", ["", ",", " , ,", " "])
def test_a_lease_that_names_no_kind_works_all_as_with_the_sharder(written: str) -> None:
    ring, leases, _ = two_controllers(written)
    assert lives(ring, leases, now=NOW)[0].resources is None


def test_the_ideal_share_counts_main_resources_by_their_objects() -> None:
    ring, leases, _ = two_controllers("websites.example.com")
    found = lives(ring, leases, now=NOW)
    assert ideal_shares(ring, found) == {"a": 0.5, "b": 0.5}
    assert ideal_shares(ring, found, {"websites.example.com": 90, "secrets": 10}) == {"a": 0.9, "b": 0.1}
    assert ideal_shares(ring, found, {"websites.example.com": 99}) == {"a": 0.99, "b": 0.01}
