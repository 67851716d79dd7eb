"""Keys of objects: the protocol's section 3."""

from __future__ import annotations

from kubeio.models import Meta, OwnerReference
from kubeio.resource import Resource
from sharder.keys import Controlled, Outsider, RingKinds, Root
from sharder.spec import GroupResource, RingResource
from tests.sharder.pure.story import make_spec

WEBSITES = Resource("example.com", "v1", "websites", "Website")
CLUSTERS = Resource("example.com", "v1", "clusters", "Cluster", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
KINDS = [WEBSITES, CLUSTERS, SECRETS, CONFIGMAPS]


def named(resource: Resource) -> GroupResource:
    return GroupResource(resource.group, resource.plural)


RING = RingKinds(
    make_spec(
        resources=(
            RingResource(named(WEBSITES), (named(CONFIGMAPS),)),
            RingResource(named(CLUSTERS), (named(CONFIGMAPS),)),
            RingResource(named(SECRETS)),
        )
    ),
    {named(kind): kind for kind in KINDS},
)


def child(api_version: str, kind: str, *, controller: bool = True) -> Meta:
    reference = OwnerReference(api_version, kind, "shop", "u1", controller=controller)
    return Meta(name="c", namespace="ns", owner_references=[reference])


def test_an_object_s_key_is_group_namespace_and_name() -> None:
    assert RING.role(WEBSITES, Meta(name="shop", namespace="ns")) == Root("example.com_ns_shop")


def test_the_core_group_is_empty_in_a_key() -> None:
    assert RING.role(SECRETS, Meta(name="s", namespace="ns")) == Root("_ns_s")


def test_a_cluster_scoped_object_s_namespace_is_empty_in_its_key() -> None:
    assert RING.role(CLUSTERS, Meta(name="eu")) == Root("example.com__eu")


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
