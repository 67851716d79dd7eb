"""What the trees keep of each object: the same objects, by the same rules, as a store that keeps all of each."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from kubeio.models import Meta, Object, ObjectKey
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.watches.store import Store
from proxy.informers import TreeStore
from proxy.kinds import TreeKind
from proxy.trees import Trees

SHARD = "web-0-00000001"
KEYS = RingKeys("web")
WEBSITES = TreeKind(
    ApiResource("example.com", "v1", "websites", kind="Website", namespaced=True), is_main=True
)


def website(name: str, version: int, *, uid: str = "") -> Object:
    labels = {KEYS.shard: SHARD, KEYS.visible: SHARD}
    meta = Meta(
        name, "ns", uid=uid or f"uid-{name:>032}", resource_version=str(version), labels=labels,
        creation_timestamp="2026-11-24T10:00:00Z",
    )  # fmt: skip
    return Object(meta, b'{"metadata":{"name":"%b","namespace":"ns","uid":"%b","resourceVersion":"%d"}}' % (
        name.encode(), meta.uid.encode(), version
    ))  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["learn", "remove", "vanish"]),
            st.sampled_from(["a", "b", "c"]),
            st.integers(1, 9),
            st.sampled_from(["u1", "u2"]),
        )
    )
)
def test_trees_know_the_objects_that_a_store_knows(history: list[tuple[str, str, int, str]]) -> None:
    trees, store = Trees(SHARD, since=""), Store()
    kept = TreeStore(trees, WEBSITES, keys=KEYS)
    uids: dict[tuple[str, int], str] = {}
    for action, name, version, uid in history:
        if action == "learn":
            # a version belongs to one object
            obj = website(name, version, uid=name + uids.setdefault((name, version), uid))
            found, expected = kept.learn(obj), store.learn(obj)
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                assert (found.old is None) == (expected.old is None)
        else:
            key, as_of = ObjectKey("ns", name), str(version) if action == "remove" else ""
            gone, known = kept.remove(key, as_of=as_of), store.remove(key, as_of=as_of)
            assert (None if gone is None else gone.meta.resource_version) == (
                None if known is None else known.meta.resource_version
            )
        assert {key: _version(trees, key) for key in kept} == {
            key: meta.resource_version for key in store if (meta := store.meta(key)) is not None
        }
        assert len(trees) == trees.counts().get(WEBSITES.name, 0) == len(store)


def _version(trees: Trees, key: ObjectKey) -> str:
    node = trees.find(WEBSITES.name, key)
    assert node is not None
    return node.resource_version


def test_memory_per_object_is_a_node() -> None:
    count, trees = 5000, Trees(SHARD, since="")
    kept = TreeStore(trees, WEBSITES, keys=KEYS)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            kept.learn(website(f"site-{number:06}", number + 1))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    per_object = (after - before) / count
    print(f"{per_object:.0f} bytes per object")
    assert per_object < 600
