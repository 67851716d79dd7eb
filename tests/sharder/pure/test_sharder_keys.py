"""Keys of objects: the protocol's section 3."""

from __future__ import annotations

import msgspec
import pytest

from kubeio.models import GroupResource, Meta, OwnerReference
from kubeio.resource import ApiResource
from sharder.membership.shards import ShardState
from sharder.planning.decisions import NOTHING
from sharder.planning.keys import Controlled, Outsider, RingKinds, Root, essential
from sharder.planning.planner import Subject, Terms, plan
from sharder.ringspec.spec import KeyKind, RingResource
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import KEYS, make_meta, make_view

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CLUSTERS = ApiResource("example.com", "v1", "clusters", "Cluster", namespaced=False)
SECRETS = ApiResource("", "v1", "secrets", "Secret")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
KINDS = [WEBSITES, CLUSTERS, SECRETS, CONFIGMAPS]


def named(resource: ApiResource) -> GroupResource:
    return GroupResource(resource.group, resource.plural)


MIXED = RingKinds(
    make_spec(
        resources=(RingResource(named(WEBSITES), (named(CLUSTERS),)), RingResource(named(CLUSTERS))),
        key=KeyKind.OWNER,
    ),
    {named(kind): kind for kind in KINDS},
)


def child(api_version: str, kind: str, *, controller: bool = True) -> Meta:
    reference = OwnerReference(api_version, kind, "shop", "u1", controller=controller)
    return Meta(name="c", namespace="ns", owner_references=[reference])


ENTRIES = (
    RingResource(named(WEBSITES), (named(CONFIGMAPS),)),
    RingResource(named(CLUSTERS), (named(CONFIGMAPS),)),
    RingResource(named(SECRETS)),
)


def kinds(key: KeyKind, *entries: RingResource, label: str = "") -> RingKinds:
    spec = make_spec(resources=entries or ENTRIES, key=key, key_label=label)
    return RingKinds(spec, {named(kind): kind for kind in KINDS})


RING = kinds(KeyKind.OBJECT)


def tenant(meta: Meta, value: str) -> Meta:
    return msgspec.structs.replace(meta, labels={"tenant": value})


SHOP, EU, CORE = Meta(name="shop", namespace="ns"), Meta(name="eu"), Meta(name="s", namespace="ns")


@pytest.mark.parametrize(
    ("key", "resource", "meta", "expected"),
    [
        pytest.param("object", WEBSITES, SHOP, "example.com_ns_shop", id="group-namespace-name"),
        pytest.param("object", SECRETS, CORE, "_ns_s", id="core-group-is-empty"),
        pytest.param("object", CLUSTERS, EU, "example.com__eu", id="cluster-scoped-namespace-is-empty"),
        pytest.param("namespace", WEBSITES, SHOP, "_ns_", id="all-of-a-namespace-together"),
        pytest.param("namespace", SECRETS, CORE, "_ns_", id="of-any-kind"),
        pytest.param("namespace", CLUSTERS, EU, "example.com__eu", id="but-for-cluster-scoped"),
        pytest.param("label", WEBSITES, tenant(SHOP, "acme"), "=acme", id="all-of-a-value-together"),
        pytest.param("label", SECRETS, tenant(CORE, "acme"), "=acme", id="of-any-kind-and-namespace"),
        pytest.param("label", SECRETS, CORE, "_ns_s", id="without-the-label-its-own"),
        pytest.param("label", SECRETS, tenant(CORE, ""), "_ns_s", id="with-an-empty-value-its-own"),
    ],
)
def test_the_key_of_an_object_without_a_controller(
    key: str, resource: ApiResource, meta: Meta, expected: str
) -> None:
    kind = {"object": KeyKind.OBJECT, "namespace": KeyKind.NAMESPACE, "label": KeyKind.LABEL}[key]
    ring = kinds(kind, label="tenant" if key == "label" else "")
    assert ring.role(resource, meta) == Root(expected, main=resource.group_resource)


def test_a_controlled_object_has_its_controller_s_key_whatever_version_the_reference_names() -> None:
    for version in ("v1", "v2beta3"):
        role = RING.role(CONFIGMAPS, child(f"example.com/{version}", "Website"))
        assert isinstance(role, Controlled)
        assert role.key == "example.com_ns_shop"
        assert (role.controller.resource, role.controller.namespace, role.controller.uid) == (
            WEBSITES,
            "ns",
            "u1",
        )


def test_a_cluster_scoped_controller_has_no_namespace_in_its_children_s_key() -> None:
    role = RING.role(CONFIGMAPS, child("example.com/v1", "Cluster"))
    assert isinstance(role, Controlled)
    assert (role.key, role.controller.namespace) == ("example.com__shop", "")


def test_an_object_without_a_controller_of_the_ring_is_an_outsider() -> None:
    assert RING.role(CONFIGMAPS, Meta(name="c", namespace="ns")) == Outsider()
    assert RING.role(CONFIGMAPS, child("example.com/v1", "Website", controller=False)) == Outsider()
    assert RING.role(CONFIGMAPS, child("apps/v1", "Website")) == Outsider()
    assert RING.role(CONFIGMAPS, child("v1", "Secret")) == Outsider()


def test_a_ring_s_resources_are_its_mains_and_then_each_controlled_kind_once() -> None:
    assert RING.resources == (WEBSITES, CLUSTERS, SECRETS, CONFIGMAPS)
    assert [RING.is_main(kind) for kind in KINDS] == [True, True, True, False]


# ---- other keys ---------------------------------------------------------------------------------------------------


def test_under_namespace_a_controlled_object_has_the_key_of_its_namespace() -> None:
    role = kinds(KeyKind.NAMESPACE).role(CONFIGMAPS, child("example.com/v1", "Website"))
    assert isinstance(role, Controlled)
    assert role.key == "_ns_"


def test_under_namespace_what_a_cluster_scoped_object_controls_has_its_key() -> None:
    role = kinds(KeyKind.NAMESPACE).role(CONFIGMAPS, child("example.com/v1", "Cluster"))
    assert isinstance(role, Controlled)
    assert role.key == "example.com__shop"


def test_under_label_only_the_controller_shows_the_key_of_what_it_controls() -> None:
    ring = kinds(KeyKind.LABEL, label="tenant")
    meta = child("example.com/v1", "Website")
    meta.labels = {"tenant": "other"}
    role = ring.role(CONFIGMAPS, meta)
    assert isinstance(role, Controlled)
    assert role.key is None


TREE = RingResource(named(WEBSITES), (named(CONFIGMAPS), named(SECRETS)))


def test_under_owner_what_a_root_controls_has_its_key_and_what_is_below_asks_its_controller() -> None:
    ring = kinds(KeyKind.OWNER, TREE)
    first = ring.role(CONFIGMAPS, child("example.com/v1", "Website"))
    second = ring.role(SECRETS, child("v1", "ConfigMap"))
    assert isinstance(first, Controlled)
    assert isinstance(second, Controlled)
    assert (first.key, second.key) == ("example.com_ns_shop", None)
    assert second.controller.resource == CONFIGMAPS


def test_under_owner_a_kind_that_is_distributed_and_controlled_is_a_root_only_without_controller() -> None:
    ring = kinds(
        KeyKind.OWNER,
        RingResource(named(CONFIGMAPS), (named(SECRETS),)),
        RingResource(named(WEBSITES), (named(CONFIGMAPS),)),
    )
    assert ring.role(CONFIGMAPS, Meta(name="c", namespace="ns")) == Root("_ns_c", main="configmaps")
    assert isinstance(ring.role(CONFIGMAPS, child("example.com/v1", "Website")), Controlled)
    assert ring.labelled == (WEBSITES, CONFIGMAPS, SECRETS), "what controls comes before what is controlled"


def test_kinds_that_control_each_other_are_put_in_some_order() -> None:
    ring = kinds(
        KeyKind.OWNER,
        RingResource(named(CONFIGMAPS), (named(SECRETS), named(CONFIGMAPS))),
        RingResource(named(SECRETS), (named(CONFIGMAPS),)),
    )
    assert set(ring.labelled) == {CONFIGMAPS, SECRETS}


def test_without_owner_nothing_below_the_first_level_belongs_to_the_ring() -> None:
    ring = kinds(KeyKind.OBJECT, TREE)
    assert ring.role(SECRETS, child("v1", "ConfigMap")) == Outsider()


def test_what_decisions_read_of_an_object_is_small_and_decides_the_same() -> None:
    meta = child("example.com/v1", "Website")
    meta.uid, meta.resource_version = "u9", "7"
    meta.labels = {"shard.ringleader.dev/r": "a-1", "tenant": "acme", "team": "x" * 63}
    meta.annotations = {"last-applied": "x" * 10_000}
    meta.finalizers = ["example.com/keep"]
    meta.owner_references.insert(0, OwnerReference("v1", "ConfigMap", "other", "u2"))
    small = essential(meta, ("shard.ringleader.dev/r", "tenant"))
    assert small.labels == {"shard.ringleader.dev/r": "a-1", "tenant": "acme"}
    assert (small.uid, small.resource_version, small.annotations, small.finalizers) == ("u9", "7", {}, [])
    assert RING.role(CONFIGMAPS, small) == RING.role(CONFIGMAPS, meta)


@pytest.mark.parametrize(
    "reference",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": "a%2fb"},
        {"name": "."},
        {"name": ".."},
        {"name": "x" * 10_000},
        {"uid": "u" * 10_000},
        {"api_version": "example.com/" + "v" * 10_000},
        {"api_version": "example.com/v1/v1"},
        {"api_version": ""},
        {"kind": ""},
        {"kind": "Website" * 1_000},
    ],
)
def test_a_controller_that_no_object_can_be_is_no_controller(reference: dict[str, str]) -> None:
    above = OwnerReference("example.com/v1", "Website", "shop", "u1", controller=True)
    strange = msgspec.structs.replace(above, **reference)
    assert RING.role(CONFIGMAPS, Meta(name="c", namespace="ns", owner_references=[strange])) == Outsider()


def test_an_object_without_a_namespace_has_no_controller_in_one() -> None:
    above = OwnerReference("example.com/v1", "Website", "shop", "u1", controller=True)
    strange = Meta(name="eu", owner_references=[above])
    assert MIXED.role(CLUSTERS, strange) == Root("example.com__eu", main="clusters.example.com")


def test_a_tree_belongs_to_the_main_resource_at_its_root_where_the_kinds_show_it() -> None:
    role = RING.role(CONFIGMAPS, child("example.com/v1", "Website"))
    assert isinstance(role, Controlled)
    assert (role.kind, role.main) == ("configmaps", "websites.example.com")


PAGES_OF_TWO = make_spec(
    resources=(
        RingResource(named(WEBSITES), (named(CONFIGMAPS),)),
        RingResource(named(SECRETS), (named(CONFIGMAPS),)),
    )
)
ONLY_SITES = make_spec(resources=(RingResource(named(WEBSITES), (named(CONFIGMAPS),)),))
WITHOUT_SITES = {named(kind): kind for kind in (SECRETS, CONFIGMAPS)}


def test_what_a_kind_that_is_not_served_may_control_is_left_as_it_is() -> None:
    kinds = RingKinds(PAGES_OF_TWO, WITHOUT_SITES)
    assert kinds.unserved == (named(WEBSITES),)
    assert kinds.resources == (SECRETS, CONFIGMAPS)
    page = kinds.role(CONFIGMAPS, child("example.com/v1", "Website"))
    assert page == Outsider(unserved=True)
    view = make_view({"a-1": ShardState.READY, "dead": ShardState.DEAD}, {"a": "a-1"})
    for shard, drain in ((None, None), ("a-1", None), ("dead", None), ("a-1", "")):
        subject = Subject(make_meta("c", shard=shard, drain=drain), page)
        assert plan(subject, view=view, terms=Terms(), keys=KEYS) == NOTHING
    assert isinstance(kinds.role(CONFIGMAPS, child("v1", "Secret")), Controlled)
    assert kinds.role(CONFIGMAPS, child("other.io/v1", "Website")) == Outsider()


def test_what_only_a_kind_that_is_not_served_controls_is_no_former_resource_until_the_ring_goes() -> None:
    served, worked = {named(CONFIGMAPS): CONFIGMAPS}, ONLY_SITES.resources
    assert RingKinds(ONLY_SITES, served, worked=worked).labelled == ()
    ending = RingKinds(ONLY_SITES, served, worked=worked, releasing=True)
    assert (ending.unserved, ending.labelled) == ((named(WEBSITES),), (CONFIGMAPS,))
    assert ending.role(CONFIGMAPS, child("example.com/v1", "Website")) == Outsider()
