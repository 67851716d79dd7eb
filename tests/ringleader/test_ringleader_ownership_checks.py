"""Both checks judge made-up histories as a slow, obvious reading of the definition does."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.plane import Write, asks_for_labels_only
from kubeio.protocol import RingKeys
from ringleader.testing.journal import Begin, End, Journal, Life, Record
from ringleader.testing.ownership_checks import (
    LEASES,
    Interval,
    TooFewReconcilesError,
    foreign_writes,
    intervals,
    lease_takes,
    members,
    overlaps,
    refused_writes,
    require_reconciles,
)

KEYS = RingKeys("websites")
SITES = "websites.example.com"
PAGES = "configmaps"


def begin(t: float, shard: str, uid: str = "u1") -> Begin:
    return Begin(t, shard, SITES, f"default/{uid}", uid, "7", 1)


def end(t: float, shard: str, uid: str = "u1") -> End:
    return End(t, shard, SITES, f"default/{uid}", uid, "done")


def lease(t: float, name: str, holder: str, *, user: str, verb: str = "update", **annotations: str) -> Write:
    return Write(
        seq=int(t * 10),
        t=t,
        user=user,
        verb=verb,
        resource=LEASES,
        namespace="fleet",
        name=name,
        code=201 if verb == "create" else 200,
        labels_after={KEYS.ring_label: "websites"},
        object={"spec": {"holderIdentity": holder}, "annotations": annotations},
    )


def patch(t: float, user: str, label: str | None, *, code: int = 200, verb: str = "patch") -> Write:
    labels = {} if label is None else {KEYS.shard: label}
    return Write(
        seq=int(t * 10),
        t=t,
        user=user,
        verb=verb,
        resource=SITES,
        namespace="default",
        name="blog",
        subresource="status",
        uid="u1",
        code=code,
        labels_before=labels,
        labels_after=labels,
    )


def test_two_shards_in_one_object_at_once_are_found() -> None:
    history: list[Record] = [begin(1, "a"), begin(2, "b"), end(3, "a"), end(4, "b")]
    (overlap,) = overlaps(intervals(history, deaths={}, takes={}))
    assert {overlap.first.shard, overlap.second.shard} == {"a", "b"}
    assert str(overlap) == "default/u1 was worked on by a and b at once for 1000 ms"


def test_one_after_the_other_is_no_overlap() -> None:
    history: list[Record] = [begin(1, "a"), end(2, "a"), begin(2, "b"), end(3, "b")]
    assert overlaps(intervals(history, deaths={}, takes={})) == []


def test_one_shard_working_twice_at_once_is_found() -> None:
    history: list[Record] = [begin(1, "a"), begin(2, "a"), end(3, "a"), end(4, "a")]
    assert len(overlaps(intervals(history, deaths={}, takes={}))) == 1


def test_a_reconcile_without_an_end_lasts_until_its_process_died() -> None:
    life = Life(0, "a", "m", 71)
    history: list[Record] = [life, begin(1, "a"), begin(5, "b"), end(6, "b")]
    assert len(overlaps(intervals(history, deaths={}, takes={}))) == 1
    assert overlaps(intervals(history, deaths={life: 4.0}, takes={})) == []
    assert len(overlaps(intervals(history, deaths={life: 5.5}, takes={}))) == 1


def test_a_life_that_the_next_process_takes_over_ends_each_reconcile_at_its_own_processs_death() -> None:
    former, later = Life(0, "a", "m", 71), Life(3, "a", "m", 72)
    history: list[Record] = [former, begin(1, "a"), later, begin(4, "a")]
    first, second = intervals(history, deaths={former: 2.0, later: 6.0}, takes={})
    assert (first.end, second.end) == (2.0, 6.0)


def test_a_frozen_reconcile_ends_when_its_lease_is_taken() -> None:
    history: list[Record] = [begin(1, "a"), begin(8, "b"), end(9, "b"), end(20, "a")]
    assert len(overlaps(intervals(history, deaths={}, takes={"a": 8.5}))) == 1
    assert overlaps(intervals(history, deaths={}, takes={"a": 7.0})) == []


def test_a_reconcile_begun_after_the_take_is_not_excused() -> None:
    history: list[Record] = [begin(8, "b"), begin(9, "a"), end(10, "a"), end(11, "b")]
    assert len(overlaps(intervals(history, deaths={}, takes={"a": 7.0}))) == 1


def test_a_contested_take_ends_nothing() -> None:
    contested = lease(5, "a", "sharder:sharder-1", user="sharder-1", **{KEYS.contested: "x"})
    assert lease_takes([lease(1, "a", "a", user="m-a", verb="create"), contested], keys=KEYS) == {}
    dead = lease(9, "a", "sharder:sharder-1", user="sharder-1")
    assert lease_takes([contested, dead], keys=KEYS) == {"a": 9}


def test_a_released_lease_is_not_taken() -> None:
    assert lease_takes([lease(1, "a", "", user="m-a")], keys=KEYS) == {}


def test_few_reconciles_prove_nothing() -> None:
    with pytest.raises(TooFewReconcilesError, match="hold 0 reconciles, fewer than 5"):
        require_reconciles([], at_least=5)


def test_a_write_under_ones_own_name_is_not_foreign() -> None:
    log = [lease(1, "a-1", "a-1", user="a", verb="create"), patch(2, "a", "a-1")]
    assert foreign_writes(log, keys=KEYS, resources={SITES}, controlled=(), replicas={"a", "b"}) == []


@pytest.mark.parametrize(("label", "words"), [("b-1", "bore the name b-1"), (None, "bore no name")])
def test_a_write_under_anothers_name_or_none_is_foreign_and_says_so(label: str | None, words: str) -> None:
    log = [
        lease(1, "a-1", "a-1", user="a", verb="create"),
        lease(1, "b-1", "b-1", user="b", verb="create"),
        patch(2, "a", label),
    ]
    (foreign,) = foreign_writes(log, keys=KEYS, resources={SITES}, controlled=(), replicas={"a", "b"})
    assert (
        str(foreign) == f"websites.example.com default/blog: patch of /status by a accepted while it {words}"
    )


LIVES = [
    lease(1, "a-1", "a-1", user="a", verb="create"),
    lease(1, "b-1", "b-1", user="b", verb="create"),
]
CREATED = msgspec.structs.replace(
    patch(3, "a", None, verb="create", code=201),
    resource=PAGES,
    subresource="",
    uid="u2",
    labels_after={KEYS.shard: "a-1"},
    controller="u1",
)
GONE = msgspec.structs.replace(patch(2.5, "b", "b-1", verb="delete"), subresource="", labels_after=None)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([patch(2, "a", "a-1"), CREATED], []),
        ([CREATED], []),  # its controller is not in the log
        ([patch(2, "b", "b-1"), GONE, CREATED], []),  # its controller is gone
        ([patch(2, "b", "b-1"), CREATED], ["its controller bore the name b-1"]),
        ([patch(2, "s", None), CREATED], ["its controller bore no name"]),
        ([patch(2, "b", "b-1"), msgspec.structs.replace(CREATED, code=409)], []),
        ([patch(2, "b", "b-1"), msgspec.structs.replace(CREATED, user="s")], []),
        (
            [patch(2, "a", "a-1"), msgspec.structs.replace(CREATED, labels_after={})],
            ["its controller bore the name a-1"],
        ),
    ],
)
def test_what_a_replica_creates_bears_the_name_that_its_controller_bore(
    log: list[Write], words: list[str]
) -> None:
    found = foreign_writes(
        [*LIVES, *log], keys=KEYS, resources={SITES, PAGES}, controlled={PAGES}, replicas={"a", "b"}
    )
    assert [str(one).partition("accepted while ")[2] for one in found] == words


ASKING = msgspec.structs.replace(
    patch(2, "a", "b-1"),
    resource=PAGES,
    subresource="",
    labels_after={KEYS.shard: "b-1", KEYS.drain: "a-1"},
    only_labels=True,
)
"""Shard a-1 asks for a page of b-1: the one change of another's object that the protocol allows."""


def foreign(write: Write) -> list[str]:
    """The labels under which *write* is foreign, given the lives a-1 and b-1."""
    found = foreign_writes(
        [*LIVES, write], keys=KEYS, resources={SITES, PAGES}, controlled={PAGES}, replicas={"a", "b"}
    )
    return [one.label for one in found]


@pytest.mark.parametrize(
    "before",
    [
        {KEYS.shard: "b-1"},
        {KEYS.shard: "b-1", KEYS.drain: "a-1"},
        {KEYS.shard: "b-1", KEYS.drain: "c-1"},
        {KEYS.shard: "b-1", "app": "blog"},
    ],
    ids=["first", "again", "instead-of-another", "among-other-labels"],
)
def test_asking_for_a_controlled_object_of_another_shard_is_not_foreign(before: dict[str, str]) -> None:
    after = {**before, KEYS.drain: "a-1"}
    assert foreign(msgspec.structs.replace(ASKING, labels_before=before, labels_after=after)) == []


@pytest.mark.parametrize(
    "wider",
    [
        {"subresource": "status"},
        {"only_labels": False},
        {"verb": "update", "only_labels": False},
        {"resource": SITES},
        {"labels_after": {KEYS.shard: "b-1", KEYS.drain: "b-1"}},
        {"labels_after": {KEYS.shard: "b-1", KEYS.drain: ""}},
        {"labels_after": {KEYS.shard: "a-1", KEYS.drain: "a-1"}},
        {"labels_after": {KEYS.shard: "b-1", KEYS.drain: "a-1", "app": "blog"}},
        {"labels_after": {KEYS.drain: "a-1"}},
        {"labels_after": None, "verb": "delete", "only_labels": False},
        {
            "labels_before": {KEYS.shard: "nobody-1"},
            "labels_after": {KEYS.shard: "nobody-1", KEYS.drain: "a-1"},
        },
        {"labels_before": {}, "labels_after": {KEYS.drain: "a-1"}},
    ],
    ids=[
        "through-status",
        "with-content",
        "as-an-update",
        "of-an-object-that-is-not-controlled",
        "for-another",
        "for-nobody",
        "and-taking-it",
        "with-another-label",
        "and-removing-the-owner",
        "by-deleting-it",
        "of-a-name-that-no-shard-has",
        "of-an-unowned-object",
    ],
)
def test_nothing_wider_than_asking_passes_as_asking(wider: dict[str, object]) -> None:
    assert len(foreign(msgspec.structs.replace(ASKING, **wider))) == 1


@pytest.mark.parametrize(
    ("body", "is_narrow"),
    [
        (
            b'[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"add","path":"/metadata/labels/x","value":"y"}]',
            True,
        ),
        (b' [{"op":"remove","path":"/metadata/labels/x"}]', True),
        (b'[{"op":"add","path":"/metadata/labels","value":{}}]', False),
        (
            b'[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"add","path":"/data/k","value":"v"}]',
            False,
        ),
        (b'[{"op":"move","from":"/data/k","path":"/metadata/labels/x"}]', False),
        (b'[{"op":"test","path":"/metadata/uid","value":"u"}]', False),
        (b'{"metadata":{"labels":{"x":"y"}}}', False),
        (b"[1]", False),
        (b"null", False),
        (b"", False),
    ],
)
def test_a_patch_that_asks_for_labels_only_is_told_from_its_body(body: bytes, is_narrow: bool) -> None:
    assert asks_for_labels_only(body) is is_narrow


def test_what_the_server_refused_is_counted_and_is_not_foreign() -> None:
    log = [
        lease(1, "a-1", "a-1", user="a", verb="create"),
        patch(2, "a", "b-1", code=422),
        patch(3, "a", "b-1", code=403),
        patch(4, "a", None, code=409, verb="create"),
    ]
    assert foreign_writes(log, keys=KEYS, resources={SITES}, controlled=(), replicas={"a"}) == []
    assert [write.t for write in refused_writes(log, resources={SITES}, replicas={"a"})] == [2]


def test_sharder_and_clients_write_what_they_like() -> None:
    log = [patch(2, "sharder-1", None), patch(3, "client", "a-1")]
    assert foreign_writes(log, keys=KEYS, resources={SITES}, controlled=(), replicas={"a"}) == []


def test_a_lease_names_its_member() -> None:
    log = [
        lease(1, "a-1", "a-1", user="a", verb="create", **{KEYS.member: "a"}),
        lease(2, "a-1", "", user="a"),
    ]
    assert members(log, keys=KEYS) == {"a-1": "a"}


def test_a_journal_is_read_further_and_never_by_halves(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    journal = Journal(path)
    assert journal.read() == []
    line = msgspec.json.encode(begin(1, "a")) + b"\n"
    path.write_bytes(line + line[:20])
    assert journal.read() == [begin(1, "a")]
    with path.open("ab") as file:
        file.write(line[20:] + msgspec.json.encode(end(2, "a")) + b"\n")
    assert journal.read() == [begin(1, "a"), end(2, "a")]
    assert len(journal.records) == 3


SPANS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["u1", "u2"]), st.integers(0, 30), st.integers(1, 10)),
    max_size=8,
)


@given(spans=SPANS)
def test_overlaps_are_all_pairs_that_share_an_instant(spans: list[tuple[str, str, int, int]]) -> None:
    found = [Interval(uid, uid, shard, t, t + length, "end") for shard, uid, t, length in spans]
    expected = sum(
        a.uid == b.uid and max(a.begin, b.begin) < min(a.end, b.end)
        for i, a in enumerate(found)
        for b in found[i + 1 :]
    )
    assert len(overlaps(found)) == expected


@given(
    cuts=st.lists(st.integers(1, 100), min_size=1, max_size=12, unique=True),
    died=st.one_of(st.just(math.inf), st.integers(1, 100)),
)
def test_workers_that_take_turns_never_overlap_and_a_late_end_always_does(
    cuts: list[int], died: float
) -> None:
    turns = sorted(cuts)
    life = Life(0, "a", "a", 1)
    records: list[Record] = [life, Life(0, "b", "b", 2)]
    for index, (start, stop) in enumerate(itertools.pairwise(turns)):
        shard = "ab"[index % 2]
        records += [begin(start, shard), end(stop, shard)]
    assert overlaps(intervals(records, deaths={life: died}, takes={})) == []
    if len(turns) > 2 and died == math.inf:
        records[3] = end(turns[1] + 0.5, "a")
        assert len(overlaps(intervals(records, deaths={}, takes={}))) >= 1
