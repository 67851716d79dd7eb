"""What is kept of an object that waits, and how much of it: `sharder.unowned.pending` against a plain model."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.clock import ManualClock
from kubeio.models import Meta, ObjectKey, ObjectRef, OwnerReference
from kubeio.queues.workqueue import WorkQueue
from sharder.unowned.packing import NO_UID, packed_uid, text_uid
from sharder.unowned.pending import AssignmentPriority, PendingObjects
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES

KEPT = (KEYS.shard, KEYS.drain)
BACKLOG = AssignmentPriority.BACKLOG
AREA = PendingObjects().prefix(WEBSITES.group_resource)
"""Every waiting room calls the first resource that it hears of like this."""


def ref(name: str, resource: str = WEBSITES.group_resource) -> ObjectRef:
    return ObjectRef(resource, ObjectKey("ns", name))


def meta(name: str, version: int = 7, *, uid: str = "", labels: dict[str, str] | None = None) -> Meta:
    uid = uid or str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    return Meta(name=name, namespace="ns", uid=uid, resource_version=str(version), labels=labels or {})


def controlled(name: str, parent: str) -> Meta:
    found = meta(name)
    others = OwnerReference("v1", "Other", "other", "uid-of-other")
    found.owner_references = [
        others,
        OwnerReference("example.com/v1", "Website", parent, f"uid-of-{parent}", controller=True),
    ]
    return found


def test_an_object_comes_out_as_it_went_in_but_for_what_no_decision_needs() -> None:
    pending = PendingObjects(labels=KEPT)
    seen = controlled("page", "site")
    seen.labels = {KEYS.shard: "dead-1", "app": "shop"}
    seen.annotations = {"note": "long"}
    assert pending.put(ref("page"), seen, at=100.25)
    found = pending.get(ref("page"))
    assert found is not None
    assert found.ref == ref("page")
    assert found.meta == Meta(
        name="page",
        namespace="ns",
        uid=seen.uid,
        resource_version="7",
        labels={KEYS.shard: "dead-1"},
        owner_references=[seen.owner_references[1]],
    )
    assert found.since == pytest.approx(100.25, abs=0.001)


def test_without_a_list_of_labels_all_are_kept() -> None:
    pending = PendingObjects()
    pending.put(ref("a"), meta("a", labels={"app": "shop", KEYS.drain: ""}), at=0)
    found = pending.get(ref("a"))
    assert found is not None
    assert found.meta.labels == {"app": "shop", KEYS.drain: ""}


@pytest.mark.parametrize(
    "uid",
    [
        "",
        "uid-1",
        "0" * 36,
        str(uuid.UUID(int=0)),
        str(uuid.UUID(int=2**128 - 1)),
        str(uuid.UUID(int=15)).upper(),
    ],
)
def test_any_uid_comes_out_as_it_went_in(uid: str) -> None:
    pending = PendingObjects(labels=KEPT)
    seen = meta("a")
    seen.uid = uid
    pending.put(ref("a"), seen, at=0)
    found = pending.get(ref("a"))
    assert found is not None
    assert found.meta.uid == uid
    assert not pending.put(ref("a"), seen, at=1), "the same object and version"


@given(st.uuids())
def test_a_uuid_fits_into_16_bytes(uid: uuid.UUID) -> None:
    packed = packed_uid(str(uid))
    assert packed == NO_UID or text_uid(packed) == str(uid)
    assert uid.int == 0 or (len(packed) == 16 and packed != NO_UID)


def test_only_a_later_version_is_new_and_it_keeps_its_age() -> None:
    pending = PendingObjects()
    assert pending.put(ref("a"), meta("a", 7), at=10)
    assert not pending.put(ref("a"), meta("a", 7), at=11)
    assert not pending.put(ref("a"), meta("a", 6), at=11)
    assert pending.put(ref("a"), meta("a", 8), at=12)
    found = pending.get(ref("a"))
    assert found is not None
    assert (found.meta.resource_version, found.since) == ("8", 10)
    assert pending.oldest_s(20) == pytest.approx(10)


def test_a_namesake_begins_anew_and_inherits_no_controller() -> None:
    pending = PendingObjects()
    pending.put(ref("a"), controlled("a", "site"), at=10)
    assert [pending.ref(name) for name in pending.controlled_by("uid-of-site")] == [ref("a")]
    assert pending.put(ref("a"), meta("a", 9, uid=str(uuid.uuid4())), at=12)
    found = pending.get(ref("a"))
    assert found is not None
    assert found.since == 12
    assert found.meta.controller is None
    assert not list(pending.controlled_by("uid-of-site"))


def test_a_newer_version_survives_the_removal_of_an_older_one() -> None:
    pending = PendingObjects()
    pending.put(ref("a"), meta("a", 9), at=0)
    pending.drop_up_to(pending.name(ref("a")), 8)
    assert pending.get(ref("a")) is not None
    pending.drop_up_to(pending.name(ref("a")), 9)
    assert pending.get(ref("a")) is None


def test_more_kinds_of_labels_than_there_are_numbers_are_kept_all_the_same() -> None:
    pending = PendingObjects()
    for number in range(70_000):
        pending.put(ref(f"o-{number}"), meta(f"o-{number}", uid="u", labels={"n": str(number)}), at=0)
    for number in (0, 65_533, 65_534, 65_535, 69_999):
        found = pending.get(ref(f"o-{number}"))
        assert found is not None
        assert found.meta.labels == {"n": str(number)}


# ---- lists ----------------------------------------------------------------------------------------------------


def listed(pending: PendingObjects, *names: str, version: int = 7) -> list[bool]:
    return [
        pending.put_listed(AREA, pending.name(ref(name)), meta(name, version), at=0, priority=BACKLOG)
        for name in names
    ]


def waits(pending: PendingObjects) -> list[str]:
    return sorted(found.ref.key.name for found in pending)


def test_what_a_complete_list_did_not_show_no_longer_waits_unless_it_is_newer() -> None:
    pending = PendingObjects()
    assert pending.prefix(WEBSITES.group_resource) == AREA
    for name, version in (("a", 5), ("b", 5), ("later", 30)):
        pending.put(ref(name), meta(name, version), at=0)
    other = ref("a", CONFIGMAPS.group_resource)
    pending.put(other, meta("a", 1), at=0)
    pending.begin_list(AREA)
    listed(pending, "b", "c")
    pending.end_list(AREA, version=20)
    assert waits(pending) == ["a", "b", "c", "later"]
    assert pending.get(other) is not None, "another resource's list says nothing about it"
    assert pending.get(ref("a")) is None


def test_the_list_of_one_namespace_says_nothing_about_another() -> None:
    pending = PendingObjects()
    elsewhere = ObjectRef(WEBSITES.group_resource, ObjectKey("ns2", "a"))
    pending.put(elsewhere, Meta(name="a", namespace="ns2", uid="u", resource_version="5"), at=0)
    pending.put(ref("a"), meta("a", 5), at=0)
    area = pending.area(WEBSITES.group_resource, "ns")
    pending.begin_list(area)
    pending.drop_up_to(pending.name(ref("m")), 5)
    assert not pending.put_listed(area, pending.name(ref("m")), meta("m", 5), at=0, priority=BACKLOG)
    pending.end_list(area, version=20)
    assert [found.ref for found in pending] == [elsewhere]


def test_a_list_that_did_not_end_counts_for_nothing() -> None:
    pending = PendingObjects()
    pending.begin_list(AREA)
    listed(pending, "a", "b")
    pending.begin_list(AREA)
    listed(pending, "b")
    pending.end_list(AREA, version=20)
    assert waits(pending) == ["b"]


def test_what_was_settled_while_a_list_is_read_is_not_decided_again_at_the_same_version() -> None:
    pending = PendingObjects()
    pending.put(ref("m"), meta("m", 5), at=0)
    pending.begin_list(AREA)
    pending.drop_up_to(pending.name(ref("m")), 5)  # the old session's object was assigned
    assert listed(pending, "a", "m", version=5) == [True, False]
    assert waits(pending) == ["a"]


def test_what_was_settled_is_new_again_at_a_later_version() -> None:
    pending = PendingObjects()
    pending.begin_list(AREA)
    pending.drop_up_to(pending.name(ref("m")), 5)
    assert listed(pending, "m", version=6) == [True]


def test_a_second_watch_that_lags_shows_nothing_twice() -> None:
    pending = PendingObjects()
    pending.overlap(AREA, True)
    pending.begin_list(AREA)
    listed(pending, "z")
    name = pending.name(ref("new"))
    assert pending.put_seen(name, meta("new", 9), at=0, priority=AssignmentPriority.NEW)
    pending.drop_up_to(pending.name(ref("new")), 9)
    assert not pending.put_seen(name, meta("new", 9), at=0, priority=AssignmentPriority.NEW)
    pending.overlap(AREA, False)
    assert pending.remembered == 0, "behind the list's place, and one watch left"


def test_what_the_list_brought_itself_is_not_remembered() -> None:
    """Else a first assignment would keep a hundred thousand names."""
    pending = PendingObjects()
    pending.begin_list(AREA)
    for number in range(1000):
        listed(pending, f"o-{number:04}")
        pending.drop_up_to(pending.name(ref(f"o-{number:04}")), 7)
    assert pending.remembered == 0
    pending.drop_up_to(pending.name(ref("zz")), 7)
    assert pending.remembered == 1
    pending.end_list(AREA, version=7)
    assert pending.remembered == 0


# ---- against a model ------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "raise", "read", "drop_up_to"]),
        st.integers(0, 4),
        st.integers(1, 9),
        st.sampled_from(["uid-1", "", str(uuid.UUID(int=77))]),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_holds_what_a_plain_dict_would_hold(steps: list[tuple[str, int, int, str]]) -> None:
    pending, model = PendingObjects(), dict[str, Meta]()
    reads, known_after = 0, dict[str, int]()
    for step, number, version, uid in steps:
        name = f"o-{number}"
        known = model.get(name)
        match step:
            case "put":
                seen = meta(name, version, uid=uid or str(uuid.UUID(int=number + 1)))
                is_news = known is None or known.uid != seen.uid or int(known.resource_version) < version
                assert pending.put(ref(name), seen, at=0) == is_news
                if is_news:
                    model[name] = seen
                    known_after[name] = reads
            case "drop":
                pending.drop(pending.name(ref(name)))
                model.pop(name, None)
            case "drop_up_to":
                pending.drop_up_to(pending.name(ref(name)), version)
                if known is not None and int(known.resource_version) <= version:
                    del model[name]
            case "raise":
                pending.raise_priority(pending.name(ref(name)))
            case "read":
                reads += 1
                assert pending.begin_read() == reads
    assert {found.ref.key.name: found.meta for found in pending} == model
    for found in pending:
        assert found.reads_before == known_after[found.ref.key.name]
        named = {key: pending.label(pending.name(found.ref), key) for key in (*found.meta.labels, "another")}
        assert named == {**found.meta.labels, "another": None}
    assert len(pending) == len(model)


def test_an_object_that_waits_takes_at_most_300_bytes() -> None:
    """Measured as the sharder holds it: in `PendingObjects` and in the work queue, names and uids like real ones."""
    count = 100_000
    rng = random.Random(1)
    uids = [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(count)]
    gc.collect()
    tracemalloc.start()
    pending = PendingObjects(labels=KEPT)
    queue = WorkQueue[str](clock=ManualClock(), rng=rng, priorities=AssignmentPriority)
    before, _ = tracemalloc.get_traced_memory()
    for number, uid in enumerate(uids):
        name = pending.name(ObjectRef("websites.example.com", ObjectKey("default", f"website-{number:06}")))
        pending.put_named(name, Meta(uid=uid, resource_version=str(10**7 + number)), at=1.0, priority=BACKLOG)
        queue.add(name, priority=BACKLOG)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(pending) == len(queue) == count
    per_object = (after - before) / count
    print(f"{per_object:.0f} bytes per waiting object", file=sys.stderr)
    assert per_object <= 300


def test_many_resources_are_distinct_from_their_namespaces() -> None:
    pending = PendingObjects()
    for number in range(40):
        of = ObjectRef(f"kind{number}.example.com", ObjectKey("ns", "a"))
        area = pending.area(of.resource, "ns")
        pending.begin_list(area)
        assert pending.put_listed(area, pending.name(of), meta("a"), at=0, priority=BACKLOG)
        pending.drop_up_to(pending.name(of), 7)
        pending.begin_list(area)
        pending.drop_up_to(pending.name(of), 9)
        shown = meta("a", 8)
        assert not pending.put_seen(pending.name(of), shown, at=0, priority=AssignmentPriority.NEW), number
