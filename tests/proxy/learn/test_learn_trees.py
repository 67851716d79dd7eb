"""Which kinds a controller works, and what it makes for their objects."""

from __future__ import annotations

from proxy.learn.seen import Seen
from proxy.learn.trees import companions, find_trees
from tests.proxy.learn.requests import DEPLOYMENTS, ask, deployments, watches

SERVICES = "/api/v1/services"


def test_a_tree_has_its_root_where_nothing_controls_what_is_worked() -> None:
    (tree,) = find_trees(deployments())
    assert tree.root == "deployments.apps"
    assert tree.children == {"deployments.apps": ["replicasets.apps"], "replicasets.apps": ["pods"]}
    assert tree.kinds == ["deployments.apps", "replicasets.apps", "pods"]
    assert tree.leaves == ["pods"]
    assert tree.is_deep


def test_a_kind_that_is_worked_and_makes_nothing_is_a_tree_of_its_own() -> None:
    seen = watches(deployments(), "/apis/example.com/v1/websites")
    ask(seen, "PATCH", "/apis/example.com/v1/namespaces/web/websites/x/status", {})
    assert [tree.root for tree in find_trees(seen)] == ["deployments.apps", "websites.example.com"]


def test_a_kind_that_is_not_read_has_no_tree() -> None:
    seen = Seen()
    ask(seen, "PUT", f"{DEPLOYMENTS}/shop/status", {})
    assert find_trees(seen) == []


def test_what_was_made_before_the_run_counts_below_what_is_worked() -> None:
    seen = watches(Seen(), "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets")
    ask(seen, "PUT", f"{DEPLOYMENTS}/shop/status", {})
    seen.kind("replicasets.apps").earlier_owners["deployments.apps"] = 4
    (tree,) = find_trees(seen)
    assert tree.kinds == ["deployments.apps", "replicasets.apps"]


def test_what_another_controller_of_the_field_manager_made_before_does_not_count() -> None:
    seen = watches(Seen(), "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/api/v1/resourcequotas")
    seen.kind("replicasets.apps").earlier_owners["deployments.apps"] = 4
    ask(seen, "PUT", "/api/v1/namespaces/web/resourcequotas/all/status", {})
    assert [tree.kinds for tree in find_trees(seen)] == [["resourcequotas"]]


def test_without_any_write_in_the_run_earlier_ones_count() -> None:
    seen = watches(Seen(), "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets")
    seen.kind("replicasets.apps").earlier_owners["deployments.apps"] = 4
    (tree,) = find_trees(seen)
    assert tree.root == "deployments.apps"


def test_kinds_that_control_each_other_end() -> None:
    seen = watches(Seen(), "/apis/example.com/v1/as", "/apis/example.com/v1/bs")
    seen.kind("as.example.com").created["bs.example.com"] = 1
    seen.kind("bs.example.com").created["as.example.com"] = 1
    (tree,) = find_trees(seen)
    assert sorted(tree.kinds) == ["as.example.com", "bs.example.com"]


def test_companions_have_the_names_of_another_kind_s_objects_and_no_controller() -> None:
    seen = watches(Seen(), SERVICES, "/api/v1/endpoints")
    ask(seen, "POST", "/api/v1/namespaces/web/endpoints", {"metadata": {"name": "shop"}}, status=201)
    seen.kind("endpoints").beside["services"] = 1
    assert companions(seen) == {"endpoints": ["services"]}
    assert [tree.root for tree in find_trees(seen)] == ["services"]


def test_a_kind_that_is_worked_is_no_companion() -> None:
    seen = deployments()
    seen.kind("deployments.apps").beside["services"] = 1
    assert companions(seen) == {}


def test_an_object_is_no_companion_of_what_its_namesake_controls() -> None:
    seen = deployments()
    ask(seen, "PUT", "/api/v1/namespaces/web/configmaps/shop", {"metadata": {"name": "shop"}})
    seen.kind("configmaps").beside.update(["replicasets.apps", "deployments.apps"])
    assert companions(seen) == {"configmaps": ["deployments.apps"]}
