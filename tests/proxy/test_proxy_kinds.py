"""Which kinds the trees of a ring are made of, and what is a root."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from kubeio.errors import InputError
from kubeio.models import GroupResource, OwnerReference
from kubeio.resource import ApiResource
from kubeio.shard.ring import RingView
from proxy.kinds import TreeKind, tree_kinds

APPS = {
    "deployments": ["replicasets"],
    "replicasets": ["pods"],
    "statefulsets": ["pods", "controllerrevisions"],
}


def view(resources: dict[str, list[str]], *, key: str = "Owner") -> RingView:
    """A ring whose kinds are all of one group."""
    entries = [
        {
            "group": "apps",
            "resource": main,
            "controlledResources": [{"group": "apps", "resource": each} for each in below],
        }
        for main, below in resources.items()
    ]
    spec: dict[str, Any] = {"leaseNamespace": "rings", "key": key, "resources": entries}
    return msgspec.convert({"metadata": {"name": "r"}, "spec": spec}, RingView)


def above(ring: RingView, *mains: str, leaves: Collection[str] = ()) -> dict[str, set[str]]:
    """What may control each kind, without groups."""
    found = tree_kinds(ring, [f"{main}.apps" for main in mains], {f"{leaf}.apps" for leaf in leaves})
    return {kind.resource: {each.resource for each in parents} for kind, parents in found.items()}


def test_all_that_the_ring_distributes_is_worked() -> None:
    assert above(view(APPS)) == {
        "deployments": set(),
        "replicasets": {"deployments", "replicasets"},
        "statefulsets": set(),
        "pods": {"replicasets", "pods", "statefulsets", "controllerrevisions"},
        "controllerrevisions": {"pods", "controllerrevisions", "statefulsets"},
    }


def test_some_of_it_is_worked_with_all_that_is_below() -> None:
    assert list(above(view(APPS), "deployments")) == ["deployments", "replicasets", "pods"]
    assert list(above(view(APPS), "statefulsets")) == ["statefulsets", "pods", "controllerrevisions"]


def test_without_the_key_owner_only_what_is_distributed_controls() -> None:
    found = above(view({"sites": ["pages"], "shops": []}, key="Object"), leaves={"pages"})
    assert found == {"sites": set(), "shops": set(), "pages": {"sites"}}


def test_a_resource_that_the_ring_does_not_distribute_is_named() -> None:
    with pytest.raises(InputError, match=r"--resources: 'pods.apps' is not distributed by the ring"):
        above(view(APPS), "deployments", "pods")


def test_a_key_that_tears_trees_apart_is_named() -> None:
    with pytest.raises(InputError, match=r"spec.key: 'Object' tears trees apart: pages.apps may control"):
        above(view({"sites": ["pages"]}, key="Object"))


def test_a_leaf_that_is_not_controlled_is_named() -> None:
    with pytest.raises(InputError, match=r"--leaves: 'shops.apps' is controlled by nothing in this ring"):
        above(view({"sites": ["pages"], "shops": []}), leaves={"shops"})


SERVICES = ApiResource("", "v1", "services", "Service")


@pytest.mark.parametrize(
    ("kind", "api_version", "is_root"),
    [
        ("", "", True),
        ("Website", "example.com/v1", False),
        ("Website", "example.com/v1beta1", False),
        ("Website", "other.example.com/v1", True),
        ("Service", "v1", True),
    ],
)
def test_what_no_kind_of_the_ring_controls_is_a_root(kind: str, api_version: str, is_root: bool) -> None:
    """Also below a namesake of a kind of the ring, as the sharder sees it."""
    tree_kind = TreeKind(SERVICES, is_main=True, above=frozenset({("example.com", "Website")}))
    owner = OwnerReference(api_version, kind, "x", "uid", controller=True) if kind else None
    assert tree_kind.is_root(owner) is is_root
    assert not TreeKind(SERVICES, above=tree_kind.above).is_root(owner)


def test_kinds_are_told_apart_by_their_group() -> None:
    ring = view({"sites": []})
    assert list(tree_kinds(ring, [], ())) == [GroupResource("apps", "sites")]
