"""Versions and history: every older picture that is still known is exactly what was there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.embedded.status import Refusal
from devcluster.embedded.store import Collection, Entry, Interner, Versions


def entry(versions: Versions, name: str, namespace: str = "default") -> Entry:
    version = versions.next()
    return Entry(namespace, name, f"uid-{name}", version, {}, b"%d" % version)


def names(collection: Collection, version: int, **where: object) -> list[str]:
    return [found.name for found in collection.at(version, **where)]  # type: ignore[arg-type]  # test shorthand


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from("ab"), st.sampled_from("xyz")), max_size=40
)


@given(
    STEPS,
    st.sampled_from(["", "a", "b"]),
    st.none() | st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")),
)
def test_every_older_picture_is_what_was_there(
    steps: list[tuple[str, str, str]], namespace: str, after: tuple[str, str] | None
) -> None:
    versions = Versions()
    collection = Collection(versions, history_limit=1000)
    pictures = {versions.current: list(collection.entries())}
    for what, ns, name in steps:
        found = collection.get((ns, name))
        if what == "put":
            collection.put(entry(versions, name, ns))
        elif found is not None:
            collection.remove(found)
        pictures[versions.current] = list(collection.entries())
    for version, picture in pictures.items():
        expected = [
            e
            for e in picture
            if (not namespace or e.namespace == namespace) and (after is None or e.key > after)
        ]
        assert list(collection.at(version, after=after, namespace=namespace)) == expected


def test_events_come_in_order_and_only_those_after_the_version() -> None:
    versions = Versions()
    collection = Collection(versions, history_limit=10)
    start = versions.current
    first = entry(versions, "a")
    collection.put(first)
    collection.remove(first)
    assert [(event.old, event.new) for event in collection.since(start)] == [(None, first), (first, None)]
    assert [event.version for event in collection.since(first.version)] == [first.version + 1]


def test_history_is_bounded_and_what_it_forgot_is_410() -> None:
    versions = Versions()
    collection = Collection(versions, history_limit=8)
    start = versions.current
    for number in range(30):
        collection.put(entry(versions, f"n{number:02d}"))
    assert 8 <= len(collection.since(collection.forgotten)) <= 10
    for version in (start, collection.forgotten - 1):
        with pytest.raises(Refusal) as refused:
            collection.since(version)
        assert (refused.value.code, refused.value.reason) == (410, "Expired")
        with pytest.raises(Refusal):
            names(collection, version)


def test_restart_forgets_the_history_and_keeps_the_objects() -> None:
    versions = Versions()
    collection = Collection(versions, history_limit=8)
    before = versions.current
    collection.put(entry(versions, "a"))
    collection.forget_history()
    with pytest.raises(Refusal):
        collection.since(before)
    assert names(collection, versions.current) == ["a"]
    assert collection.since(versions.current) == []


def test_version_from_the_future_is_a_timeout() -> None:
    collection = Collection(Versions(), history_limit=8)
    with pytest.raises(Refusal) as refused:
        collection.since(99)
    assert refused.value.code == 504


def test_equal_label_sets_are_kept_once() -> None:
    intern = Interner()
    first, second = intern.labels({"a": "b", "c": "d"}), intern.labels({"c": "d", "a": "b"})
    assert first is second
    assert intern.labels({}) is intern.labels({})
