"""Which kinds a controller works, and what it makes for their objects."""

from __future__ import annotations

from proxy.learn.seen import Seen
from proxy.learn.trees import companions, find_trees
from tests.proxy.learn.requests import DEPLOYMENTS, ask, deployments, watches

SERVICES = "/api/v1/services"


def test_a_tree_has_its_root_where_nothing_controls_what_is_worked() -> None:
    trees = find_trees(deployments())
    assert trees.roots == ["deployments.apps"]
    assert trees.children == {"deployments.apps": ["replicasets.apps"], "replicasets.apps": ["pods"]}
    assert trees.kinds == ["deployments.apps", "replicasets.apps", "pods"]
    assert trees.leaves == ["pods"]
    assert trees.is_deep


def test_a_kind_that_is_worked_and_makes_nothing_is_a_tree_of_its_own() -> None:
    seen = watches(deployments(), "/apis/example.com/v1/websites")
    ask(seen, "PATCH", "/apis/example.com/v1/namespaces/web/websites/x/status", {})
    assert find_trees(seen).roots == ["deployments.apps", "websites.example.com"]


def test_trees_that_share_a_controlled_kind_have_it_once() -> None:
    seen = watches(deployments(), "/apis/batch/v1/jobs")
    seen.kind("pods").created["jobs.batch"] = 2
    trees = find_trees(seen)
    assert trees.roots == ["deployments.apps", "jobs.batch"]
    assert trees.controlled == ["replicasets.apps", "pods"]
    assert trees.below("jobs.batch") == {"jobs.batch": ["pods"]}


def test_a_kind_that_is_not_read_has_no_tree() -> None:
    seen = Seen()
    ask(seen, "PUT", f"{DEPLOYMENTS}/shop/status", {})
    assert not find_trees(seen)


def test_what_was_made_before_the_run_counts_below_what_is_worked() -> None:
    seen = watches(Seen(), "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets")
    ask(seen, "PUT", f"{DEPLOYMENTS}/shop/status", {})
    seen.kind("replicasets.apps").earlier_owners["deployments.apps"] = 4
    assert find_trees(seen).kinds == ["deployments.apps", "replicasets.apps"]


def test_what_another_controller_of_the_field_manager_made_before_does_not_count() -> None:
    seen = watches(Seen(), "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/api/v1/resourcequotas")
    seen.kind("replicasets.apps").earlier_owners["deployments.apps"] = 4
    ask(seen, "PUT", "/api/v1/namespaces/web/resourcequotas/all/status", {})
    assert find_trees(seen).kinds == ["resourcequotas"]


def test_without_any_write_in_the_run_earlier_ones_count() -> None:
    seen = watches(Seen(), "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets")
    seen.kind("replicasets.apps").earlier_owners["deployments.apps"] = 4
    assert find_trees(seen).roots == ["deployments.apps"]


def test_kinds_that_control_each_other_end() -> None:
    seen = watches(Seen(), "/apis/example.com/v1/as", "/apis/example.com/v1/bs")
    seen.kind("as.example.com").created["bs.example.com"] = 1
    seen.kind("bs.example.com").created["as.example.com"] = 1
    assert sorted(find_trees(seen).kinds) == ["as.example.com", "bs.example.com"]


def test_companions_have_the_names_of_another_kind_s_objects_and_no_controller() -> None:
    seen = watches(Seen(), SERVICES, "/api/v1/endpoints")
    ask(seen, "POST", "/api/v1/namespaces/web/endpoints", {"metadata": {"name": "shop"}}, status=201)
    seen.kind("endpoints").beside["services"] = 1
    assert companions(seen) == {"endpoints": ["services"]}
    assert find_trees(seen).roots == ["services"]


def test_a_kind_that_is_worked_is_no_companion() -> None:
    seen = deployments()
    seen.kind("deployments.apps").beside["services"] = 1
    assert companions(seen) == {}


def test_an_object_is_no_companion_of_what_its_namesake_controls() -> None:
    seen = deployments()
    ask(seen, "PUT", "/api/v1/namespaces/web/configmaps/shop", {"metadata": {"name": "shop"}})
    seen.kind("configmaps").beside.update(["replicasets.apps", "deployments.apps"])
    assert companions(seen) == {"configmaps": ["deployments.apps"]}
