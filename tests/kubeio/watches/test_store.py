"""What the store promises to readers."""

from __future__ import annotations

import json
import tracemalloc

import msgspec
import pytest

from kubeio.models import HasMeta, Object, ObjectKey
from kubeio.versions import is_older, newest
from kubeio.watches.storage import StoredForm
from kubeio.watches.store import Store

_meta_decoder = msgspec.json.Decoder(HasMeta)


def website(name: str, version: int | str, *, owner: str = "", filler: int = 0) -> Object:
    metadata: dict[str, object] = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {"shard.ringleader.dev/websites": "shard-a"},
    }
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Other", "name": "other", "uid": "uid-other"},
            {"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": True},
        ]
    raw = json.dumps({"metadata": metadata, "spec": {"filler": "x" * filler}}).encode()
    return Object(_meta_decoder.decode(raw).metadata, raw)


KEY = ObjectKey("default", "a")


def put(store: Store, obj: Object) -> Object | None:
    """Let *store* learn *obj*; the version known before."""
    old = store.get(obj.meta.key)
    store.learn(obj)
    return old


def test_older_version_is_ignored_and_versions_compare_as_numbers() -> None:
    store = Store()
    newer, older = website("a", 10), website("a", 9)
    assert put(store, newer) is None
    assert put(store, older) == newer
    assert store.get(KEY) == newer


def test_versions_that_are_no_numbers_are_never_judged_older() -> None:
    store = Store()
    put(store, website("a", "opaque-2"))
    put(store, website("a", "opaque-1"))
    meta = store.meta(KEY)
    assert meta is not None
    assert meta.resource_version == "opaque-1"


@pytest.mark.parametrize(
    ("first", "second", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("9", "9", False),
        ("", "5", False),
        ("x", "5", False),
        ("5", "", False),
    ],
)
def test_age_of_versions(first: str, second: str, older: bool) -> None:
    assert is_older(first, second) is older


def test_newest_of_two_versions() -> None:
    assert newest("9", "10") == "10"
    assert newest("10", "9") == "10"
    assert newest("", "9") == "9"


def test_children_are_those_of_the_controller_reference_and_the_readers_own() -> None:
    store = Store()
    for name in ("a", "b"):
        put(store, website(name, 1, owner="uid-parent"))
    assert store.children("uid-parent") == {ObjectKey("default", name) for name in "ab"}
    assert store.children("uid-other") == set(), "not the controller"
    assert store.children("") == set()
    store.children("uid-parent").clear()
    assert len(store.children("uid-parent")) == 2


COMPRESSED = StoredForm(strips=True, compress_from_objects=10, compress_from_bytes=10**9)


@pytest.mark.parametrize("filler", [10, 1000, 100_000])
def test_an_object_kept_compressed_is_read_in_its_newest_version_however_large(filler: int) -> None:
    store = Store(COMPRESSED)
    for number in range(20):
        put(store, website(f"site-{number}", 1))
    put(store, website("a", 2))
    assert store.get(KEY) == website("a", 2)
    put(store, website("a", 3, filler=filler))
    assert store.get(KEY) == website("a", 3, filler=filler)
    assert put(store, website("a", 4)) == website("a", 3, filler=filler)
    assert store.remove(KEY) == website("a", 4)
    assert store.raw(KEY) is None


def test_what_was_there_before_compression_began_is_compressed_with_what_comes() -> None:
    store = Store(COMPRESSED)
    objects = [website(f"site-{number:03}", number, filler=500) for number in range(200)]
    for number, obj in enumerate(objects):
        store.learn(obj)
        assert store.is_packing == (number >= 9)
    assert {key: store.raw(key) for key in store} == {obj.meta.key: obj.raw for obj in objects}
    assert store.stored_bytes() < 0.3 * sum(len(obj.raw) for obj in objects)


@pytest.mark.parametrize("owned", [False, True])
def test_memory_per_object_is_the_bytes_and_a_little(owned: bool) -> None:
    count, store = 5000, Store()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        size = 0
        for number in range(count):
            obj = website(
                f"site-{number:06}", number, owner=f"uid-{number:032}" if owned else "", filler=1000
            )
            size += len(obj.raw)
            put(store, obj)
            del obj
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    overhead_bytes = (after - before - size) / count
    print(f"overhead {overhead_bytes:.0f} bytes per object, owned={owned}")
    assert overhead_bytes < (450 if owned else 260)
