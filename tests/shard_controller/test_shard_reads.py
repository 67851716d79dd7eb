"""What a context shows of the cache: owned and watched objects, by name and all of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import structlog

import shard_controller as sc
from kubeio.clock import ManualClock
from kubeio.decoding import object_from
from kubeio.errors import InputError
from kubeio.models import HasMeta, Object, ObjectKey
from kubeio.resource import ApiResource
from shard_controller.api.context import Context
from shard_controller.api.session import ReconcileSession
from shard_controller.objects.caches import Caches, ReadOnlyCache, ResourceCache, is_controlled
from shard_controller.shard.identities import unnamed
from shard_controller.shard.ownership import ExclusiveOwnership
from shard_controller.shard.writer import FencedWriter
from tests.shard_controller.objects import CONFIGMAPS, SECRETS, WEBSITES, reference

NODES = ApiResource("", "v1", "nodes", "Node", namespaced=False)
PAGES = sc.Resource("configmaps/v1", dict)
CERTIFICATES = sc.Resource("secrets/v1", dict)
MACHINES = sc.Resource("nodes/v1", dict)
unused: Any = None  # nothing is written here


def show(kind: ResourceCache, name: str, *, namespace: str = "ns", controller: str = "") -> None:
    """The watch shows an object."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "ownerReferences": [reference(controller)] if controller else [],
    }
    kind.store.learn(object_from(json.dumps({"metadata": metadata}).encode()))


@pytest.fixture
def ctx() -> Context[Any]:
    """The context of ns/blog; it owns two pages, and certificates and machines are watched."""
    sites, pages = ResourceCache(WEBSITES), ResourceCache(CONFIGMAPS)
    certificates, machines = (
        ReadOnlyCache(sc.Watch(declared, map=lambda _: []), resource)
        for declared, resource in ((CERTIFICATES, SECRETS), (MACHINES, NODES))
    )
    show(sites, "blog")
    for name, controller in (("two", "blog"), ("one", "blog"), ("theirs", "shop")):
        show(pages, name, controller=controller)
    for name, namespace in (("b", "ns"), ("a", "ns"), ("c", "other")):
        show(certificates, name, namespace=namespace)
    show(machines, "rack-1", namespace="")
    return context_of(Caches(sites, [pages], [certificates, machines], {PAGES.text: pages}))


def context_of(caches: Caches) -> Context[Any]:
    """The context of the first site in *caches*."""
    writer = FencedWriter(
        unnamed(unused),
        ExclusiveOwnership("a-1"),
        leases=None,
        field_manager="test",
        observers=(),
        spans=None,
        clock=ManualClock(),
        rng=unused,
    )
    current = caches.primary.get(next(iter(caches.primary.store)))
    assert current is not None
    return Context(None, ReconcileSession(current, caches, writer, unused, structlog.get_logger()))


def names(found: Any) -> list[str]:
    return [each["metadata"]["name"] for each in found]


def test_watched_objects_are_those_of_the_object_s_namespace_by_default(ctx: Context[Any]) -> None:
    assert names(ctx.list(CERTIFICATES)) == ["a", "b"]
    assert names(ctx.list(CERTIFICATES, namespace="other")) == ["c"]
    assert names(ctx.list(CERTIFICATES, namespace="")) == ["a", "b", "c"]
    assert ctx.get(CERTIFICATES, "c") is None
    assert ctx.get(CERTIFICATES, "c", namespace="other") is not None


def test_a_watched_object_that_does_not_fit_is_left_out_and_logged_once(ctx: Context[Any]) -> None:
    watched = ctx._session.caches.watched[CERTIFICATES.text]
    data = "[" * 200_000 + "]" * 200_000  # deeper than any Python decodes
    deep = f'{{"metadata":{{"name":"aa","namespace":"ns","resourceVersion":"5"}},"data":{data}}}'
    watched.store.learn(object_from(deep.encode()))
    with structlog.testing.capture_logs() as logged:
        assert names(ctx.list(CERTIFICATES)) == ["a", "b"]
        assert names(ctx.list(CERTIFICATES, namespace="")) == ["a", "b", "c"]
    (reported,) = logged
    assert (reported["object"], reported["error"]) == ("ns/aa", "ns/aa: Nested too deep to be decoded")


def test_cluster_scoped_objects_have_no_namespace(ctx: Context[Any]) -> None:
    assert names(ctx.list(MACHINES)) == ["rack-1"]
    assert ctx.get(MACHINES, "rack-1") is not None


def test_of_an_owned_resource_only_what_the_object_controls_is_shown(ctx: Context[Any]) -> None:
    assert names(ctx.list(PAGES)) == ["one", "two"]
    assert ctx.get(PAGES, "one") is not None
    assert ctx.get(PAGES, "theirs") is None


@pytest.mark.parametrize(
    "change", [{"namespace": "theirs"}, {"kind": "Blog"}, {"api_version": "other.com/v1"}, {"uid": "uid-x"}]
)
def test_a_child_is_an_object_whose_reference_fits_in_uid_kind_and_namespace(
    ctx: Context[Any], change: dict[str, str]
) -> None:
    """Who knows the uid of another's object cannot plant children below it."""
    pages = ctx._session.caches.controlled[0]
    one = pages.meta(ObjectKey("ns", "one"))
    assert one is not None
    assert is_controlled(one, by=ctx.meta, of=WEBSITES)
    reference = msgspec.structs.replace(
        one.owner_references[0], **{name: value for name, value in change.items() if name != "namespace"}
    )
    planted = msgspec.structs.replace(
        one,
        name="planted",
        uid="uid-planted",
        namespace=change.get("namespace", "ns"),
        owner_references=[reference],
    )
    pages.store.learn(Object(planted, msgspec.json.encode(HasMeta(planted))))
    assert [meta.name for meta in pages.children(ctx.meta, of=WEBSITES)] == ["one", "two"]
    assert {meta.name for _, meta in ctx._session.caches.tree(ctx._session.caches.primary, ctx.meta)} == {
        "one",
        "two",
    }


async def test_what_is_watched_cannot_be_written(ctx: Context[Any]) -> None:
    with pytest.raises(InputError, match=r"'secrets/v1' is read-only.*ctx\.unfenced"):
        await ctx.apply(CERTIFICATES, "a", {})


def test_an_undeclared_resource_is_refused(ctx: Context[Any]) -> None:
    undeclared = sc.Resource("pods/v1", dict)
    for ask in (lambda: ctx.get(undeclared, "a"), lambda: ctx.list(undeclared)):
        with pytest.raises(InputError, match=r"'pods/v1' is not declared.*owns=\[\.\.\.\].*sc\.Watch"):
            ask()


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (("", "note"), "event reason=''"),
        (("R" * 129, "note"), "1 to 128 characters"),
        (("Reason", "note", "Error"), "'Normal' or 'Warning'"),
    ],
)
def test_an_event_that_the_server_would_refuse_is_refused_at_once(
    ctx: Context[Any], event: tuple[Any, ...], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        ctx.event(*event)


@pytest.mark.parametrize("reason", ["", "two words", "9th", "R" * 129])
def test_a_permanent_error_has_a_reason_that_a_condition_can_have(reason: str) -> None:
    with pytest.raises(ValueError, match="one word in CamelCase"):
        sc.PermanentError("why", reason=reason)


def test_objects_are_listed_by_an_index() -> None:
    declared = sc.Resource(
        "secrets/v1", dict, indexes={"first-letter": lambda secret: [secret["metadata"]["name"][0]]}
    )
    watched = ReadOnlyCache(sc.Watch(declared, map=lambda _: []), SECRETS)
    sites = ResourceCache(WEBSITES)
    show(sites, "blog")
    for name, namespace in (("apple", "ns"), ("avocado", "ns"), ("banana", "ns"), ("almond", "other")):
        show(watched, name, namespace=namespace)
    ctx = context_of(Caches(sites, [], [watched]))

    def listed(letter: str, **where: str) -> list[str]:
        return [
            each["metadata"]["name"] for each in ctx.list(declared, index=("first-letter", letter), **where)
        ]

    assert listed("a") == ["apple", "avocado"]
    assert listed("a", namespace="") == ["apple", "avocado", "almond"]
    assert listed("z") == []
    with pytest.raises(InputError, match="is no index of secrets"):
        ctx.list(declared, index=("by-node", "n"))


async def test_what_the_cache_does_not_hold_is_not_written_over(ctx: Context[Any]) -> None:
    """Of these objects only metadata is kept: the server may have a status that nobody here has seen."""
    with pytest.raises(InputError, match=r"does not show status of websites\.example\.com"):
        await ctx.patch_status({"phase": "Ready"})
    with pytest.raises(InputError, match=r"does not show spec of websites\.example\.com"):
        await ctx.patch({"spec": {"html": "x"}})
