"""How a declared resource is kept: its form, its indexes, and what becomes of objects that a function fails for."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
import structlog.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import shard_controller as sc
from kubeio.decoding import object_from
from kubeio.errors import InputError
from kubeio.models import Object, ObjectKey
from kubeio.watches.store import Change
from shard_controller.objects.caches import ResourceCache
from shard_controller.shard.ownership import ExclusiveOwnership
from tests.shard_controller.objects import WEBSITES

NAMES = st.sampled_from("abcd")
SECRETS = st.lists(st.sampled_from("xyz"), max_size=3)


class Spec(msgspec.Struct):
    secrets: list[str]


class Site(msgspec.Struct):
    spec: Spec


def secrets(site: Site) -> list[str]:
    return site.spec.secrets


def site(name: str, version: int, names: object = (), **spec: object) -> Object:
    document = {
        "metadata": {
            "labels": {"app": "web"},
            "managedFields": [{"manager": "x"}],
            "name": name,
            "namespace": "ns",
            "resourceVersion": str(version),
            "uid": f"uid-{name}",
        },
        "spec": {"secrets": names, **spec},
    }
    return object_from(json.dumps(document).encode())


def kind(**options: Any) -> ResourceCache:
    declared = sc.Resource("websites.example.com/v1", Site, **{"indexes": {"by-secret": secrets}, **options})
    return ResourceCache(WEBSITES, declared=declared)


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def learn(into: ResourceCache, found: Object) -> Change | None:
    change = into.store.learn(found)
    if change is not None:
        into.shown(change)
    return change


def test_objects_are_found_by_what_their_model_says() -> None:
    sites = kind()
    learn(sites, site("b", 1, ["x", "y", "x"]))
    learn(sites, site("a", 2, ["x"]))
    assert sites.by_index("by-secret", "x") == [key("a"), key("b")]
    assert sites.by_index("by-secret", "y") == [key("b")]
    assert sites.by_index("by-secret", "z") == []
    learn(sites, site("b", 3, ["z"]))
    sites.store.remove(key("a"))
    assert sites.by_index("by-secret", "x") == []
    assert sites.by_index("by-secret", "z") == [key("b")]


def test_an_index_that_is_not_declared_is_named_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"'by-name' is no index of websites\.example\.com; declare it"):
        kind().by_index("by-name", "x")


def test_own_writes_are_found_before_the_watch_shows_them() -> None:
    sites = kind()
    learn(sites, site("a", 1, ["x"]))
    sites.wrote(site("a", 2, ["y"]))
    assert sites.by_index("by-secret", "x") == []
    assert sites.by_index("by-secret", "y") == [key("a")]
    learn(sites, site("a", 3, ["z"]))
    assert sites.by_index("by-secret", "y") == []
    assert sites.by_index("by-secret", "z") == [key("a")]


def test_an_object_that_does_not_fit_the_model_is_in_no_index_and_stops_no_other() -> None:
    sites = kind()
    with structlog.testing.capture_logs() as logs:
        learn(sites, site("bad", 1, {"password": "hunter2"}))
        learn(sites, site("good", 2, ["x"]))
    assert sites.by_index("by-secret", "x") == [key("good")]
    assert sites.store.meta(key("bad")) is not None
    (reported,) = logs
    assert reported["object"] == "ns/bad"
    assert reported["function"] == "index by-secret"
    assert "$.spec.secrets" in reported["error"]
    assert "hunter2" not in str(reported)
    learn(sites, site("bad", 3, ["x"]))
    assert len(sites.by_index("by-secret", "x")) == 2


@pytest.mark.parametrize(
    "function", [lambda found: "text", lambda found: [1], lambda found: 1 / 0, lambda found: None]
)
def test_an_index_function_that_gives_no_values_is_logged_and_stops_no_other(
    function: Callable[[Site], Iterable[str]],
) -> None:
    sites = kind(indexes={"bad": function, "by-secret": secrets})
    with structlog.testing.capture_logs() as logs:
        learn(sites, site("a", 1, ["x"]))
    assert [reported["function"] for reported in logs] == ["index bad"]
    assert sites.by_index("by-secret", "x") == [key("a")]


# -- forms


def test_managed_fields_are_not_kept_in_any_form() -> None:
    for stored in ("auto", "raw", "compressed", "metadata"):
        sites = ResourceCache(WEBSITES, declared=sc.Resource("w/v1", dict, stored=stored))
        learn(sites, site("a", 1))
        assert b"managedFields" not in (sites.store.raw(key("a")) or b"managedFields")


@pytest.mark.parametrize(("stored", "packs"), [("raw", False), ("auto", False), ("compressed", True)])
def test_objects_are_compressed_as_declared(stored: Any, packs: bool) -> None:
    sites = kind(stored=stored)
    for number in range(1500):
        learn(sites, site(f"site-{number}", number, ["x"]))
    assert sites.store.is_packing is packs
    assert len(sites.by_index("by-secret", "x")) == 1500
    found = sites.get(key("site-7"))
    assert found is not None
    assert json.loads(found.raw)["spec"] == {"secrets": ["x"]}


def test_auto_compresses_many_objects_that_shrink() -> None:
    sites = kind(stored="auto", indexes={})
    for number in range(10_001):
        learn(sites, site(f"site-{number}", number))
        if number == 9_998:
            assert not sites.store.is_packing
    assert sites.store.is_packing


def test_what_no_controller_declares_is_watched_by_its_metadata() -> None:
    assert ResourceCache(WEBSITES).is_metadata_only
    assert not kind().is_metadata_only
    assert ResourceCache(WEBSITES, declared=sc.Resource("w/v1", dict, stored="metadata")).is_metadata_only


def without_html(raw: bytes) -> bytes:
    document = json.loads(raw)
    document["spec"].pop("html", None)
    document["metadata"].pop("annotations", None)
    return json.dumps(document).encode()


def test_a_transform_decides_what_is_kept() -> None:
    sites = kind(transform=without_html)
    learn(sites, site("a", 1, ["x"], html="<p>"))
    assert b"<p>" not in (sites.store.raw(key("a")) or b"<p>")
    assert sites.by_index("by-secret", "x") == [key("a")]
    assert learn(sites, site("a", 1, ["x"], html="<p>")) is None, "the same version tells nothing new"


def test_a_transform_cannot_take_the_ring_s_annotation_away() -> None:
    declared = sc.Resource("websites.example.com/v1", Site, transform=without_html)
    sites = ResourceCache(WEBSITES, declared=declared, keeps=frozenset({"turn.ring"}))
    came = site("a", 1, ["x"], html="<p>")
    came.meta.annotations |= {"turn.ring": "7", "notes": "long"}
    document = json.loads(came.raw)
    document["metadata"]["annotations"] = came.meta.annotations
    learn(sites, Object(came.meta, json.dumps(document).encode()))
    kept = sites.get(key("a"))
    assert kept is not None
    assert kept.meta.annotations == {"turn.ring": "7"}
    assert b"<p>" not in kept.raw


def without(field: str) -> Callable[[bytes], bytes]:
    def transform(raw: bytes) -> bytes:
        document = json.loads(raw)
        del document["metadata"][field]
        return json.dumps(document).encode()

    return transform


@pytest.mark.parametrize(
    "transform",
    [
        without("resourceVersion"),
        without("uid"),
        without("name"),
        without("labels"),
        lambda raw: b"not json",
        lambda raw: b" " + raw,
        lambda raw: raw.decode(),
    ],
)
def test_a_transform_that_breaks_an_object_is_logged_and_the_object_is_kept_as_it_came(
    transform: Callable[[bytes], bytes],
) -> None:
    sites = kind(transform=transform)
    with structlog.testing.capture_logs() as logs:
        learn(sites, site("a", 1, ["x"]))
    assert [(reported["object"], reported["function"]) for reported in logs] == [("ns/a", "transform")]
    found = sites.get(key("a"))
    assert found is not None
    assert found.meta.resource_version == "1"
    assert sites.by_index("by-secret", "x") == [key("a")]


# -- memory


@pytest.mark.parametrize("stored", ["raw", "compressed"])
def test_changes_do_not_grow_memory(stored: Any) -> None:
    """Names come and go, indexed values too; what remains after eight rounds is what was there after three."""
    sites = kind(stored=stored)
    ownership = ExclusiveOwnership("a-1")
    version = 0
    held: list[int] = []
    for number in range(1100):
        learn(sites, site(f"stays-{number}", 0, ["x"]))
    tracemalloc.start()
    try:
        for round_ in range(8):
            for number in range(120):
                version += 1
                learn(sites, site(f"stays-{number}", version, [f"secret-{version}"]))
                learn(sites, site(f"round-{round_}-{number}", version, [f"secret-{version}"]))
                sites.wrote(site(f"stays-{number}", version, ["y"]))
                gone = key(f"round-{round_}-{number}")
                ownership.was_missing(sites, gone, shown=sites.meta(gone))
            for number in range(120):
                sites.store.remove(key(f"round-{round_}-{number}"))
            ownership.forget(sites, version + 1)
            sites.forget(version + 1)
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(sites.store) == 1100
    print(f"{stored}: {held}")
    assert held[-1] - held[2] < 10_000, "1,200 changes since then: 8 bytes for each"


# -- every history


class IndexMachine(RuleBasedStateMachine):
    """The index against a dict, over news, removals and relists, with own writes that the watch has yet to show."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = kind()
        self.version = 10
        self.seen: dict[str, tuple[int, list[str]]] = {}
        self.own: dict[str, tuple[int, list[str]]] = {}

    def _next(self, name: str, names: list[str]) -> Object:
        self.version += 1
        return site(name, self.version, names)

    def _show(self, found: Object, names: list[str]) -> None:
        learn(self.kind, found)
        self.seen[found.meta.name] = (int(found.meta.resource_version), names)
        self.own.pop(found.meta.name, None)

    @rule(name=NAMES, names=SECRETS)
    def is_shown(self, name: str, names: list[str]) -> None:
        self._show(self._next(name, names), names)

    @rule(name=NAMES, names=SECRETS)
    def writes(self, name: str, names: list[str]) -> None:
        answer = self._next(name, names)
        self.kind.wrote(answer)
        if name in self.seen or name in self.own:
            self.own[name] = (self.version, names)

    @rule(name=NAMES)
    def is_removed(self, name: str) -> None:
        self.version += 1
        self._remove(name, as_of=self.version)

    @rule(name=NAMES)
    def old_removal_comes(self, name: str) -> None:
        """The removal of an object that an own write has made anew since."""
        if name in self.seen and name in self.own:
            self._remove(name, as_of=self.own[name][0] - 1)

    def _remove(self, name: str, *, as_of: int) -> None:
        if self.seen.get(name, (0, []))[0] > as_of:
            return
        known = self.kind.store.remove(key(name), as_of=str(as_of))
        self.kind.shown(Change(key(name), known.meta if known else None, None, str(as_of)))
        self.seen.pop(name, None)
        if name in self.own and self.own[name][0] <= as_of:
            del self.own[name]

    @rule(name=NAMES, names=SECRETS)
    def old_news_come(self, name: str, names: list[str]) -> None:
        if name in self.seen:
            assert (
                learn(self.kind, site(name, self.seen[name][0] - 1, names)) is None or self.seen[name][0] <= 1
            )

    @rule(data=st.data())
    def is_listed_again(self, data: st.DataObject) -> None:
        """As an informer takes a list: everything in it, then what was not in it leaves."""
        listed = data.draw(st.dictionaries(NAMES, SECRETS))
        for name, names in listed.items():
            self._show(self._next(name, names), names)
        for name in set(self.seen) - set(listed):
            self.is_removed(name)

    @invariant()
    def index_equals_the_dict(self) -> None:
        newest = {**self.seen, **self.own}
        for value in "xyz":
            expected = sorted(key(name) for name, (_, names) in newest.items() if value in names)
            assert self.kind.by_index("by-secret", value) == expected


IndexMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
test_the_index_equals_a_plain_dict_after_any_history = IndexMachine.TestCase
