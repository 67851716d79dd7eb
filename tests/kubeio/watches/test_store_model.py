"""The store against a naive model of it, in every form: hypothesis searches for a history in which they differ."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubeio.models import HasMeta, Object, ObjectKey
from kubeio.watches.storage import PLAIN, RAW, StoredForm
from kubeio.watches.store import Store

NAMES = st.sampled_from("abcdefg")
VERSIONS = st.integers(1, 40)
PARENTS = ["", "uid-p", "uid-q"]
TAGS = ["red", "green", "blue"]


def without_noise(raw: bytes) -> bytes:
    document = json.loads(raw)
    document["spec"].pop("noise", None)
    return json.dumps(document).encode()


FORMS = {
    "plain": PLAIN,
    "raw": RAW,
    "compressed": StoredForm(strips=True, compress_from_objects=3, compress_from_bytes=10_000),
    "compressed early": StoredForm(strips=True, compress_from_objects=100, compress_from_bytes=1),
    "transformed": StoredForm(
        strips=True, transform=without_noise, compress_from_objects=2, compress_from_bytes=1
    ),
}
_decoder = msgspec.json.Decoder(HasMeta)


def document(name: str, version: int) -> dict[str, Any]:
    """What the object *name* is like in *version*: the same each time."""
    parent = PARENTS[version % 3]
    owner = {"apiVersion": "v1", "kind": "P", "name": "p", "uid": parent, "controller": True}
    return {
        "metadata": {
            "managedFields": [{"manager": "x"}],
            "name": name,
            "namespace": "default",
            "ownerReferences": [owner] if parent else [],
            "resourceVersion": str(version),
            "uid": f"uid-{name}",
        },
        "spec": {
            "noise": "n" * version,
            "tags": [tag for bit, tag in enumerate(TAGS) if version >> bit & 1],
        },
    }


def tags(raw: bytes) -> list[str]:
    found = json.loads(raw)
    if found["metadata"]["resourceVersion"] == "13":
        raise LookupError("this version cannot be indexed")
    return [*found["spec"]["tags"]]


class StoreMachine(RuleBasedStateMachine):
    @initialize(form=st.sampled_from(sorted(FORMS)))
    def begin(self, form: str) -> None:
        self.form = form
        self.faults: list[str] = []
        self.store = Store(
            FORMS[form],
            indexes={"tag": tags},
            on_fault=lambda key, what, error: self.faults.append(what),
        )
        self.known: dict[str, int] = {}

    @rule(name=NAMES, version=VERSIONS)
    def learn(self, name: str, version: int) -> None:
        raw = json.dumps(document(name, version)).encode()
        change = self.store.learn(Object(_decoder.decode(raw).metadata, raw))
        before = self.known.get(name)
        if before is not None and version <= before:
            assert change is None
            return
        assert change is not None
        assert change.new is not None
        assert change.new.resource_version == str(version)
        assert (change.old.resource_version if change.old else None) == (str(before) if before else None)
        self.known[name] = version

    @rule(name=NAMES, version=st.one_of(st.none(), VERSIONS))
    def remove(self, name: str, version: int | None) -> None:
        known = self.known.get(name)
        removed = self.store.remove(ObjectKey("default", name), as_of=str(version or ""))
        if known is None or (version is not None and version < known):
            assert removed is None
            return
        assert removed is not None
        assert removed.meta.resource_version == str(known)
        del self.known[name]

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def read_twice(self, data: st.DataObject) -> None:
        key = ObjectKey("default", data.draw(st.sampled_from(sorted(self.known))))
        first = self.store.get(key)
        assert first is not None
        first.meta.labels["changed"] = "by the reader"
        assert "changed" not in (self.store.meta(key) or first.meta).labels

    @invariant()
    def looks_like_the_model(self) -> None:
        assert {key.name for key in self.store} == set(self.known)
        for name, version in self.known.items():
            assert ObjectKey("default", name) in self.store
            assert json.loads(self.store.raw(ObjectKey("default", name)) or b"null") == self._kept(
                name, version
            )

    @invariant()
    def indexes_follow(self) -> None:
        for parent in PARENTS[1:]:
            owned = {name for name, version in self.known.items() if PARENTS[version % 3] == parent}
            assert {key.name for key in self.store.children(parent)} == owned
        for bit, tag in enumerate(TAGS):
            tagged = {name for name, version in self.known.items() if version >> bit & 1 and version != 13}
            assert {key.name for key in self.store.by_index("tag", tag)} == tagged
        assert set(self.faults) <= {"index tag"}

    def _kept(self, name: str, version: int) -> dict[str, Any]:
        kept = document(name, version)
        if self.form != "plain":
            del kept["metadata"]["managedFields"]
        if self.form == "transformed":
            del kept["spec"]["noise"]
        return kept


StoreMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_any_history_of_news_looks_like_the_naive_store_in_every_form = StoreMachine.TestCase
